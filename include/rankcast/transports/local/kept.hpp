/// What a rank has put into one of its rings and must keep until its readers are through with it.
/// Positions count bytes and are never reset; what is kept for whom, only the owner knows.
#pragma once

#include <array>
#include <cstdint>

#include "rankcast/transports/local/board.hpp"

namespace rankcast::inline v0::local {

inline constexpr int all_readers = -1;

/// What the owner has put into a ring and must keep: first in, first out, one entry a call.
class kept {
 public:
  struct entry {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t sequence = 0;
    int reader = all_readers;
    bool returns = false;  // the readers leave something there for the owner
  };

  [[nodiscard]] bool empty() const noexcept { return first_ == next_; }
  [[nodiscard]] bool full() const noexcept { return next_ - first_ == entries_.size(); }
  [[nodiscard]] const entry& front() const noexcept { return entries_[first_ % entries_.size()]; }
  [[nodiscard]] entry& back() noexcept { return entries_[(next_ - 1) % entries_.size()]; }
  [[nodiscard]] const entry& back() const noexcept {
    return entries_[(next_ - 1) % entries_.size()];
  }
  void push(const entry& e) noexcept {
    if (empty()) first_ = next_ = 0;  // the same few lines of memory as long as readers keep up
    entries_[next_++ % entries_.size()] = e;
  }
  void pop() noexcept { ++first_; }
  void pop_back() noexcept { --next_; }

 private:
  std::array<entry, 2 * window> entries_;  // a message has up to two
  std::uint64_t first_ = 0;
  std::uint64_t next_ = 0;
};

}  // namespace rankcast::inline v0::local
