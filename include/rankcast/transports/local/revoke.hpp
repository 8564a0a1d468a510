/// Ending a group for all its ranks: one compare-and-swap on the state word, the first cause wins,
/// every doorbell rings. And the errors that come of it, the same text on every rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "rankcast/core/error.hpp"
#include "rankcast/core/revocation.hpp"
#include "rankcast/transports/local/doorbell.hpp"
#include "rankcast/transports/local/group.hpp"
#include "rankcast/transports/local/names.hpp"

namespace rankcast::inline v0::local {

/// Thrown inside the transport when the group is found revoked in the middle of a call; never
/// leaves it.
struct group_revoked {};

[[nodiscard]] inline bool revoked(const group& g) noexcept {
  return g.state().load(std::memory_order_seq_cst) != 0;
}

/// Puts a text where it has room for; the end of a longer one is left out.
template <std::size_t Room>
void put_text(char (&place)[Room], std::string_view text) noexcept {
  const std::size_t n = std::min(text.size(), Room - 1);
  std::memcpy(place, text.data(), n);
  place[n] = '\0';
  if (n < text.size()) std::memcpy(place + Room - 5, " ...", 5);
}
template <std::size_t Room>
[[nodiscard]] std::string get_text(const char (&place)[Room]) {
  return {place, strnlen(place, Room)};
}

/// Revokes the group with this rank's cause, unless another was first.
inline void claim(group& g, int rank, const revocation& cause) noexcept {
  shared_cause& mine = g.of(rank).cause;
  if (revoked(g) || mine.claimed.exchange(true)) return;
  mine.why = cause.why;
  mine.sequence = cause.sequence;
  mine.waited = cause.waited.count();
  mine.code = cause.code;
  put_text(mine.argument, cause.argument);
  put_text(mine.text, cause.text);
  mine.ranks =
      static_cast<std::uint32_t>(std::min(cause.ranks.size(), static_cast<std::size_t>(g.size)));
  std::copy_n(cause.ranks.begin(), mine.ranks, g.lines.cause_ranks(rank));
  int open = 0;
  g.state().compare_exchange_strong(open, rank + 1, std::memory_order_seq_cst);
  g.ring_others(rank);
}

/// The first cause, once the group is revoked, and the rank that gave it.
[[nodiscard]] inline std::pair<revocation, int> cause_of(const group& g) {
  const int by = std::clamp(g.state().load(std::memory_order_seq_cst) - 1, 0, g.size - 1);
  const shared_cause& c = g.of(by).cause;
  revocation r;
  r.why = c.why;
  r.sequence = c.sequence;
  r.waited = std::chrono::nanoseconds(c.waited);
  r.code = c.code;
  r.argument = get_text(c.argument);
  r.text = get_text(c.text);
  const auto n = std::min<std::size_t>(c.ranks, static_cast<std::size_t>(g.size));
  r.ranks.assign(g.lines.cause_ranks(by), g.lines.cause_ranks(by) + n);
  return {std::move(r), by};
}

/// Waits until every peer is through with the chunk in whose middle it is. Those that begin later
/// see first why this rank waits.
inline void wait_for_movers(const group& g, int rank) noexcept {
  if (g.across_processes) return;  // nobody reads or writes what is not on the board
  for (int r = 0; r < g.size; ++r) {
    if (r == rank) continue;
    const mark& theirs = g.of(r).moving;
    const std::uint32_t seen = theirs.turns();
    for (int i = 0; mark::is_up(seen) && theirs.turns() == seen; ++i) {
      if (i < 1000) relax_cpu();
      else sched_yield();
    }
  }
}

/// For calls made after the group was revoked, and for those that were in flight.
[[nodiscard]] inline std::exception_ptr later_error(const group& g) {
  const auto [why, by] = cause_of(g);
  return rankcast::later_error(why, g.name, by);
}
[[nodiscard]] inline std::exception_ptr error_of_call(const group& g, std::uint64_t sequence,
                                                      int rank) {
  const auto [why, by] = cause_of(g);
  return rankcast::error_of_call(why, g.name, by, sequence, rank);
}

/// The clock of the flight record: cheap, and good to a few milliseconds.
[[nodiscard]] inline std::int64_t coarse_nanoseconds() noexcept {
  std::timespec t{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

/// What a rank did last, in words.
[[nodiscard]] inline std::string last_call_text(const group& g, int rank) {
  const member& m = g.of(rank);
  const std::uint64_t calls = m.last_sequence.load(std::memory_order_relaxed);
  last_call call;
  call.any = calls != 0;
  call.sequence = calls - 1;
  call.code = m.last_code.load(std::memory_order_relaxed);
  call.file = text_at(m.names, m.last_file.load(std::memory_order_acquire));
  call.line = m.last_line.load(std::memory_order_relaxed);
  call.when = steady_clock::time_point(
      std::chrono::nanoseconds(m.last_time.load(std::memory_order_relaxed)));
  return rankcast::last_call_text(call);
}

}  // namespace rankcast::inline v0::local
