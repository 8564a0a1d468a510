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

/// The first cause, for calls made after the group was revoked.
[[nodiscard]] inline std::exception_ptr later_error(const group& g) {
  const int by = g.state.load(std::memory_order_seq_cst) - 1;
  return std::make_exception_ptr(revoked_error(
      g.of(by).cause.text + " (" + g.name + " was revoked by rank " + std::to_string(by) + ")",
      by));
}

/// The error of a call that was in flight when the group was revoked: the cause itself where it is
/// this call's, the first cause elsewhere.
[[nodiscard]] inline std::exception_ptr error_of_call(const group& g, std::uint64_t sequence) {
  const int by = g.state.load(std::memory_order_seq_cst) - 1;
  const revocation& cause = g.of(by).cause;
  if (cause.sequence == sequence) {
    switch (cause.why) {
      case revocation::kind::timeout:
        return std::make_exception_ptr(timeout_error(cause.text, cause.ranks, cause.waited));
      case revocation::kind::mismatch:
        return std::make_exception_ptr(mismatch_error(cause.text, cause.argument, cause.ranks));
      case revocation::kind::peer_lost:
        return std::make_exception_ptr(peer_lost_error(cause.text, cause.ranks.front()));
      case revocation::kind::failure: break;
    }
  }
  return later_error(g);
}

}  // namespace rankcast::inline v0::local
