/// How a rank sleeps until a peer has something for it: a futex. The doorbell is a hint; the
/// sequence numbers beside it are the truth. A peer that finds nobody asleep does nothing.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

#include "rankcast/core/config.hpp"

namespace rankcast::inline v0::local {

/// The CPUs this process may run on; none when that is not known.
[[nodiscard]] inline cpu_set_t own_cpus() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) CPU_ZERO(&set);
  return set;
}
/// Their number, at least 1.
[[nodiscard]] inline int usable_cpus() noexcept {
  const cpu_set_t set = own_cpus();
  return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}
/// How often a rank looks before it gives its CPU away: with fewer CPUs than ranks a spinning one
/// keeps the one it waits for from running.
[[nodiscard]] constexpr int spins_for(int ranks, int cpus) noexcept {
  return ranks <= cpus ? 2000 : 0;
}

inline void relax_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// The futex words of this machine's kernel; tests put another in its place.
struct futex {
  static void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                   std::chrono::nanoseconds limit, bool across_processes) noexcept {
    std::timespec time{};
    time.tv_sec = static_cast<std::time_t>(limit.count() / 1'000'000'000);
    time.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word),
            across_processes ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen, &time, nullptr, 0);
  }
  static void wake(std::atomic<std::uint32_t>& word, bool across_processes) noexcept {
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word),
            across_processes ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
};

/// A rank sleeps on it (of a process, any of its threads), any peer rings it. Zeroed memory is a
/// doorbell. 32 bits that wrap: a sleeper looks again after each slice of time.
///
/// No ring is missed: a peer writes what it has to say (sequentially consistent), then looks for a
/// sleeper; a rank says that it sleeps, then looks once more for what was written. One of the two
/// sees the other.
template <template <class> class Atomic = std::atomic, class Futex = futex>
class basic_doorbell {
 public:
  /// After a sequentially consistent write of this rank's that the sleeper may wait for.
  void ring(bool across_processes) noexcept {
    if (sleeping_.load(std::memory_order_seq_cst) == 0) return;
    rings_.fetch_add(1, std::memory_order_seq_cst);
    Futex::wake(rings_, across_processes);
  }

  /// Sleeps until a ring, at most `limit`, unless `awaited()` moves something after all.
  template <class Awaited>
  void sleep(std::chrono::nanoseconds limit, bool across_processes, Awaited&& awaited) {
    const std::uint32_t seen = rings_.load(std::memory_order_seq_cst);
    const struct wake_up {
      Atomic<std::uint32_t>& sleeping;
      ~wake_up() { sleeping.fetch_sub(1, std::memory_order_relaxed); }
    } at_the_end{sleeping_};
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
    if (!awaited()) Futex::wait(rings_, seen, limit, across_processes);
  }

 private:
  Atomic<std::uint32_t> rings_{0};
  Atomic<std::uint32_t> sleeping_{0};
};

using doorbell = basic_doorbell<>;
static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

}  // namespace rankcast::inline v0::local
