// Groups, messages and time limits between ranks that are processes, where they differ from
// threads: groups are found through the job's memory, messages go through pipes, processes have
// threads.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <numeric>
#include <thread>
#include <vector>

#include "support/children.hpp"
#include "support/ranks.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using support::contains;
using support::seconds_since;

constexpr auto now = rankcast::steady_clock::now;

class process_groups : public testing::Test {
 protected:
  void SetUp() override {
    if (support::process_has_threads()) {
      GTEST_SKIP() << "this build has a thread of its own in every process";
    }
    alarm(100);
  }
  void TearDown() override { alarm(0); }

  template <class F>
  static void run(int ranks, F&& function, const rankcast::run_options& options = {}) {
    EXPECT_NO_THROW(rankcast::fork_ranks(ranks, function, options));
  }
};

// Every rank holds the group that it should: sums over it of who is in it.
void require_members(const communicator& group) {
  std::int64_t world_ranks = group.members()[static_cast<std::size_t>(group.rank())];
  rankcast::all_reduce(group, world_ranks);
  const auto members = group.members();
  REQUIRE_HERE(world_ranks == std::accumulate(members.begin(), members.end(), std::int64_t{0}));
}

TEST_F(process_groups, many_duplicates_one_after_the_other) {
  run(3, [](communicator& world) {
    std::vector<communicator> kept;
    for (int i = 0; i < 40; ++i) {
      kept.push_back(world.duplicate());
      if (world.rank() == i % 3) std::this_thread::sleep_for(2ms);
      if (i % 4 == 0) require_members(kept.back());
    }
    for (const auto& group : kept) require_members(group);
    for (int i = 0; i < 200; ++i) {  // each is dropped
      const auto group = kept[static_cast<std::size_t>(i % 40)].duplicate();
      require_members(group);
    }
  });
}

// No member takes a group twice, so that another one misses it, whenever it looks.
TEST_F(process_groups, thousands_with_changing_first_ranks) {
  run(3,
      [](communicator& world) {
        for (int i = 0; i < 3'000; ++i) {
          const auto group = i % 2 == 0 ? world.duplicate() : world.split(0, -world.rank());
          std::vector<int> data(i % 5 == 0 ? 50'000 : 100, i);
          rankcast::broadcast(group, data, {.root = 1});
          REQUIRE_HERE(data.back() == i);
        }
      },
      {.default_timeout = 20s});
}

TEST_F(process_groups, of_several_colours_at_once) {
  run(4, [](communicator& world) {
    const int me = world.rank();
    for (int round = 0; round < 30; ++round) {
      const auto half = world.split((me + round) % 2, -me);
      REQUIRE_HERE(half.size() == 2);
      require_members(half);
      const auto alone = world.split(me);
      REQUIRE_HERE(alone.size() == 1);
      require_members(alone);
      const auto some = world.split(me == round % 4 ? std::nullopt : std::optional<int>(7));
      if (some.is_member()) require_members(some);
      const auto below = half.split(half.rank());
      require_members(below);
    }
    require_members(world);
  });
}

// The first rank makes groups ahead of one that finds each of them late.
TEST_F(process_groups, members_that_come_late) {
  run(3, [](communicator& world) {
    const auto pair = world.split(world.rank() == 2 ? 1 : 0);
    for (int i = 0; i < 12; ++i) {
      if (world.rank() == (i % 3)) std::this_thread::sleep_for(15ms);
      const auto group = world.split(0, (world.rank() + i) % 3);
      if (i % 2 == 0) require_members(group);
    }
    require_members(pair);
  });
}

// Groups of different parents are named by numbers that each parent's rank 0 draws for itself: they
// may be the same. A process that is held up between a split and its group finds both there.
TEST_F(process_groups, of_two_parents_with_the_same_number) {
  run(4,
      [](communicator& world) {
        const int me = world.rank();
        std::int64_t process = getpid();
        std::vector<std::int64_t> processes(4);
        rankcast::all_gather(world, process, processes);
        const auto held_up = static_cast<pid_t>(processes[2]);
        for (int ahead = 0; ahead < 12; ++ahead) {
          const std::vector<int> others{3, 1};
          const auto pair = world.subgroup(others);  // its rank 0 is process 3
          // Numbers of process 3 run ahead of those of process 0, at first by two, from then on by
          // one less each time.
          for (int i = 0; me == 0 && ahead > 0 && i < 3; ++i) (void)rankcast::thread_ranks(1);
          rankcast::barrier(world, {.completion = rankcast::completion::everyone});
          if (me == 0) {
            std::this_thread::sleep_for(10ms);
            kill(held_up, SIGSTOP);
          }
          const auto mine = world.split(me == 1 || me == 2 ? 0 : 1);
          if (pair.is_member()) {
            const std::vector<int> turned{1, 0};
            const auto second = pair.subgroup(turned);  // its first rank is process 1, too
            require_members(second);
          }
          if (me == 0) {
            std::this_thread::sleep_for(10ms);
            kill(held_up, SIGCONT);
          }
          require_members(mine);
        }
      },
      {.default_timeout = 20s});
}

// A process that dies between a split and its group leaves a birth that nobody will find. The
// others' groups go on, as many as they like.
TEST_F(process_groups, after_a_process_that_never_found_its_group) {
  const auto begin = now();
  const auto e = support::error_of<rankcast::peer_lost_error>([] {
    rankcast::fork_ranks(3,
                         [](communicator& world) {
                           const int me = world.rank();
                           std::int64_t process = getpid();
                           std::vector<std::int64_t> processes(3);
                           rankcast::all_gather(world, process, processes);
                           const std::vector<int> first_two{0, 1};
                           const auto pair = world.subgroup(first_two);
                           // Rank 2 takes part in the split, and is stopped before the others do.
                           if (me == 0) {
                             std::this_thread::sleep_for(100ms);
                             kill(static_cast<pid_t>(processes[2]), SIGSTOP);
                           }
                           const auto all = world.duplicate();
                           if (me == 0) kill(static_cast<pid_t>(processes[2]), SIGKILL);
                           for (int i = 0; i < 20; ++i) {
                             const auto group = pair.duplicate();
                             require_members(group);
                           }
                         },
                         {.default_timeout = 20s});
  });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->rank(), 2);
  EXPECT_LT(seconds_since(begin), 15);
}

TEST_F(process_groups, messages_of_all_sizes_and_tags) {
  run(3, [](communicator& world) {
    const int n = world.size();
    const int me = world.rank();
    for (const std::size_t size : {0u, 1u, 700u, 3'000u, 9'000u, 40'000u, 700'000u}) {
      for (const int tag : {0, 5, 2'147'483'647}) {
        for (int from = 0; from < n; ++from) {
          const int to = (from + 1) % n;
          std::vector<int> data(size, -1);
          if (me == from) {
            std::iota(data.begin(), data.end(), from);
            rankcast::send(world, data, to, {.tag = tag});
          } else if (me == to) {
            rankcast::receive(world, data, from, {.tag = tag});
            REQUIRE_HERE(size == 0 || (data.front() == from &&
                                       data.back() == from + static_cast<int>(size) - 1));
          }
        }
      }
    }
  });
}

TEST_F(process_groups, messages_to_oneself_and_in_any_order_of_tags) {
  run(2, [](communicator& world) {
    const int me = world.rank();
    const int peer = 1 - me;
    for (const std::size_t size : {std::size_t{5}, std::size_t{100'000}}) {
      std::vector<int> out(size, me + 10);
      std::vector<int> in(size);
      auto sent = rankcast::start_send(world, out, me, {.tag = 3});
      rankcast::receive(world, in, me, {.tag = 3});
      sent.wait();
      REQUIRE_HERE(in == out);

      std::vector<std::vector<int>> mine;
      std::vector<rankcast::work> works;
      for (int t = 0; t < 10; ++t) mine.emplace_back(size, 100 * me + t);
      for (int t = 0; t < 10; ++t) {
        works.push_back(
            rankcast::start_send(world, mine[static_cast<std::size_t>(t)], peer, {.tag = t}));
      }
      for (int t = 9; t >= 0; --t) {
        rankcast::receive(world, in, peer, {.tag = t});
        REQUIRE_HERE(in.front() == 100 * peer + t && in.back() == 100 * peer + t);
      }
      for (auto& w : works) w.wait();
    }
  });
}

// What was sent arrives, also when its sender has left, and a third one before it.
TEST_F(process_groups, messages_of_a_sender_that_has_left) {
  run(3, [](communicator& world) {
    constexpr int messages = 200;  // more than the pipe holds
    std::vector<int> data(500);
    if (world.rank() == 2) return;
    if (world.rank() == 0) {
      std::this_thread::sleep_for(100ms);  // rank 2 has ended
      for (int i = 0; i < messages; ++i) {
        std::fill(data.begin(), data.end(), i);
        rankcast::send(world, data, 1, {.tag = i % 3});
      }
      return;
    }
    std::this_thread::sleep_for(500ms);
    for (int i = 0; i < messages; ++i) {
      rankcast::receive(world, data, 0, {.tag = i % 3});
      REQUIRE_HERE(data.front() == i && data.back() == i);
    }
  });
}

TEST_F(process_groups, a_message_that_nobody_sends) {
  run(3, [](communicator& world) {
    int value = 0;
    if (world.rank() == 0) {
      auto begin = now();
      const auto late = support::caught<rankcast::timeout_error>(
          [&] { rankcast::receive(world, value, 1, {.timeout = 200ms}); });
      REQUIRE_HERE(late.missing() == std::vector<int>{1});
      REQUIRE_HERE(seconds_since(begin) > 0.19 && seconds_since(begin) < 1.5);
      rankcast::receive(world, value, 1);  // the group goes on
      REQUIRE_HERE(value == 5);
      begin = now();
      const auto lost =
          support::caught<rankcast::peer_lost_error>([&] { rankcast::receive(world, value, 2); });
      REQUIRE_HERE(lost.rank() == 2);
      REQUIRE_HERE(seconds_since(begin) < 1.5);
    } else if (world.rank() == 1) {
      std::this_thread::sleep_for(500ms);
      rankcast::send(world, 5, 0);
    }
  });
}

TEST_F(process_groups, a_killed_peer_is_lost_to_a_receiver_at_once) {
  const auto e = support::error_of<rankcast::peer_lost_error>([] {
    rankcast::fork_ranks(2, [](communicator& world) {
      if (world.rank() == 1) {
        std::this_thread::sleep_for(100ms);
        raise(SIGKILL);
      }
      const auto begin = now();
      std::vector<int> data(1'000'000);
      const auto lost =
          support::caught<rankcast::peer_lost_error>([&] { rankcast::receive(world, data, 1); });
      REQUIRE_HERE(lost.rank() == 1);
      REQUIRE_HERE(seconds_since(begin) < 1.5);
      const auto sender = support::caught<rankcast::error>([&] { rankcast::send(world, data, 1); });
      REQUIRE_HERE(seconds_since(begin) < 10);
    });
  });
  ASSERT_TRUE(e);
  EXPECT_CONTAINS(e->what(), "signal 9");
}

TEST_F(process_groups, a_collective_without_a_stopped_rank_times_out) {
  run(3, [](communicator& world) {
    if (world.rank() == 1) {
      std::this_thread::sleep_for(1500ms);
      (void)support::caught<rankcast::revoked_error>([&] { rankcast::barrier(world); });
      return;
    }
    const auto begin = now();
    try {
      rankcast::barrier(world, {.timeout = 300ms});
    } catch (const rankcast::timeout_error& e) {
      REQUIRE_HERE(e.missing() == std::vector<int>{1});
      REQUIRE_HERE(contains(e.what(), "rank 1 has not arrived"));
    } catch (const rankcast::revoked_error& e) {
      REQUIRE_HERE(contains(e.what(), "rank 1 has not arrived"));
    }
    REQUIRE_HERE(seconds_since(begin) > 0.25 && seconds_since(begin) < 1.4);
  });
}

// A group's first rank is held up before it makes the group: the others do not wait for ever.
TEST_F(process_groups, a_group_that_is_not_made_in_time) {
  run(3,
      [](communicator& world) {
        std::int64_t process = getpid();
        std::vector<std::int64_t> processes(3);
        rankcast::all_gather(world, process, processes);
        rankcast::set_library_timeout(1s);
        if (world.rank() == 2) {  // comes last, when rank 0 is stopped in the same split
          std::this_thread::sleep_for(100ms);
          kill(static_cast<pid_t>(processes[0]), SIGSTOP);
          std::this_thread::sleep_for(20ms);
        }
        const auto begin = now();
        if (world.rank() == 0) {
          (void)support::caught<rankcast::error>([&] {
            const auto group = world.duplicate();
            rankcast::barrier(group);
          });
          return;
        }
        (void)support::caught<rankcast::error>([&] { (void)world.duplicate(); });
        REQUIRE_HERE(seconds_since(begin) < 8);
        std::this_thread::sleep_for(world.rank() == 2 ? 500ms : 0ms);
        if (world.rank() == 2) kill(static_cast<pid_t>(processes[0]), SIGCONT);
      },
      {.default_timeout = 10s});
}

TEST_F(process_groups, revoked_by_another_thread_of_a_waiting_process) {
  for (const bool message : {false, true}) {
    run(3, [&](communicator& world) {
      const auto group = world.duplicate();
      std::thread other;
      if (world.rank() == 0) {
        other = std::thread([&] {
          std::this_thread::sleep_for(100ms);
          group.revoke("enough");
        });
      }
      const auto begin = now();
      const auto e = support::caught<rankcast::revoked_error>([&] {
        int value = 0;
        if (message) rankcast::receive(group, value, (world.rank() + 1) % 3);
        else if (world.rank() == 2) rankcast::broadcast(group, value, {.root = 1});
        else rankcast::receive(group, value, 2);
      });
      if (other.joinable()) other.join();
      REQUIRE_HERE(e.by() == 0);
      REQUIRE_HERE(contains(e.what(), "enough"));
      REQUIRE_HERE(seconds_since(begin) < 5);
      rankcast::barrier(world);  // the parent goes on
    });
  }
}

// Two threads of each process, each in a group of its own, with everything at once.
TEST_F(process_groups, of_two_threads_of_every_process) {
  run(3, [](communicator& world) {
    const communicator groups[] = {world.duplicate(), world.duplicate()};
    std::vector<std::string> wrong(2);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        try {
          const communicator& group = groups[t];
          const int n = group.size();
          const int me = group.rank();
          for (int i = 0; i < 60; ++i) {
            int sum = me + static_cast<int>(t);
            rankcast::all_reduce(group, sum);
            REQUIRE_HERE(sum == n * (n - 1) / 2 + n * static_cast<int>(t));
            std::vector<int> data(i % 3 == 0 ? 50'000 : 20, me);
            rankcast::broadcast(group, data, {.root = i % n});
            REQUIRE_HERE(data.back() == i % n);
            const int out = 1000 * static_cast<int>(t) + 10 * i + me;
            auto sent = rankcast::start_send(group, out, (me + 1) % n, {.tag = i});
            int got = 0;
            rankcast::receive(group, got, (me + n - 1) % n, {.tag = i});
            sent.wait();
            REQUIRE_HERE(got == 1000 * static_cast<int>(t) + 10 * i + (me + n - 1) % n);
            std::vector<int> large(30'000, out);
            auto work = rankcast::start_send(group, large, (me + 1) % n, {.tag = 7});
            std::vector<int> there(30'000);
            rankcast::receive(group, there, (me + n - 1) % n, {.tag = 7});
            work.wait();
            REQUIRE_HERE(there.back() == 1000 * static_cast<int>(t) + 10 * i + (me + n - 1) % n);
            const auto group_of_group = group.duplicate();  // groups are found at the same time
            if (i % 20 == 0) require_members(group_of_group);
          }
        } catch (const std::exception& e) {
          wrong[t] = e.what();
          groups[0].revoke(wrong[t]);
          groups[1].revoke(wrong[t]);
        }
      });
    }
    for (auto& t : threads) t.join();
    for (const auto& text : wrong) {
      if (!text.empty()) throw std::runtime_error(text);
    }
  });
}

// Two threads of a process that both wait notice a death at the same time.
TEST_F(process_groups, a_death_that_two_threads_see) {
  for (int i = 0; i < 5; ++i) {
    const auto e = support::error_of<rankcast::peer_lost_error>([] {
      rankcast::fork_ranks(3, [](communicator& world) {
        const communicator groups[] = {world.duplicate(), world.duplicate()};
        const std::size_t descriptors = support::open_descriptors();
        if (world.rank() == 2) {
          std::this_thread::sleep_for(150ms);
          raise(SIGKILL);
        }
        std::atomic<int> lost{0};
        std::vector<std::thread> threads;
        for (const communicator& group : groups) {
          threads.emplace_back([&lost, &group] {
            try {
              rankcast::barrier(group);
            } catch (const rankcast::error& seen) {
              if (contains(seen.what(), "rank 2: its process has ended")) lost.fetch_add(1);
            }
          });
        }
        for (auto& t : threads) t.join();
        REQUIRE_HERE(lost.load() == 2);
        REQUIRE_HERE(support::open_descriptors() <= descriptors + 2);  // one for each peer
      });
    });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->rank(), 2);
  }
}

}  // namespace
