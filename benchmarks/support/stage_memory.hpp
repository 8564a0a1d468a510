// What a stage is made of: memory shared by path, sleeping on a word of it, and processors.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>
#include <string>
#include <system_error>
#include <vector>

namespace bench {

/// A fresh file of zeros is a stage that nobody has entered.
struct stage_layout {
  static constexpr int max_ranks = 64;
  static constexpr int max_samples = 1000;

  alignas(64) std::atomic<int> arrived;
  alignas(64) std::atomic<std::uint32_t> epoch;
  alignas(64) std::atomic<int> end;  // the first sample that will not be taken
  std::atomic<std::int64_t> begin;   // clock ticks
  std::atomic<bool> failed;
  alignas(64) std::int64_t nanoseconds[max_ranks][max_samples];
};

class stage_memory {
 public:
  explicit stage_memory(const std::string& path) {
    const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) throw std::system_error(errno, std::generic_category(), path);
    void* memory = MAP_FAILED;
    if (::ftruncate(file, sizeof(stage_layout)) == 0) {
      memory = ::mmap(nullptr, sizeof(stage_layout), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    const int cause = errno;
    ::close(file);
    if (memory == MAP_FAILED) throw std::system_error(cause, std::generic_category(), path);
    layout_ = static_cast<stage_layout*>(memory);
  }
  ~stage_memory() { ::munmap(layout_, sizeof(stage_layout)); }
  stage_memory(const stage_memory&) = delete;
  stage_memory& operator=(const stage_memory&) = delete;

  stage_layout* operator->() const noexcept { return layout_; }

 private:
  stage_layout* layout_ = nullptr;
};

inline void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  const timespec slice{0, 100'000'000};  // a failed rank wakes nobody
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &slice, nullptr, 0);
}

inline void wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

inline std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

/// Lets the calling thread run on these alone: on one, it is pinned.
inline void run_on(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<unsigned>(cpu), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) {
    throw std::system_error(errno, std::generic_category(), "pinning a rank");
  }
}

}  // namespace bench
