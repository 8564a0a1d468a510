/// The transports that the conformance suite runs on. To add one: a struct with a name and a `run`,
/// and one line in `all_transports`.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "rankcast/rankcast.hpp"
#include "ranks.hpp"

namespace support {

struct threads {
  static constexpr const char* name = "threads";

  template <class F>
  static void run(int ranks, F&& function, const world_options& options) {
    rankcast::run_options run;
    run.default_timeout = options.default_timeout;
    run.completion = options.completion;
    run.sizes.eager_bytes = options.eager_bytes;
    run.sizes.chunk_bytes = options.chunk_bytes;
    rankcast::run(ranks, std::forward<F>(function), run);
  }
};

using all_transports = testing::Types<  //
    threads>;

struct transport_names {
  template <class Transport>
  static std::string GetName(int) {
    return Transport::name;
  }
};

}  // namespace support

/// A typed suite of this name; tests follow as TYPED_TEST(suite, name).
#define RANKCAST_CONFORMANCE_SUITE(suite) \
  template <class Transport>              \
  class suite : public testing::Test {};  \
  TYPED_TEST_SUITE(suite, ::support::all_transports, ::support::transport_names)
