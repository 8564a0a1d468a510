// The library's doorbell, run in every order: who publishes and rings never leaves a sleeper
// behind. And doorbells with one thing wrong, each of which the explorer must find.
#include "rankcast/transports/local/doorbell.hpp"

#include <gtest/gtest.h>

#include "model/expect.hpp"

namespace {

using model::Atomic;
using model::expect_found;
using model::expect_holds;
using model::Futex;
using model::lost_wake_up;
using model::Plain;
using model::require;

constexpr std::memory_order relaxed = std::memory_order_relaxed;
constexpr std::memory_order release = std::memory_order_release;
constexpr std::memory_order seq_cst = std::memory_order_seq_cst;
constexpr std::chrono::nanoseconds for_ever{};  // the futex here has no time limits

using real = rankcast::local::basic_doorbell<Atomic, Futex>;

// --- doorbells that are broken ---

enum class flaw {
  none,            // the library's, line by line
  says_release,    // says that it sleeps by a store that may wait in a buffer
  adds_release,    // says so by a read-modify-write that is not sequentially consistent
  looks_first,     // looks for what it awaits before it says that it sleeps
  never_looks,     // does not look at all
  seen_late,       // counts the rings when it has looked, not before it says that it sleeps
  counts_late,     // wakes before it counts the ring
  counts_nothing,  // wakes without counting
  one_sleeper,     // says whether one sleeps, not how many
};

template <flaw Flaw>
class broken {
 public:
  void ring(bool across) noexcept {
    if (sleeping_.load(seq_cst) == 0) return;
    if (Flaw == flaw::counts_late) Futex::wake(rings_, across);
    if (Flaw != flaw::counts_nothing) rings_.fetch_add(1, seq_cst);
    if (Flaw != flaw::counts_late) Futex::wake(rings_, across);
  }
  template <class Awaited>
  void sleep(std::chrono::nanoseconds limit, bool across, Awaited&& awaited) {
    std::uint32_t seen = rings_.load(seq_cst);
    const bool early = Flaw == flaw::looks_first && awaited();
    if (Flaw == flaw::says_release) sleeping_.store(1, release);
    else if (Flaw == flaw::one_sleeper) sleeping_.store(1, seq_cst);
    else sleeping_.fetch_add(1, Flaw == flaw::adds_release ? release : seq_cst);
    const bool come = Flaw == flaw::looks_first   ? early
                      : Flaw == flaw::never_looks ? false
                                                  : awaited();
    if (Flaw == flaw::seen_late) seen = rings_.load(seq_cst);
    if (!come) Futex::wait(rings_, seen, limit, across);
    if (Flaw == flaw::says_release || Flaw == flaw::one_sleeper) sleeping_.store(0, relaxed);
    else sleeping_.fetch_sub(1, relaxed);
  }

 private:
  Atomic<std::uint32_t> rings_{0};
  Atomic<std::uint32_t> sleeping_{0};
};

// --- scenarios ---

// Two ranks publish once each, thread 2 sleeps until it has both.
template <class Doorbell, std::memory_order Publish = seq_cst>
struct two_publishers {
  static constexpr int threads = 3;
  model::label at_published{"published"};
  Atomic<int> published[2];
  model::label at_bell{"bell"};
  Doorbell bell;
  model::label at_data{"data"};
  Plain<int> data[2];

  [[nodiscard]] bool both() const { return published[0].load() == 1 && published[1].load() == 1; }
  void thread(int t) {
    if (t < 2) {
      data[t].set(t + 5);
      published[t].store(1, Publish);
      bell.ring(false);
      return;
    }
    while (!both()) bell.sleep(for_ever, false, [&] { return both(); });
    require(data[0].get() == 5 && data[1].get() == 6, "old data");
  }
  void after() {}
};

// Thread 0 publishes twice, thread 1 sleeps for each.
template <class Doorbell, std::memory_order Publish = seq_cst>
struct sleeps_twice {
  static constexpr int threads = 2;
  model::label at_published{"published"};
  Atomic<int> published{0};
  model::label at_bell{"bell"};
  Doorbell bell;
  model::label at_data{"data"};
  Plain<int> data[3];

  void thread(int t) {
    for (int i = 1; i <= 2; ++i) {
      if (t == 0) {
        data[i].set(i);
        published.store(i, Publish);
        bell.ring(false);
      } else {
        const auto come = [&] { return published.load() >= i; };
        while (!come()) bell.sleep(for_ever, false, come);
        require(data[i].get() == i, "old data");
      }
    }
  }
  void after() {}
};

// Two threads of a rank sleep on its bell, each for a thing of its own; thread 0 publishes one
// after the other.
template <class Doorbell>
struct two_sleepers {
  static constexpr int threads = 3;
  model::label at_published{"published"};
  Atomic<int> published[2];
  model::label at_bell{"bell"};
  Doorbell bell;

  void thread(int t) {
    if (t == 0) {
      for (auto& p : published) {
        p.store(1, seq_cst);
        bell.ring(false);
      }
      return;
    }
    const auto come = [&] { return published[t - 1].load() == 1; };
    while (!come()) bell.sleep(for_ever, false, come);
  }
  void after() {}
};

// Two ranks with a bell each: one asks, the other answers out of its sleep, as a rank does that
// moves something when it looks once more. Twice.
template <class Doorbell>
struct ask_and_answer {
  static constexpr int threads = 2;
  model::label at_asked{"asked"};
  Atomic<int> asked{0};
  model::label at_answered{"answered"};
  Atomic<int> answered{0};
  model::label at_bell{"bell"};
  Doorbell bell[2];
  int done = 0;  // by thread 1

  bool answer() {
    const int n = asked.load();
    if (n == done) return false;
    done = n;
    answered.store(n, seq_cst);
    bell[0].ring(false);
    return true;
  }
  void thread(int t) {
    for (int i = 1; i <= 2; ++i) {
      if (t == 0) {
        asked.store(i, seq_cst);
        bell[1].ring(false);
        const auto come = [&] { return answered.load() == i; };
        while (!come()) bell[0].sleep(for_ever, false, come);
      } else {
        while (done < i && !answer()) {
          bell[1].sleep(for_ever, false, [&] { return answer(); });
        }
      }
    }
  }
  void after() { require(answered.load() == 2, "not answered"); }
};

// Two ranks end the group at the same time, each with a cause; a third one sleeps. The first cause
// is what all read, and the sleeper wakes up.
template <class Doorbell>
struct two_revokers {
  static constexpr int threads = 3;
  model::label at_state{"state"};
  Atomic<int> state{0};
  model::label at_bell{"bell"};
  Doorbell bell;
  model::label at_cause{"cause"};
  Plain<int> cause[2];
  int read[3] = {-1, -1, -1};

  void thread(int t) {
    if (t < 2) {
      cause[t].set(t + 1);
      int open = 0;
      state.compare_exchange_strong(open, t + 1, seq_cst);
      bell.ring(false);
    } else {
      const auto over = [&] { return state.load() != 0; };
      while (!over()) bell.sleep(for_ever, false, over);
    }
    read[t] = cause[state.load() - 1].get();
  }
  void after() {
    require(read[0] == state.load() && read[1] == read[0] && read[2] == read[0], "two causes");
  }
};

// --- the library's ---

TEST(doorbell, wakes_a_sleeper_of_two_publishers) {
  expect_holds<two_publishers<real>>();
  expect_holds<two_publishers<real>>({.early_returns = 2});
}

TEST(doorbell, wakes_who_sleeps_twice) {
  expect_holds<sleeps_twice<real>>();
  expect_holds<sleeps_twice<real>>({.early_returns = 2});
}

TEST(doorbell, wakes_two_sleepers) {
  expect_holds<two_sleepers<real>>();
  expect_holds<two_sleepers<real>>({.early_returns = 1});
}

TEST(doorbell, wakes_who_answers_out_of_its_sleep) {
  expect_holds<ask_and_answer<real>>();
  expect_holds<ask_and_answer<real>>({.early_returns = 1});
}

TEST(doorbell, wakes_whoever_sleeps_when_the_group_ends) {
  expect_holds<two_revokers<real>>();
}

// --- what breaks it ---

TEST(doorbell, wants_a_sequentially_consistent_write_before_the_ring) {
  expect_found<sleeps_twice<real, release>>(lost_wake_up);
  expect_found<two_publishers<real, release>>(lost_wake_up);
  expect_found<sleeps_twice<real, relaxed>>(lost_wake_up);
}

TEST(doorbell, broken_ones_are_found) {
  expect_holds<sleeps_twice<broken<flaw::none>>>();
  expect_holds<two_sleepers<broken<flaw::none>>>();
  expect_found<sleeps_twice<broken<flaw::says_release>>>(lost_wake_up);
  expect_found<sleeps_twice<broken<flaw::adds_release>>>(lost_wake_up);
  expect_found<sleeps_twice<broken<flaw::looks_first>>>(lost_wake_up);
  expect_found<sleeps_twice<broken<flaw::never_looks>>>(lost_wake_up);
  expect_found<sleeps_twice<broken<flaw::seen_late>>>(lost_wake_up);
  expect_found<sleeps_twice<broken<flaw::counts_late>>>(lost_wake_up);
  expect_found<sleeps_twice<broken<flaw::counts_nothing>>>(lost_wake_up);
  expect_found<two_sleepers<broken<flaw::one_sleeper>>>(lost_wake_up);
}

}  // namespace
