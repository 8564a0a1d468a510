/// Ending a group for all its ranks: one compare-and-swap on the state word, the first cause wins,
/// every doorbell rings. And the errors that come of it, the same text on every rank.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "rankcast/core/error.hpp"
#include "rankcast/transports/local/doorbell.hpp"
#include "rankcast/transports/local/group.hpp"

namespace rankcast::inline v0::local {

[[nodiscard]] inline bool revoked(const group& g) noexcept {
  return g.state.load(std::memory_order_seq_cst) != 0;
}

/// Revokes the group with this rank's cause, unless another was first.
inline void claim(group& g, int rank, revocation cause) noexcept {
  if (revoked(g) || g.of(rank).claimed.exchange(true)) return;
  g.of(rank).cause = std::move(cause);
  int open = 0;
  g.state.compare_exchange_strong(open, rank + 1, std::memory_order_seq_cst);
  g.ring_others(rank);
}

/// Waits until no peer is in the middle of a chunk. Marks raised later see the state word first.
inline void wait_for_movers(group& g, int rank) noexcept {
  for (int r = 0; r < g.size; ++r) {
    if (r == rank) continue;
    for (int i = 0; g.of(r).moving.load(std::memory_order_seq_cst); ++i) {
      if (i < 1000) relax_cpu();
      else sched_yield();
    }
  }
}

/// For calls made after the group was revoked, and for those that were in flight.
[[nodiscard]] inline std::exception_ptr later_error(const group& g) {
  const int by = g.state.load(std::memory_order_seq_cst) - 1;
  return rankcast::later_error(g.of(by).cause, g.name, by);
}
[[nodiscard]] inline std::exception_ptr error_of_call(const group& g, std::uint64_t sequence,
                                                      int rank) {
  const int by = g.state.load(std::memory_order_seq_cst) - 1;
  return rankcast::error_of_call(g.of(by).cause, g.name, by, sequence, rank);
}

/// What a rank did last, in words.
[[nodiscard]] inline std::string last_call_text(const group& g, int rank) {
  const member& m = g.of(rank);
  const std::uint64_t calls = m.last_sequence.load(std::memory_order_relaxed);
  last_call call;
  call.any = calls != 0;
  call.sequence = calls - 1;
  call.code = m.last_code.load(std::memory_order_relaxed);
  call.file = m.last_file.load(std::memory_order_relaxed);
  call.line = m.last_line.load(std::memory_order_relaxed);
  call.when = steady_clock::time_point(
      std::chrono::nanoseconds(m.last_time.load(std::memory_order_relaxed)));
  return rankcast::last_call_text(call);
}

}  // namespace rankcast::inline v0::local
