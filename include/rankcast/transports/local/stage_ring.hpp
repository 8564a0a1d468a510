/// A rank's ring for small data of many calls, which wait there until their readers have them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rankcast/transports/local/group.hpp"
#include "rankcast/transports/local/kept.hpp"

namespace rankcast::inline v0::local {

/// The owner's side of its stage ring.
class stage_space {
 public:
  stage_space(const group& g, int rank) noexcept : group_(g), rank_(rank) {}

  /// Room for `bytes` in one piece, kept until those who read call `sequence` are through with it;
  /// null when there is none yet.
  [[nodiscard]] std::byte* take(std::size_t bytes, std::uint64_t sequence, int reader,
                                std::uint64_t& position) {
    if (!reserved_) {
      group_.house->reserve(group_.lines.stage_offset(rank_), group_.sizes.stage_bytes);
      reserved_ = true;
    }
    const std::uint64_t size = group_.sizes.stage_bytes;
    const std::uint64_t room = (bytes + 63) / 64 * 64;
    std::uint64_t begin = next_;
    if (begin % size + room > warm_bytes) {  // back to what is still in the cache, if all is free
      while (!held_.empty() && let_go()) {
      }
      if (held_.empty()) begin = (begin + size - 1) / size * size;
    }
    if (begin % size + bytes > size) begin += size - begin % size;  // not around the corner
    const std::uint64_t end = begin + room;
    const auto no_room = [&] {
      return held_.full() || (!held_.empty() && end - held_.front().begin > size);
    };
    while (no_room()) {
      if (!let_go()) return nullptr;
    }
    held_.push({begin, end, sequence, reader});
    next_ = end;
    position = begin;
    return group_.lines.stage_ring(rank_) + begin % size;
  }

  /// The last that was taken needs less, or nothing.
  void keep(std::size_t bytes) noexcept {
    kept::entry& e = held_.back();
    e.end = e.begin + (bytes + 63) / 64 * 64;
    next_ = e.end;
    if (bytes == 0) held_.pop_back();
  }

  /// True when what was put in first waits for rank `r`.
  [[nodiscard]] bool waits_for(int r) const noexcept {
    return !held_.empty() && !through(held_.front(), r);
  }

 private:
  // The owner too may read what it has put there: its own object, in an all_gather.
  [[nodiscard]] bool through(const kept::entry& e, int r) const noexcept {
    if (r != rank_ && e.reader != all_readers && e.reader != r) return true;
    return group_.of(r).ticks.load(std::memory_order_seq_cst) >= tick(e.sequence, stage::consumed);
  }
  bool let_go() noexcept {
    for (int r = 0; r < group_.size; ++r) {
      if (!through(held_.front(), r)) return false;
    }
    held_.pop();
    return true;
  }

  // Of the ring, in use while readers keep up: what its owner has written a moment ago is in its
  // first cache yet, and is written again in a third of the time.
  static constexpr std::uint64_t warm_bytes = 12 * 1024;

  const group& group_;
  int rank_;
  kept held_;
  std::uint64_t next_ = 0;
  bool reserved_ = false;
};

}  // namespace rankcast::inline v0::local
