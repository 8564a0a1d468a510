/// Ranks for tests: every rank's failure is collected, a rank that throws releases its peers, and a
/// watchdog ends a test that hangs, saying which ranks hang and in which step.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rankcast/rankcast.hpp"
#include "support/world.hpp"

namespace support {

using namespace std::chrono_literals;

inline constexpr std::chrono::seconds deadline_over_all{100};

/// What each rank is doing, for the watchdog. Steps are string literals.
class progress_board {
 public:
  static constexpr std::size_t most_ranks = 64;

  void enter(int rank) {
    mine() = &steps_[static_cast<std::size_t>(rank)];
    mine()->store("started");
  }
  void leave() {
    mine()->store(nullptr);
    mine() = nullptr;
  }
  static void step(const char* name) {
    if (mine() != nullptr) mine()->store(name);
  }
  [[nodiscard]] std::string text() const {
    std::string s;
    for (std::size_t r = 0; r < most_ranks; ++r) {
      if (const char* at = steps_[r].load(); at != nullptr) {
        s += "  rank " + std::to_string(r) + " is in step '" + at + "'\n";
      }
    }
    return s.empty() ? "  no rank is running\n" : s;
  }

 private:
  static std::atomic<const char*>*& mine() {
    static thread_local std::atomic<const char*>* at = nullptr;
    return at;
  }
  std::array<std::atomic<const char*>, most_ranks> steps_{};
};

/// Names what this rank does next; the watchdog prints it when that never ends.
inline void step(const char* name) {
  progress_board::step(name);
}

/// Groups of tests have time limits of their own, so this is for faults of the library that no time
/// limit ends. A hung thread cannot be joined: all that is left is to say so and to abort.
class watchdog {
 public:
  watchdog(const progress_board& board, std::chrono::nanoseconds limit)
      : thread_([this, &board, limit] {
          std::unique_lock lock(mutex_);
          if (wake_.wait_for(lock, limit, [this] { return done_; })) return;
          const auto* info = testing::UnitTest::GetInstance()->current_test_info();
          std::fprintf(stderr, "\nHANG in %s.%s:\n%s",
                       info != nullptr ? info->test_suite_name() : "?",
                       info != nullptr ? info->name() : "?", board.text().c_str());
          std::abort();
        }) {}
  ~watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

/// Runs `function(communicator&)` on ranks of the transport the test is linked to. What a rank
/// throws is a failure of the test, reported for each rank. Meant for calls inside of which nothing
/// is expected to escape. More ranks than the job has processes are left out.
template <class F>
void run_ranks(int ranks, F&& function, const world_options& options = {}) {
  if (ranks > most_ranks()) return;
  std::vector<std::string> escaped(static_cast<std::size_t>(ranks));
  progress_board board;
  {
    const watchdog guard(board, deadline_over_all);
    try {
      run_world(
          ranks,
          [&](rankcast::communicator& world) {
            const int rank = world.rank();
            board.enter(rank);
            try {
              function(world);
            } catch (const std::exception& e) {
              escaped[static_cast<std::size_t>(rank)] = e.what();
              board.leave();
              throw;
            }
            board.leave();
          },
          options);
    } catch (const std::exception& e) {
      ADD_FAILURE() << ranks << " ranks ended with: " << e.what();
    }
  }
  for (int r = 0; r < ranks; ++r) {
    const std::string& text = escaped[static_cast<std::size_t>(r)];
    if (!text.empty()) ADD_FAILURE() << "rank " << r << " of " << ranks << " threw: " << text;
  }
}

/// The error of type E that `f` throws. Anything else, or nothing, is a failure of the test.
template <class E, class F>
[[nodiscard]] std::optional<E> error_of(F&& f) {
  try {
    std::forward<F>(f)();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const E& e) {
    return e;
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another error was thrown: " << e.what();
  }
  return std::nullopt;
}

[[nodiscard]] inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

[[nodiscard]] inline double seconds_since(rankcast::steady_clock::time_point begin) {
  return std::chrono::duration<double>(rankcast::steady_clock::now() - begin).count();
}

}  // namespace support

/// Fails unless `text` holds `part`, and shows both.
#define EXPECT_CONTAINS(text, part) \
  EXPECT_TRUE(::support::contains(text, part)) << "'" << (part) << "' is not in: " << (text)
