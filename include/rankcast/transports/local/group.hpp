/// A group as its ranks see it: the board that they share and what goes with it. Ranks that are
/// threads share this object too, of processes each has its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/agreement.hpp"
#include "rankcast/core/operation.hpp"
#include "rankcast/transports/local/board.hpp"
#include "rankcast/transports/local/premises.hpp"

namespace rankcast::inline v0::local {

/// A message on its way from one thread to another.
struct envelope {
  enum class phase : std::uint8_t { posted, taken, done, withdrawn };

  int source = 0;
  int tag = 0;
  std::uint64_t number = 0;  // in the order of arrival at the mailbox
  call_record record{};
  const std::byte* data = nullptr;
  layout data_layout = layout::flat(0);
  std::vector<std::byte> stage;
  message content;      // instead of data
  std::string refusal;  // not empty: the sender could not encode it
  // Written by the receiver before `done`:
  std::string note;        // why it could not take it
  bool undecoded = false;  // because its decoder failed
  bool whole = true;       // false: the sender gave up while it was read
  std::atomic<phase> state{phase::posted};
  std::atomic<bool> cancelled{false};
};

struct mailbox {
  std::mutex mutex;
  std::deque<std::shared_ptr<envelope>> letters;
  std::atomic<std::uint64_t> arrivals{0};

  void post(const std::shared_ptr<envelope>& e) {
    const std::lock_guard lock(mutex);
    e->number = arrivals.load(std::memory_order_relaxed);
    letters.push_back(e);
    arrivals.store(e->number + 1, std::memory_order_seq_cst);
  }
  [[nodiscard]] std::uint64_t arrived() const noexcept {
    return arrivals.load(std::memory_order_seq_cst);
  }
};

struct group {
  group(std::unique_ptr<premises> p, int ranks, std::string text, const settings& s, int spins)
      : house(std::move(p)),
        lines(house->address(), ranks, s),
        size(ranks),
        name(std::move(text)),
        sizes(s),
        spin_limit(spins),
        across_processes(house->across_processes()),
        ring_bytes(spins == 0 ? s.ring_bytes * crowded : s.ring_bytes),
        lend_bytes(across_processes || spins == 0 ? s.eager_bytes : s.lend_bytes),
        help_bytes(spins == 0 ? std::max(s.help_bytes, std::size_t{1} << 20) : s.help_bytes),
        mail(across_processes ? 0 : static_cast<std::size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r) {
      doorbell* const other = house->bell(r);
      bells.push_back(other != nullptr ? other : &of(r).bell);
    }
  }

  [[nodiscard]] member& of(int rank) const noexcept { return lines.of(rank); }
  [[nodiscard]] std::atomic<int>& state() const noexcept { return lines.header().state; }
  /// After a sequentially consistent write that a peer may wait for.
  [[nodiscard]] doorbell& bell(int rank) const noexcept {
    return *bells[static_cast<std::size_t>(rank)];
  }
  void ring(int rank) const noexcept { bell(rank).ring(across_processes); }
  void ring_others(int self) const noexcept {
    for (int r = 0; r < size; ++r) {
      if (r != self) ring(r);
    }
  }
  [[nodiscard]] bool gone(int rank) const noexcept {
    const member& m = of(rank);
    return m.left.load(std::memory_order_seq_cst) || m.closed.load(std::memory_order_seq_cst) ||
           house->dead(rank);
  }

  const std::unique_ptr<premises> house;
  const board lines;
  const int size;
  const std::string name;  // "group 'tensor' [2,3]"
  const settings sizes;
  const int spin_limit;
  const bool across_processes;
  const std::size_t ring_bytes;  // of a stream ring
  // What ranks with a CPU each do from these sizes on; others would wait for each other.
  const std::size_t lend_bytes;
  const std::size_t help_bytes;
  std::vector<mailbox> mail;  // of threads
  std::vector<doorbell*> bells;
};

/// Sizes as a board can have them.
[[nodiscard]] inline settings sound(settings s, int ranks) noexcept {
  const auto lines = [](std::size_t n) { return (n + 63) / 64 * 64; };
  s.chunk_bytes = std::max<std::size_t>(s.chunk_bytes, 1);
  s.slot_bytes = std::min({s.slot_bytes, slot::room, s.eager_bytes});
  s.lend_bytes = std::clamp(s.lend_bytes, s.slot_bytes, s.eager_bytes);
  // A round of pieces for each reader, four times at least.
  s.ring_bytes = std::max<std::size_t>(lines(s.ring_bytes), 256 * static_cast<std::size_t>(ranks));
  s.stage_bytes = std::max(lines(s.stage_bytes), lines(4 * s.eager_bytes + 256));
  s.pipe_bytes = std::max<std::size_t>(lines(s.pipe_bytes), 256);
  return s;
}

}  // namespace rankcast::inline v0::local
