/// The promise that nobody touches a caller's memory after a throw. Who is about to copy raises its
/// mark and then looks at the state of the group; who has ended the group waits until the marks are
/// down. One of the two sees the other.
#pragma once

#include <atomic>

#include "rankcast/core/config.hpp"

namespace rankcast::inline v0::local {

/// Zeroed memory is a mark that is down. One writer.
template <template <class> class Atomic = std::atomic>
class basic_mark {
 public:
  /// False, and down again, when the group is over (`state` is not 0): nothing may be touched.
  [[nodiscard]] bool raise(const Atomic<int>& state) noexcept {
    up_.store(true, std::memory_order_seq_cst);
    if (state.load(std::memory_order_seq_cst) == 0) return true;
    lower();
    return false;
  }
  void lower() noexcept { up_.store(false, std::memory_order_release); }
  /// By those who have found the group ended, or ended it.
  [[nodiscard]] bool is_up() const noexcept { return up_.load(std::memory_order_seq_cst); }

 private:
  Atomic<bool> up_{false};
};
using mark = basic_mark<>;

}  // namespace rankcast::inline v0::local
