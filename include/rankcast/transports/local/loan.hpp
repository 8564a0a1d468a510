/// Data that readers take from where they lie until the lender calls them back: it puts a copy on
/// the board, says so, and waits until the readers' marks are down. A reader raises its mark and
/// then looks where the data are. One of the two sees the other.
#pragma once

#include <atomic>
#include <cstdint>

#include "rankcast/core/config.hpp"

namespace rankcast::inline v0::local {

/// One writer, the lender.
template <template <class> class Atomic = std::atomic>
class basic_loan {
 public:
  /// Before the call is shown.
  void begin() noexcept { moved_.store(0, std::memory_order_relaxed); }
  /// The data are at `place` of the stage ring, too. Who waits for the marks after that has its
  /// own memory back.
  void recall(std::uint64_t place) noexcept { moved_.store(place + 1, std::memory_order_seq_cst); }
  /// With the reader's mark raised: the place plus one, 0 while the data are where they were.
  [[nodiscard]] std::uint64_t moved() const noexcept {
    return moved_.load(std::memory_order_seq_cst);
  }

 private:
  Atomic<std::uint64_t> moved_{0};
};
using loan = basic_loan<>;

}  // namespace rankcast::inline v0::local
