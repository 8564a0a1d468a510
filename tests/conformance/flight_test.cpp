// Calls in flight: many at once, beyond the window, on several groups, waited for in any order.
#include <deque>
#include <random>

#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using rankcast::communicator;
using rankcast::completion;
using rankcast::work;
using support::run_ranks;
using support::oracle::index;

// 200 started calls, far more than the window of 64, small and large by turns, waited for from the
// back, from the front, or at random; with both completions.
TEST(flight, many_broadcasts_with_rotating_roots) {
  for (const int ranks : {1, 2, 4, 7}) {
    for (const auto mode : {completion::local, completion::everyone}) {
      run_ranks(ranks, [&](communicator& world) {
        support::step("200 broadcasts");
        constexpr int count = 200;
        std::deque<std::vector<int>> data;
        std::vector<work> works;
        for (int i = 0; i < count; ++i) {
          data.emplace_back(i % 3 == 0 ? 100 : 2, 1000 * world.rank() + i);
          works.push_back(rankcast::start_broadcast(world, data.back(),
                                                    {.root = i % ranks, .completion = mode}));
        }
        std::mt19937 random(static_cast<unsigned>(world.rank()));
        if (world.rank() == 0) std::reverse(works.begin(), works.end());
        if (world.rank() == 2) std::shuffle(works.begin(), works.end(), random);
        for (auto& w : works) w.wait();
        for (int i = 0; i < count; ++i) {
          EXPECT_EQ(data[index(i)],
                    std::vector<int>(data[index(i)].size(), 1000 * (i % ranks) + i));
        }
      });
    }
  }
}

// The root has left its first call, which this rank still reads, and the call 64 later begins in
// the place of that one: the two are not compared.
TEST(flight, a_reader_is_a_window_behind_its_root) {
  run_ranks(2, [](communicator& world) {
    std::deque<std::vector<int>> data;
    std::vector<work> works;
    for (int i = 0; i < 65; ++i) {
      data.emplace_back(i == 0 ? 5000 : 1, world.rank() * (i + 1));
      works.push_back(rankcast::start_broadcast(world, data.back(), {.root = 1}));
    }
    support::step("one sleeps");
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (auto& w : works) w.wait();
    for (std::size_t i = 0; i < data.size(); ++i) {
      EXPECT_EQ(data[i], std::vector<int>(data[i].size(), static_cast<int>(i) + 1));
    }
  });
}

// Every call has a started form; all of them at once, with blocking calls in between.
TEST(flight, every_started_form) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::size_t n : {std::size_t{3}, std::size_t{101}}) {
      for (const auto mode : {completion::local, completion::everyone}) {
        run_ranks(ranks, [&](communicator& world) {
          support::step("start all");
          const int me = world.rank();
          const int root = ranks - 1;
          const auto all = index(ranks);
          const std::vector<int> mine(n, me + 1);
          std::vector<int> wide(n * all);
          for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = me * 10 + static_cast<int>(i / n);
          std::vector<int> cast(n, me);
          std::vector<int> share(n);
          std::vector<int> gathered(n * all);
          std::vector<int> gathered_by_all(n * all);
          std::vector<int> folded(n);
          std::vector<int> folded_by_all = mine;
          std::vector<int> folded_apart(n);
          std::vector<int> folded_share(n);
          std::vector<int> exchanged(n * all);
          std::vector<work> works;
          works.push_back(rankcast::start_barrier(world, {.completion = mode}));
          works.push_back(
              rankcast::start_broadcast(world, cast, {.root = root, .completion = mode}));
          works.push_back(
              rankcast::start_scatter(world, wide, share, {.root = root, .completion = mode}));
          works.push_back(
              rankcast::start_gather(world, mine, gathered, {.root = root, .completion = mode}));
          int sum = 1;
          rankcast::all_reduce(world, sum);
          EXPECT_EQ(sum, ranks);
          works.push_back(
              rankcast::start_all_gather(world, mine, gathered_by_all, {.completion = mode}));
          works.push_back(rankcast::start_reduce(world, mine, folded, rankcast::sum,
                                                 {.root = root, .completion = mode}));
          works.push_back(rankcast::start_all_reduce(world, folded_by_all, rankcast::sum,
                                                     {.completion = mode}));
          works.push_back(rankcast::start_all_reduce(world, mine, folded_apart, rankcast::sum,
                                                     {.completion = mode}));
          works.push_back(rankcast::start_reduce_scatter(world, wide, folded_share, rankcast::sum,
                                                         {.completion = mode}));
          works.push_back(rankcast::start_all_to_all(world, wide, exchanged, {.completion = mode}));
          if (me % 2 == 0) std::reverse(works.begin(), works.end());
          for (auto& w : works) {
            while (!w.test()) std::this_thread::yield();
            EXPECT_FALSE(w.valid());
          }
          const int total = ranks * (ranks + 1) / 2;
          EXPECT_EQ(cast, std::vector<int>(n, root));
          EXPECT_EQ(share, std::vector<int>(n, root * 10 + me));
          EXPECT_EQ(folded_by_all, std::vector<int>(n, total));
          EXPECT_EQ(folded_apart, std::vector<int>(n, total));
          EXPECT_EQ(folded_share, std::vector<int>(n, 10 * (total - ranks) + ranks * me));
          for (std::size_t i = 0; i < n * all; ++i) {
            EXPECT_EQ(gathered_by_all[i], static_cast<int>(i / n) + 1);
            EXPECT_EQ(gathered[i], me == root ? gathered_by_all[i] : 0);
            EXPECT_EQ(exchanged[i], static_cast<int>(i / n) * 10 + me);
          }
          EXPECT_EQ(folded, std::vector<int>(n, me == root ? total : 0));
        });
      }
    }
  }
}

// What a started call does not borrow: the list of counts and the callable may go at once.
TEST(flight, counts_and_callable_are_copied) {
  run_ranks(3, [](communicator& world) {
    std::vector<int> data(90, 1);
    std::vector<int> share(30);
    std::optional<work> w;
    {
      const std::vector<std::int64_t> counts(3, 30);
      const int offset = world.size() + 2;
      w = rankcast::start_reduce_scatter(world, data, share,
                                         [offset](int a, int b) { return a + b + offset; },
                                         {.counts = std::vector<std::int64_t>(counts)});
    }
    std::vector<std::int64_t> other(64, -1);  // where the list may have been
    w->wait();
    EXPECT_EQ(share, std::vector<int>(30, 13));
    EXPECT_EQ(other.size(), 64u);
  });
}

// Nested groups, waited for in opposite orders: any wait progresses all the thread has started.
TEST(flight, opposite_orders_on_nested_groups) {
  for (const std::size_t n : {std::size_t{2}, std::size_t{500}}) {
    run_ranks(4, [&](communicator& world) {
      const auto pair = world.split(world.rank() / 2);
      const auto cross = world.split(world.rank() % 2);
      for (int round = 0; round < 30; ++round) {
        support::step("opposite");
        std::vector<int> a(n, 1);
        std::vector<int> b(n, 10);
        std::vector<int> c(n, 100);
        std::vector<work> works;
        works.push_back(rankcast::start_all_reduce(world, a));
        works.push_back(rankcast::start_all_reduce(pair, b));
        works.push_back(rankcast::start_all_reduce(cross, c));
        std::rotate(works.begin(), works.begin() + (world.rank() + round) % 3, works.end());
        for (auto& w : works) w.wait();
        EXPECT_EQ(a, std::vector<int>(n, 4));
        EXPECT_EQ(b, std::vector<int>(n, 20));
        EXPECT_EQ(c, std::vector<int>(n, 200));
      }
    });
  }
}

// A blocking call on one group while peers wait for what this rank started on another.
TEST(flight, blocking_calls_progress_started_ones) {
  run_ranks(2, [](communicator& world) {
    const auto twin = world.duplicate();
    for (int round = 0; round < 50; ++round) {
      std::vector<int> a(300, 1);
      std::vector<int> b(300, 2);
      const communicator& first = world.rank() == 0 ? world : twin;
      const communicator& second = world.rank() == 0 ? twin : world;
      auto w = rankcast::start_all_reduce(first, world.rank() == 0 ? a : b);
      rankcast::all_reduce(second, world.rank() == 0 ? b : a);
      w.wait();
      EXPECT_EQ(a, std::vector<int>(300, 2));
      EXPECT_EQ(b, std::vector<int>(300, 4));
    }
  });
}

// Under `local` a root runs ahead of its readers, as far as the window goes.
TEST(flight, a_root_runs_ahead_of_a_sleeping_reader) {
  run_ranks(2, [](communicator& world) {
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(700));
    const auto begin = rankcast::steady_clock::now();
    for (int i = 0; i < 60; ++i) {
      int x = world.rank() == 0 ? i : -1;
      rankcast::broadcast(world, x);
      EXPECT_EQ(x, i);
    }
    if (world.rank() == 0) {
      EXPECT_LT(support::seconds_since(begin), 0.6);
    }
    // With `everyone` it waits.
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto again = rankcast::steady_clock::now();
    int x = 0;
    rankcast::broadcast(world, x, {.completion = completion::everyone});
    if (world.rank() == 0) {
      EXPECT_GT(support::seconds_since(again), 0.03);
    }
  });
}

TEST(flight, work_moves) {
  run_ranks(2, [](communicator& world) {
    std::vector<int> data(100, world.rank());
    work w;
    EXPECT_FALSE(w.valid());
    EXPECT_TRUE(w.test());
    w.wait();
    w = rankcast::start_broadcast(world, data, {.root = 1});
    work other(std::move(w));
    other.wait();
    other.wait();
    EXPECT_EQ(data, std::vector<int>(100, 1));
  });
}

}  // namespace
