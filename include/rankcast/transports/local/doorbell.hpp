/// How a rank waits for its peers: spin, then yield, then sleep on a futex. The doorbell is a hint;
/// the sequence numbers beside it are the truth.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>

#include "rankcast/core/config.hpp"

namespace rankcast::inline v0::local {

/// CPUs this process may run on.
[[nodiscard]] inline int usable_cpus() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

inline void relax_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// One rank sleeps on it, any peer rings it. 32 bits that wrap: a sleeper looks again after each
/// slice of time, so a missed ring costs a slice, never a hang.
class doorbell {
 public:
  [[nodiscard]] std::uint32_t value() const noexcept {
    return value_.load(std::memory_order_seq_cst);
  }

  void ring() noexcept {
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_seq_cst) != 0) {
      syscall(SYS_futex, word(), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
  }

  /// Returns when the value is no longer `seen`, after `limit`, or for no reason.
  void sleep(std::uint32_t seen, std::chrono::nanoseconds limit) noexcept {
    sleeping_.store(1, std::memory_order_seq_cst);
    if (value() == seen) {
      std::timespec time{};
      time.tv_sec = static_cast<std::time_t>(limit.count() / 1'000'000'000);
      time.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);
      syscall(SYS_futex, word(), FUTEX_WAIT_PRIVATE, seen, &time, nullptr, 0);
    }
    sleeping_.store(0, std::memory_order_seq_cst);
  }

 private:
  std::uint32_t* word() noexcept { return reinterpret_cast<std::uint32_t*>(&value_); }

  static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
                sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  std::atomic<std::uint32_t> value_{0};
  std::atomic<std::uint32_t> sleeping_{0};
};

}  // namespace rankcast::inline v0::local
