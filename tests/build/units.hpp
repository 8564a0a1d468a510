/// What the two units of the one-copy tests offer: the same things, each done by the copy of
/// rankcast that was compiled into that unit. unit.inc defines them.
#pragma once

#include <chrono>
#include <functional>
#include <rankcast/core/communicator.hpp>
#include <vector>

#define UNIT_API __attribute__((visibility("default")))

// clang-format off
#define DECLARE_UNIT(unit)                                                               \
  namespace unit {                                                                       \
  UNIT_API void set_library_timeout(rankcast::timeout limit);                            \
  UNIT_API rankcast::timeout effective_timeout(const rankcast::communicator& group);     \
  UNIT_API void with_scoped_timeout(const rankcast::communicator& group,                 \
                                    rankcast::timeout limit,                             \
                                    const std::function<void()>& body);                  \
  UNIT_API rankcast::communicator make_world();                                          \
  UNIT_API void sum(const rankcast::communicator& group, std::vector<double>& values);   \
  UNIT_API rankcast::work start_sum(const rankcast::communicator& group,                 \
                                    std::vector<double>& values);                        \
  UNIT_API void barrier(const rankcast::communicator& group);                            \
  }
// clang-format on

DECLARE_UNIT(first)
DECLARE_UNIT(second)
