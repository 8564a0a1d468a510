/// The threads one rank computes with: a small team that splits one product at a time.
///
/// A team per rank instead of OpenMP: libgomp reads its wait policy from the environment once, when
/// it is loaded, so a program cannot bound its spinning from inside, and idle OpenMP workers of one
/// rank then spin on the cores of another. A team here spins for a bounded time and then sleeps.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#include "rankcast/core/error.hpp"
#include "rankcast/transports/local/doorbell.hpp"

namespace rankcast::transformer {

/// The number of threads each of `ranks` ranks of one process may compute with: the usable
/// processors divided by the ranks, at least 1.
/// Throws usage_error when `ranks` < 1.
[[nodiscard]] inline int compute_threads(int ranks) {
  if (ranks < 1) throw usage_error("compute_threads: ranks must be at least 1");
  return std::max(1, local::usable_cpus() / ranks);
}

/// The calling thread and `threads - 1` workers, which work on one thing at a time together.
///
/// A round never waits for a worker that did not begin it: on a busy machine the caller does the
/// work of a worker without a core instead of standing still until it has one. A round costs about
/// a microsecond while the workers still spin, and a system call to wake sleeping ones otherwise.
/// Only the thread that built the team may call run(), and not from within a body.
class thread_team {
 public:
  /// Starts `threads - 1` workers. Throws usage_error when `threads` < 1, std::system_error when a
  /// thread cannot be started.
  explicit thread_team(int threads) : size_(threads) {
    if (threads < 1) throw usage_error("thread_team: threads must be at least 1");
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    try {
      for (int index = 1; index < threads; ++index) workers_.emplace_back([this] { work(); });
    } catch (...) {
      stop();
      throw;
    }
  }

  thread_team(const thread_team&) = delete;
  thread_team& operator=(const thread_team&) = delete;
  ~thread_team() { stop(); }

  /// The number of threads, with the caller.
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Calls `body()` on the calling thread and, at the same time, at most once on each worker that
  /// comes before the caller is done; returns when all calls have. So `body` takes its work from a
  /// shared supply and returns when none is left. It must not throw: that ends the program.
  template <class Body>
  void run(Body&& body) noexcept {
    if (size_ == 1) {
      body();
      return;
    }
    using stored = std::remove_reference_t<Body>;
    context_ = const_cast<void*>(static_cast<const void*>(&body));
    call_ = [](void* context) noexcept { (*static_cast<stored*>(context))(); };
    round_.fetch_add(1);  // odd: open
    round_.notify_all();
    body();
    round_.fetch_add(1);  // even: closed. Who has not entered by now finds so and stays out.
    for (int inside = inside_.load(); inside != 0; inside = inside_.load()) {
      await_change(inside_, inside);
    }
  }

 private:
  // Long enough to bridge the work between two products of one layer, short enough that a rank
  // which waits for others gives its cores back.
  static constexpr std::chrono::microseconds spin_time{50};

  template <class Value>
  static void await_change(const std::atomic<Value>& value, Value old) noexcept {
    const auto deadline = std::chrono::steady_clock::now() + spin_time;
    do {
      for (int turn = 0; turn < 16; ++turn) {
        if (value.load(std::memory_order_acquire) != old) return;
        relax();
      }
    } while (std::chrono::steady_clock::now() < deadline);
    value.wait(old, std::memory_order_acquire);
  }

  static void relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  void work() noexcept {
    std::uint32_t seen = 0;
    for (;;) {
      await_change(round_, seen);
      seen = round_.load();
      if (stopping_.load()) return;
      if (seen % 2 == 0) continue;
      // Enter first, then look again: with both in one order for all threads, either this worker
      // sees the round closed or the caller sees it inside and waits.
      inside_.fetch_add(1);
      if (round_.load() == seen) call_(context_);
      inside_.fetch_sub(1);
      inside_.notify_one();
    }
  }

  void stop() noexcept {
    stopping_.store(true);
    round_.fetch_add(2);
    round_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  int size_;
  void (*call_)(void*) noexcept = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> stopping_{false};
  // On lines of their own: the workers spin on the first, the caller on the second.
  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<int> inside_{0};
  std::vector<std::thread> workers_;
};

/// Gives the calling thread a team of `threads` threads for its products while this lives; the
/// setting before it returns afterwards. A thread without one computes alone.
class scoped_threads {
 public:
  explicit scoped_threads(int threads) : team_(threads), before_(current()) { current() = &team_; }
  scoped_threads(const scoped_threads&) = delete;
  scoped_threads& operator=(const scoped_threads&) = delete;
  ~scoped_threads() { current() = before_; }

  /// The team the calling thread computes with; null when it computes alone.
  [[nodiscard]] static thread_team*& current() noexcept {
    thread_local thread_team* team = nullptr;
    return team;
  }

 private:
  thread_team team_;
  thread_team* before_;
};

/// Calls `body(first, last)` for ranges that together cover [0, count) once, on the caller's team.
/// Which thread has which range changes from call to call, so a result must not depend on it.
/// `body` must not throw.
template <class Body>
void split_range(std::int64_t count, Body&& body) noexcept {
  thread_team* const team = scoped_threads::current();
  if (team == nullptr || team->size() == 1 || count <= 1) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
  // Four ranges per thread: a thread that is late leaves its share to the others.
  const std::int64_t step = std::max<std::int64_t>(1, count / (team->size() * 4));
  std::atomic<std::int64_t> next{0};
  team->run([&] {
    for (std::int64_t first = next.fetch_add(step); first < count; first = next.fetch_add(step)) {
      body(first, std::min(count, first + step));
    }
  });
}

}  // namespace rankcast::transformer
