/// The promise that nobody touches a caller's memory after a throw, nor after a loan was recalled.
/// Who is about to copy raises its mark and then looks at what would forbid it: the state of the
/// group, where the data are. Who has ended the group, or moved the data, then waits for the marks.
/// One of the two sees the other.
#pragma once

#include <atomic>
#include <cstdint>

#include "rankcast/core/config.hpp"

namespace rankcast::inline v0::local {

/// Zeroed memory is a mark that is down. One writer.
template <template <class> class Atomic = std::atomic>
class basic_mark {
 public:
  /// False, and down again, when the group is over (`state` is not 0): nothing may be touched.
  [[nodiscard]] bool raise(const Atomic<int>& state) noexcept {
    turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    if (state.load(std::memory_order_seq_cst) == 0) return true;
    lower();
    return false;
  }
  void lower() noexcept {
    turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  /// How often it has been moved: up when that is odd. Whoever was in the middle of something is
  /// through with it as soon as the number is another one, for it may be up for the next thing.
  [[nodiscard]] std::uint32_t turns() const noexcept {
    return turns_.load(std::memory_order_seq_cst);
  }
  [[nodiscard]] static constexpr bool is_up(std::uint32_t turns) noexcept { return turns % 2 == 1; }

 private:
  Atomic<std::uint32_t> turns_{0};
};
using mark = basic_mark<>;

}  // namespace rankcast::inline v0::local
