// The explorer itself, on the classic small programs of which it is known what memory allows.
#include "model/explorer.hpp"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "model/expect.hpp"

namespace {

using model::Atomic;
using model::expect_found;
using model::expect_holds;
using model::Plain;
using model::require;

constexpr std::memory_order relaxed = std::memory_order_relaxed;
constexpr std::memory_order acquire = std::memory_order_acquire;
constexpr std::memory_order release = std::memory_order_release;
constexpr std::memory_order seq_cst = std::memory_order_seq_cst;

using outcomes = std::set<std::pair<int, int>>;

// Each writes its own flag and looks at the other's.
template <std::memory_order Store>
struct store_buffering {
  static constexpr int threads = 2;
  static outcomes& seen() {
    static outcomes all;
    return all;
  }
  Atomic<int> flag[2];
  int saw[2]{};
  void thread(int t) {
    flag[t].store(1, Store);
    saw[t] = flag[1 - t].load(seq_cst);
  }
  void after() { seen().emplace(saw[0], saw[1]); }
};

TEST(explorer, finds_the_outcomes_of_store_buffers) {
  expect_holds<store_buffering<seq_cst>>();
  expect_holds<store_buffering<release>>();
  expect_holds<store_buffering<relaxed>>();
  const outcomes ordered{{0, 1}, {1, 0}, {1, 1}};
  const outcomes all{{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  EXPECT_EQ(store_buffering<seq_cst>::seen(), ordered);
  EXPECT_EQ(store_buffering<release>::seen(), all);
  EXPECT_EQ(store_buffering<relaxed>::seen(), all);
}

// A release store, then a read-modify-write elsewhere, then a look at the other's flag.
template <std::memory_order Rewrite>
struct buffering_with_rewrite {
  static constexpr int threads = 2;
  Atomic<int> flag[2];
  Atomic<int> other[2];
  int saw[2]{};
  void thread(int t) {
    flag[t].store(1, release);
    other[t].fetch_add(1, Rewrite);
    saw[t] = flag[1 - t].load(seq_cst);
  }
  void after() { require(saw[0] + saw[1] > 0, "neither saw the other"); }
};

// Each takes its own flag, and looks at the other's.
template <std::memory_order Rewrite>
struct rewrite_and_look {
  static constexpr int threads = 2;
  Atomic<int> flag[2];
  int saw[2]{};
  void thread(int t) {
    flag[t].exchange(1, Rewrite);
    saw[t] = flag[1 - t].load(seq_cst);
  }
  void after() { require(saw[0] + saw[1] > 0, "neither saw the other"); }
};

TEST(explorer, lets_a_load_overtake_a_rewrite_that_is_not_sequentially_consistent) {
  expect_holds<rewrite_and_look<seq_cst>>();
  expect_found<rewrite_and_look<std::memory_order_acq_rel>>("neither saw the other");
  expect_found<rewrite_and_look<relaxed>>("neither saw the other");
}

TEST(explorer, lets_no_store_wait_across_a_rewrite_that_releases) {
  expect_holds<buffering_with_rewrite<seq_cst>>();
  expect_found<buffering_with_rewrite<relaxed>>("neither saw the other");
}

// Two stores of one thread, seen by another.
template <std::memory_order First, std::memory_order Second>
struct two_stores {
  static constexpr int threads = 2;
  static outcomes& seen() {
    static outcomes all;
    return all;
  }
  Atomic<int> first{0};
  Atomic<int> second{0};
  int saw[2]{};
  void thread(int t) {
    if (t == 0) {
      first.store(1, First);
      second.store(1, Second);
    } else {
      saw[1] = second.load(acquire);
      saw[0] = first.load(acquire);
    }
  }
  void after() { seen().emplace(saw[0], saw[1]); }
};

TEST(explorer, keeps_release_stores_in_order_and_relaxed_ones_not) {
  expect_holds<two_stores<relaxed, release>>();
  expect_holds<two_stores<relaxed, relaxed>>();
  expect_holds<two_stores<release, relaxed>>();
  const outcomes in_order{{0, 0}, {1, 0}, {1, 1}};
  const outcomes all{{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  EXPECT_EQ((two_stores<relaxed, release>::seen()), in_order);
  EXPECT_EQ((two_stores<relaxed, relaxed>::seen()), all);
  EXPECT_EQ((two_stores<release, relaxed>::seen()), all);
}

// Data that are not atomic, and a flag that says so.
template <std::memory_order Store, std::memory_order Load>
struct message_passing {
  static constexpr int threads = 2;
  model::label at_flag{"flag"};
  Atomic<int> flag{0};
  model::label at_data{"data"};
  Plain<int> data{0};
  void thread(int t) {
    if (t == 0) {
      data.set(42);
      flag.store(1, Store);
    } else if (flag.load(Load) == 1) {
      require(data.get() == 42, "old data");
    }
  }
  void after() {}
};

TEST(explorer, finds_races_on_what_is_not_atomic) {
  expect_holds<message_passing<release, acquire>>();
  expect_holds<message_passing<seq_cst, seq_cst>>();
  expect_found<message_passing<relaxed, acquire>>("race, read and write: data.0");
  expect_found<message_passing<release, relaxed>>("race, read and write: data.0");
}

// The last of three to leave takes the data away.
template <std::memory_order Leave>
struct last_one_out {
  static constexpr int threads = 3;
  Atomic<int> inside{3};
  Plain<int> data{7};
  void thread(int) {
    require(data.get() == 7, "other data");
    if (inside.fetch_sub(1, Leave) == 1) data.let_go();
  }
  void after() {}
};

TEST(explorer, follows_what_is_said_through_a_chain_of_rewrites) {
  expect_holds<last_one_out<std::memory_order_acq_rel>>();
  expect_found<last_one_out<release>>("let go while in use");
  expect_found<last_one_out<acquire>>("let go while in use");
}

struct lost_update {
  static constexpr int threads = 2;
  Atomic<int> n{0};
  void thread(int) { n.store(n.load() + 1); }
  void after() { require(n.load() == 2, "an update was lost"); }
};
struct no_lost_update {
  static constexpr int threads = 3;
  Atomic<int> n{0};
  void thread(int) {
    int seen = n.load(relaxed);
    while (!n.compare_exchange_weak(seen, seen + 1, relaxed, relaxed)) {
    }
  }
  void after() { require(n.load() == 3, "an update was lost"); }
};

TEST(explorer, interleaves_loads_and_stores_but_not_a_rewrite) {
  expect_found<lost_update>("an update was lost");
  expect_holds<no_lost_update>();
}

// The futex looks at the word itself; who tells it what it sees there now can miss a ring.
template <bool TellsWhatItSaw>
struct sleep_on_a_word {
  static constexpr int threads = 2;
  Atomic<std::uint32_t> word{0};
  void thread(int t) {
    if (t == 0) {
      word.store(1);
      model::Futex::wake(word, false);
    } else if (word.load() == 0) {
      model::Futex::wait(word, TellsWhatItSaw ? 0 : word.load(), {}, false);
    }
  }
  void after() {}
};

TEST(explorer, finds_who_sleeps_for_ever) {
  expect_holds<sleep_on_a_word<true>>();
  expect_found<sleep_on_a_word<false>>(model::lost_wake_up);
}

// A sleep that ends early is one more order, not a cure: the sleep after it is lost as well.
template <int Sleeps>
struct sleep_again {
  static constexpr int threads = 1;
  Atomic<std::uint32_t> word{0};
  void thread(int) {
    for (int i = 0; i < Sleeps; ++i) model::Futex::wait(word, 0, {}, false);
  }
  void after() {}
};

TEST(explorer, lets_sleeps_end_early_as_often_as_it_is_told) {
  expect_found<sleep_again<1>>(model::lost_wake_up);
  expect_holds<sleep_again<1>>({.early_returns = 1});
  expect_holds<sleep_again<2>>({.early_returns = 2});
  expect_found<sleep_again<2>>(model::lost_wake_up, {.early_returns = 1});
}

struct each_waits_for_the_other {
  static constexpr int threads = 2;
  Atomic<int> flag[2];
  void thread(int t) {
    model::spin_until([&] { return flag[1 - t].load() == 1; });
    flag[t].store(1);
  }
  void after() {}
};
struct in_turns {
  static constexpr int threads = 3;
  Atomic<int> turn{0};
  void thread(int t) {
    for (int round = 0; round < 2; ++round) {
      model::spin_until([&] { return turn.load(acquire) == 3 * round + t; });
      turn.store(3 * round + t + 1, release);
    }
  }
  void after() { require(turn.load() == 6, "not all had their turns"); }
};

TEST(explorer, ends_loops_that_only_look) {
  expect_found<each_waits_for_the_other>(model::lost_wake_up);
  expect_holds<in_turns>();
}

// Two threads of n steps each on a word of their own: (n + 1) squared states, however many orders.
struct apart {
  static constexpr int threads = 2;
  Atomic<int> own[2];
  void thread(int t) {
    for (int i = 1; i <= 9; ++i) own[t].store(i);
  }
  void after() {}
};

TEST(explorer, visits_each_state_once) {
  const model::report r = model::explore<apart>();
  EXPECT_FALSE(r.failed);
  EXPECT_EQ(r.states, 100U);
  EXPECT_TRUE(model::explore<apart>({.most_states = 99}).failed);
}

// States that were met before are left out: it must make no difference.
template <class Scenario>
void expect_the_same_of_all_orders() {
  Scenario::seen().clear();
  const model::report some = model::explore<Scenario>();
  const outcomes found = std::exchange(Scenario::seen(), {});
  const model::report all = model::explore<Scenario>({.all_orders = true});
  EXPECT_FALSE(some.failed || all.failed);
  EXPECT_LT(some.runs, all.runs);
  EXPECT_EQ(found, Scenario::seen());
}

// Each writes, claims, rings what may be slept on, and looks.
struct a_bit_of_everything {
  static constexpr int threads = 2;
  static outcomes& seen() {
    static outcomes all;
    return all;
  }
  Atomic<int> flag[2];
  Atomic<int> claimed{0};
  Atomic<std::uint32_t> word{0};
  int saw[2]{};
  void thread(int t) {
    flag[t].store(1, t == 0 ? relaxed : release);
    saw[t] = claimed.fetch_add(1, relaxed);
    if (saw[t] == 0) model::Futex::wait(word, 0, {}, false);
    else word.store(1);
    if (saw[t] != 0) model::Futex::wake(word, false);
    saw[t] += 10 * flag[1 - t].load(acquire);
  }
  void after() { seen().emplace(saw[0], saw[1]); }
};

// Thread 1 spins until it has seen both, in whichever order they come.
struct spins_for_two {
  static constexpr int threads = 2;
  static outcomes& seen() {
    static outcomes all;
    return all;
  }
  Atomic<int> first{0};
  Atomic<int> second{0};
  int last = 0;
  void thread(int t) {
    if (t == 0) {
      first.store(1, relaxed);
      second.store(1, relaxed);
      first.store(2, seq_cst);
    } else {
      model::spin_until([&] {
        last = 10 * second.load() + first.load();
        return last > 10;
      });
    }
  }
  void after() { seen().emplace(last, 0); }
};

TEST(explorer, misses_nothing_by_what_it_leaves_out) {
  expect_the_same_of_all_orders<store_buffering<release>>();
  expect_the_same_of_all_orders<two_stores<relaxed, relaxed>>();
  expect_the_same_of_all_orders<a_bit_of_everything>();
  expect_the_same_of_all_orders<spins_for_two>();
  EXPECT_FALSE(model::explore<no_lost_update>({.all_orders = true}).failed);
  EXPECT_TRUE(model::explore<lost_update>({.all_orders = true}).failed);
}

TEST(explorer, prints_the_schedule_and_finds_the_same_one_again) {
  const model::report r = model::explore<message_passing<relaxed, acquire>>();
  EXPECT_NE(r.schedule.find("thread 0 writes data.0 = 42\n"), std::string::npos) << r.schedule;
  EXPECT_NE(r.schedule.find("thread 1 loads flag.0 = 1\n"), std::string::npos) << r.schedule;
  EXPECT_EQ((model::explore<message_passing<relaxed, acquire>>().schedule), r.schedule);
}

}  // namespace
