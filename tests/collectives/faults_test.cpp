// Ranks that are late, leave, throw or drop their calls: who gets which error, how soon, and with
// which words.
#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using rankcast::completion;
using support::error_of;
using support::run_ranks;

const rankcast::call_options everyone{.completion = completion::everyone};

// Ranks wait here for each other without the library.
class gate {
 public:
  explicit gate(int ranks) : awaited_(ranks) {}
  void pass() {
    awaited_.fetch_sub(1);
    while (awaited_.load() > 0) std::this_thread::sleep_for(1ms);
  }

 private:
  std::atomic<int> awaited_;
};

TEST(faults, a_rank_that_throws_releases_the_others) {
  for (const int thrower : {0, 1, 3}) {
    std::atomic<int> released{0};
    const auto begin = rankcast::steady_clock::now();
    try {
      rankcast::run(4, [&](communicator& world) {
        if (world.rank() == thrower) throw std::domain_error("the first cause");
        try {
          rankcast::barrier(world);
        } catch (const rankcast::error& e) {
          EXPECT_CONTAINS(e.what(), "rank " + std::to_string(thrower) + " threw: the first cause");
          released.fetch_add(1);
          throw;
        }
      });
      ADD_FAILURE() << "run returned";
    } catch (const std::domain_error& e) {
      EXPECT_STREQ(e.what(), "the first cause");
    }
    EXPECT_EQ(released.load(), 3);
    EXPECT_LT(support::seconds_since(begin), 5);
  }
}

TEST(faults, run_passes_on_what_is_no_exception) {
  EXPECT_THROW(rankcast::run(3,
                             [](communicator& world) {
                               if (world.rank() == 2) throw 7;
                               rankcast::barrier(world);
                             }),
               int);
  EXPECT_THROW(rankcast::run(0, [](communicator&) {}), rankcast::usage_error);
}

// Ranks 1 and 3 stay away; 0, 2 and 4 all get the same: a timeout that names both.
TEST(faults, timeouts_name_all_missing_ranks_on_every_waiting_rank) {
  for (const bool large : {false, true}) {
    gate end(5);
    std::mutex mutex;
    std::vector<std::string> texts;
    run_ranks(5, [&](communicator& world) {
      rankcast::barrier(world);
      if (world.rank() % 2 == 0) {
        std::vector<int> data(large ? 1000 : 1);
        const auto begin = rankcast::steady_clock::now();
        const auto e = error_of<rankcast::timeout_error>([&] {
          rankcast::all_reduce(world, data, rankcast::sum,
                               {.timeout = 150ms, .completion = completion::everyone});
        });
        EXPECT_LT(support::seconds_since(begin), 3);
        if (e) {
          EXPECT_EQ(e->missing(), (std::vector<int>{1, 3}));
          EXPECT_GE(e->waited(), 150ms);
          EXPECT_CONTAINS(e->what(), "all_reduce #1 on group 'world'");
          EXPECT_CONTAINS(e->what(), "rank 1 has not arrived, its last call was barrier #0 at ");
          EXPECT_CONTAINS(e->what(), "rank 3 has not arrived");
          EXPECT_CONTAINS(e->what(), "faults_test.cpp:");
          const std::lock_guard lock(mutex);
          texts.emplace_back(e->what());
        }
      }
      end.pass();
      // Who comes late is told why the group ended, in the same words; so is everyone from now on.
      for (int i = 0; i < 2; ++i) {
        const auto later = error_of<rankcast::revoked_error>([&] { rankcast::barrier(world); });
        if (later) {
          const std::lock_guard lock(mutex);
          ASSERT_FALSE(texts.empty());
          if (support::ranks_share_memory()) {
            EXPECT_CONTAINS(later->what(), texts.front());
          }
          EXPECT_EQ(later->by() % 2, 0);
        }
      }
      (void)error_of<rankcast::revoked_error>([&] { world.flush(); });
      (void)error_of<rankcast::revoked_error>([&] { world.close(); });
    });
    ASSERT_EQ(texts.size(), 3u);
    if (!support::ranks_share_memory()) continue;
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_EQ(texts[0], texts[2]);
  }
}

TEST(faults, a_peer_that_leaves_is_lost_at_once) {
  for (const int leaver : {0, 2}) {
    for (int call = 0; call < 5; ++call) {
      run_ranks(3, [&](communicator& world) {
        if (world.rank() == leaver) return;
        std::vector<int> data(3);
        int x = 0;
        const auto begin = rankcast::steady_clock::now();
        const auto e = error_of<rankcast::error>([&] {
          switch (call) {
            case 0: rankcast::barrier(world, everyone); break;
            case 1: rankcast::all_reduce(world, x, rankcast::sum, everyone); break;
            case 2:
              rankcast::all_gather(world, x, data, {.completion = completion::everyone});
              break;
            case 3:
              rankcast::broadcast(world, x, {.root = 1, .completion = completion::everyone});
              break;
            default: (void)world.split(0); break;
          }
        });
        EXPECT_LT(support::seconds_since(begin), 2);
        if (e) {
          EXPECT_CONTAINS(e->what(), "rank " + std::to_string(leaver) + " left");
        }
        // The same words later, as the first cause.
        const auto later = error_of<rankcast::revoked_error>([&] { world.flush(); });
        if (e && later) {
          EXPECT_CONTAINS(later->what(), "rank " + std::to_string(leaver) + " left");
        }
      });
    }
  }
}

TEST(faults, the_lost_peer_has_a_rank) {
  run_ranks(2, [](communicator& world) {
    if (world.rank() == 1) return;
    const auto e = error_of<rankcast::peer_lost_error>([&] { rankcast::barrier(world); });
    if (e) {
      EXPECT_EQ(e->rank(), 1);
    }
  });
}

TEST(faults, a_message_peer_that_leaves_is_lost_but_what_it_sent_is_not) {
  run_ranks(2, [](communicator& world) {
    if (world.rank() == 1) {
      rankcast::send(world, 5, 0);
      return;
    }
    int got = 0;
    std::this_thread::sleep_for(5ms);
    rankcast::receive(world, got, 1);
    EXPECT_EQ(got, 5);
    const auto begin = rankcast::steady_clock::now();
    const auto e = error_of<rankcast::peer_lost_error>([&] { rankcast::receive(world, got, 1); });
    if (e) {
      EXPECT_EQ(e->rank(), 1);
    }
    (void)error_of<rankcast::peer_lost_error>(
        [&] { rankcast::send(world, std::vector<int>(1000), 1); });
    EXPECT_LT(support::seconds_since(begin), 2);
  });
}

TEST(faults, a_root_that_ran_ahead_learns_of_it_later) {
  gate ahead(2);
  gate end(2);
  run_ranks(2, [&](communicator& world) {
    int x = 0;
    if (world.rank() == 0) {
      rankcast::broadcast(world, x);  // local: it returns at once
      ahead.pass();
      end.pass();
      const auto e = error_of<rankcast::revoked_error>([&] {
        do world.flush();  // news may still be on their way
        while (!support::ranks_share_memory());
      });
      if (e) {
        EXPECT_EQ(e->by(), 1);
        EXPECT_CONTAINS(e->what(), "disagree on the root");
      }
    } else {
      ahead.pass();
      const auto e = error_of<rankcast::mismatch_error>(
          [&] { rankcast::broadcast(world, x, {.root = 1, .completion = completion::everyone}); });
      if (e) {
        EXPECT_EQ(e->argument(), "root");
      }
      end.pass();
    }
  });
}

// The last rank comes when the call has been dropped: until then nobody can have completed it.
TEST(faults, dropped_work_revokes_the_group) {
  gate dropped(2);
  run_ranks(3, [&](communicator& world) {
    std::vector<int> data(1000, world.rank());
    if (world.rank() == 1) {
      { auto w = rankcast::start_all_reduce(world, data); }
      dropped.pass();
      (void)error_of<rankcast::revoked_error>([&] { rankcast::barrier(world); });
    } else {
      if (world.rank() == 2) dropped.pass();
      const auto e = error_of<rankcast::revoked_error>([&] { rankcast::all_reduce(world, data); });
      if (e) {
        EXPECT_EQ(e->by(), 1);
        EXPECT_CONTAINS(e->what(), "rank 1 dropped a call");
      }
    }
  });
}

TEST(faults, the_error_of_work_comes_once) {
  run_ranks(2, [](communicator& world) {
    if (world.rank() == 1) {
      world.revoke("no more");
      return;
    }
    int x = 0;
    std::optional<rankcast::work> w;
    try {
      w = rankcast::start_all_reduce(world, x);
    } catch (const rankcast::revoked_error&) {  // the other was faster
      return;
    }
    (void)error_of<rankcast::error>([&] { w->wait(); });
    EXPECT_FALSE(w->valid());
    w->wait();
    EXPECT_TRUE(w->test());
  });
}

TEST(faults, a_timed_out_receive_leaves_the_group_usable) {
  run_ranks(2, [](communicator& world) {
    std::vector<int> got(100, -1);
    if (world.rank() == 0) {
      const auto e = error_of<rankcast::timeout_error>(
          [&] { rankcast::receive(world, got, 1, {.tag = 4, .timeout = 50ms}); });
      if (e) {
        EXPECT_EQ(e->missing(), std::vector<int>{1});
        EXPECT_CONTAINS(e->what(), "rank 0 from rank 1, tag 4");
        EXPECT_CONTAINS(e->what(), "has sent nothing");
      }
      EXPECT_EQ(got, std::vector<int>(100, -1));
      rankcast::barrier(world);
      rankcast::receive(world, got, 1, {.tag = 4});
      EXPECT_EQ(got, std::vector<int>(100, 3));
      { auto dropped = rankcast::start_receive(world, got, 1, {.tag = 9}); }  // withdrawn
    } else {
      rankcast::barrier(world);
      rankcast::send(world, std::vector<int>(100, 3), 0, {.tag = 4});
      const auto e = error_of<rankcast::timeout_error>(
          [&] { rankcast::send(world, std::vector<int>(100, 3), 0, {.tag = 5, .timeout = 50ms}); });
      if (e) {
        EXPECT_CONTAINS(e->what(), "has not received it");
      }
    }
    int sum = 1;
    rankcast::all_reduce(world, sum);
    EXPECT_EQ(sum, 2);
  });
}

// A limit of zero passes when nothing is missing, and only then.
TEST(faults, a_limit_of_zero) {
  run_ranks(2, [](communicator& world) {
    int x = world.rank();
    if (world.rank() == 0) {
      rankcast::broadcast(world, x, {.timeout = 0s});  // local: nobody is waited for
      rankcast::send(world, 1, 1);
    } else {
      int sent = 0;
      rankcast::receive(world, sent, 0);
      rankcast::broadcast(world, x, {.timeout = 0s});  // the root was there before
      EXPECT_EQ(x, 0);
    }
    if (world.rank() == 0) {
      (void)error_of<rankcast::timeout_error>(
          [&] { rankcast::receive(world, x, 1, {.timeout = 0s}); });
    }
    rankcast::barrier(world);
  });
}

// A program gives up: one thread of it revokes what another waits in, with no limit.
TEST(faults, any_thread_may_revoke_what_another_waits_in) {
  for (int i = 0; i < 20; ++i) {
    std::vector<communicator> ranks = rankcast::thread_ranks(2);
    std::string found;
    std::thread waiting([&] {
      std::vector<int> values(100'000, 1);
      try {
        rankcast::all_reduce(ranks[0], values, rankcast::sum, {.timeout = rankcast::no_timeout});
      } catch (const rankcast::revoked_error& e) {
        found = e.what();
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(200 * i));
    ranks[0].revoke("the user closed the window");
    waiting.join();
    EXPECT_CONTAINS(found, "the user closed the window");
    EXPECT_THROW(rankcast::barrier(ranks[1]), rankcast::revoked_error);
  }
}

}  // namespace
