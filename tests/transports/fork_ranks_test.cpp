// Ranks as forks of this process: how they begin, how they end, well or badly, and that nothing of
// them is left.
#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/children.hpp"
#include "support/ranks.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using rankcast::fork_ranks;
using support::error_of;
using support::seconds_since;

constexpr auto now = rankcast::steady_clock::now;

class fork_ranks_of : public testing::Test {
 protected:
  void SetUp() override {
    if (support::process_has_threads()) {
      GTEST_SKIP() << "this build has a thread of its own in every process";
    }
    descriptors_ = support::open_descriptors();
    alarm(100);  // a watchdog would be a thread
  }
  void TearDown() override {
    alarm(0);
    if (IsSkipped()) return;
    EXPECT_FALSE(support::has_children());
    EXPECT_EQ(support::open_descriptors(), descriptors_);
    EXPECT_FALSE(support::has_file("rankcast"));
  }

 private:
  std::size_t descriptors_ = 0;
};

TEST_F(fork_ranks_of, any_number) {
  for (const int n : {1, 2, 3, 4, 7}) {
    int calls = 0;
    fork_ranks(n, [&](communicator& world) {
      ++calls;
      REQUIRE_HERE(world.size() == n);
      int sum = world.rank() + 1;
      rankcast::all_reduce(world, sum);
      REQUIRE_HERE(sum == n * (n + 1) / 2);
      REQUIRE_HERE(support::has_file("memfd:rankcast") && !support::has_file("/dev/shm/"));
      // Larger than a ring, and different on every rank.
      std::vector<int> large(200'000, world.rank());
      rankcast::broadcast(world, large, {.root = n - 1});
      REQUIRE_HERE(large.front() == n - 1 && large.back() == n - 1);
    });
    EXPECT_EQ(calls, 1) << "rank 0 is this process, and the others come back nowhere";
  }
}

TEST_F(fork_ranks_of, rank_0_is_this_process) {
  const pid_t self = getpid();
  std::vector<std::int64_t> all(3);
  fork_ranks(3, [&](communicator& world) {
    const std::int64_t mine = getpid();
    rankcast::all_gather(world, mine, all);
  });
  EXPECT_EQ(all[0], self);
  EXPECT_NE(all[1], self);
  EXPECT_NE(all[2], all[1]);
}

TEST_F(fork_ranks_of, none_is_refused) {
  int calls = 0;
  for (const int n : {0, -1}) {
    const auto e =
        error_of<rankcast::usage_error>([&] { fork_ranks(n, [&](communicator&) { ++calls; }); });
    ASSERT_TRUE(e);
    EXPECT_CONTAINS(e->what(), "fork_ranks: " + std::to_string(n) + " ranks");
  }
  EXPECT_EQ(calls, 0);
}

// The system would rather end processes than refuse, so it must not be asked.
TEST_F(fork_ranks_of, more_than_memory_can_be_had_for) {
  const auto e = error_of<rankcast::transport_error>(
      [] { fork_ranks(8'000, [](communicator&) {}); });  // terabytes
  ASSERT_TRUE(e);
  EXPECT_CONTAINS(e->what(), "bytes are needed");
  EXPECT_CONTAINS(e->what(), "are available");
  EXPECT_CONTAINS(e->what(), "use fewer ranks");
  const auto none = error_of<rankcast::transport_error>(
      [] { fork_ranks(std::numeric_limits<int>::max(), [](communicator&) {}); });
  ASSERT_TRUE(none);
  EXPECT_CONTAINS(none->what(), "too many");
}

TEST_F(fork_ranks_of, a_process_with_threads_is_refused) {
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over.load()) std::this_thread::sleep_for(1ms);
  });
  const auto e =
      error_of<rankcast::usage_error>([&] { fork_ranks(2, [](communicator&) { FAIL(); }); });
  over.store(true);
  other.join();
  ASSERT_TRUE(e);
  EXPECT_CONTAINS(e->what(), "2 threads");
  // Once they have ended it is as any other.
  fork_ranks(2, [](communicator& world) { rankcast::barrier(world); });
}

TEST_F(fork_ranks_of, a_childs_exception_arrives_with_its_rank_and_text) {
  const auto begin = now();
  const auto e = error_of<rankcast::remote_error>([&] {
    fork_ranks(3, [](communicator& world) {
      if (world.rank() == 2) throw std::out_of_range("layer 17 is missing");
      const auto r = support::caught<rankcast::revoked_error>([&] { rankcast::barrier(world); });
      REQUIRE_HERE(support::contains(r.what(), "layer 17 is missing"));
      throw r;  // a consequence, not the cause
    });
  });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->rank(), 2);
  EXPECT_CONTAINS(e->what(), "rank 2 threw: layer 17 is missing");
  EXPECT_LT(seconds_since(begin), 20);
}

TEST_F(fork_ranks_of, a_childs_exception_of_no_known_type) {
  const auto e = error_of<rankcast::remote_error>([&] {
    fork_ranks(2, [](communicator& world) {
      if (world.rank() == 1) throw 42;
    });
  });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->rank(), 1);
}

TEST_F(fork_ranks_of, a_very_long_text_is_cut) {
  const auto e = error_of<rankcast::remote_error>([&] {
    fork_ranks(2, [](communicator& world) {
      if (world.rank() == 1) throw std::runtime_error(std::string(100'000, 'x'));
    });
  });
  ASSERT_TRUE(e);
  EXPECT_CONTAINS(e->what(), "xxx ...");
}

struct own_error : std::runtime_error {
  using std::runtime_error::runtime_error;
  int number = 7;
};

TEST_F(fork_ranks_of, the_own_exception_arrives_as_it_is) {
  const auto e = error_of<own_error>([&] {
    fork_ranks(3, [](communicator& world) {
      if (world.rank() == 0) {
        own_error mine("here");
        mine.number = 8;
        throw mine;
      }
      rankcast::barrier(world);
    });
  });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->number, 8);
  EXPECT_STREQ(e->what(), "here");
}

TEST_F(fork_ranks_of, the_first_cause_wins) {
  const auto e = error_of<rankcast::remote_error>([&] {
    fork_ranks(3, [](communicator& world) {
      if (world.rank() == 1) throw std::runtime_error("the first");
      try {
        rankcast::barrier(world);
      } catch (const rankcast::error&) {
        std::this_thread::sleep_for(20ms);
        throw std::runtime_error("in the wake of it");
      }
    });
  });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->rank(), 1);
  EXPECT_CONTAINS(e->what(), "the first");
}

TEST_F(fork_ranks_of, a_killed_rank_is_lost_and_the_others_are_released) {
  for (const bool in_a_collective : {false, true}) {
    const auto begin = now();
    const auto e = error_of<rankcast::peer_lost_error>([&] {
      fork_ranks(4,
                 [&](communicator& world) {
                   if (world.rank() == 2 && !in_a_collective) raise(SIGKILL);
                   const auto before = now();
                   try {
                     if (in_a_collective) {  // from inside of the call
                       std::vector<int> data(1'000'000);
                       rankcast::all_reduce(world, data, [&](int a, int b) {
                         if (world.rank() == 2) raise(SIGKILL);
                         return a + b;
                       });
                     }
                     rankcast::barrier(world);
                   } catch (const rankcast::peer_lost_error& lost) {
                     REQUIRE_HERE(lost.rank() == 2);
                     REQUIRE_HERE(support::contains(lost.what(), "its process has ended"));
                     REQUIRE_HERE(seconds_since(before) < 10);
                     throw;
                   } catch (const rankcast::revoked_error& revoked) {
                     REQUIRE_HERE(support::contains(revoked.what(), "its process has ended"));
                     REQUIRE_HERE(seconds_since(before) < 10);
                     throw;
                   }
                   throw std::logic_error("a barrier without rank 2");
                 },
                 {.default_timeout = 60s});
    });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->rank(), 2);
    EXPECT_CONTAINS(e->what(), "killed by signal 9");
    EXPECT_LT(seconds_since(begin), 10);
  }
}

TEST_F(fork_ranks_of, a_rank_that_exits_by_itself_is_lost) {
  const auto e = error_of<rankcast::peer_lost_error>([&] {
    fork_ranks(2, [](communicator& world) {
      if (world.rank() == 1) _exit(3);
      rankcast::barrier(world);
    });
  });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->rank(), 1);
  EXPECT_CONTAINS(e->what(), "exit status 3");
}

// Killed while it reads what others have put into shared memory for it, again and again until the
// sender has none of that left: the others still get what they are sent.
TEST_F(fork_ranks_of, what_killed_readers_held_is_missed_by_nobody) {
  struct deadly final : rankcast::message_sink {
    void decode(int, std::span<const std::byte>, rankcast::segment_reader& segments) override {
      std::vector<std::byte> start(static_cast<std::size_t>(segments.sizes()[0]));
      segments.read(start);
      raise(SIGKILL);
    }
  };
  struct two_parts final : rankcast::message_source {
    std::vector<std::byte> start = std::vector<std::byte>(1000);
    std::vector<std::byte> rest = std::vector<std::byte>(4'000'000);
    void encode(int, rankcast::message& out) override { out.segments = {start, rest}; }
  };
  constexpr int victims = 5;
  const auto e = error_of<rankcast::peer_lost_error>([&] {
    fork_ranks(2 + victims, [&](communicator& world) {
      std::vector<communicator> with;  // rank 0 and each victim
      for (int v = 0; v < victims; ++v) {
        const bool inside = world.rank() == 0 || world.rank() == 2 + v;
        with.push_back(world.split(inside ? 0 : 1));
      }
      const communicator pair = world.split(world.rank() < 2 ? 0 : 1);
      rankcast::operation op;
      if (world.rank() >= 2) {
        deadly sink;
        op.code = rankcast::opcode::receive;
        op.root = 0;
        op.sink = &sink;
        with[static_cast<std::size_t>(world.rank() - 2)].run(op, {});
      }
      two_parts source;
      for (int v = 0; v < victims && world.rank() == 0; ++v) {
        op.code = rankcast::opcode::send;
        op.root = 1;
        op.source = &source;
        const auto lost = error_of<rankcast::peer_lost_error>(
            [&] { with[static_cast<std::size_t>(v)].run(op, {}); });
        REQUIRE_HERE(lost.has_value());
      }
      std::vector<int> data(1'000'000);
      for (int round = 0; round < 5; ++round) {
        std::iota(data.begin(), data.end(), world.rank() == 0 ? round : -7);
        if (world.rank() == 0) rankcast::send(pair, data, 1);
        else rankcast::receive(pair, data, 0);
        REQUIRE_HERE(data.front() == round && data.back() == round + 999'999);
      }
    });
  });
  ASSERT_TRUE(e);
  EXPECT_CONTAINS(e->what(), "killed by signal 9");
}

// Killed before it has become a rank: nobody may wait for it until the time limit.
std::atomic<int> forks_until_one_dies{0};
void die_if_due() {
  if (forks_until_one_dies.load() == 1) raise(SIGKILL);
}
void count_fork() {
  if (forks_until_one_dies.load() > 0) forks_until_one_dies.fetch_sub(1);
}

TEST_F(fork_ranks_of, a_rank_that_dies_before_it_has_begun_is_lost_at_once) {
  ASSERT_EQ(pthread_atfork(nullptr, count_fork, die_if_due), 0);
  for (const int victim : {1, 2}) {
    forks_until_one_dies.store(victim);
    const auto begin = now();
    const auto e = error_of<rankcast::peer_lost_error>([&] {
      fork_ranks(3, [](communicator& world) { rankcast::barrier(world); },
                 {.default_timeout = 30s});
    });
    forks_until_one_dies.store(0);
    ASSERT_TRUE(e);
    EXPECT_EQ(e->rank(), victim);
    EXPECT_LT(seconds_since(begin), 10);
  }
}

TEST_F(fork_ranks_of, too_few_processes_to_be_had) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become a user without processes";
  support::child limited([] {
    const uid_t nobody = 65'123;
    REQUIRE_HERE(setresuid(nobody, nobody, nobody) == 0);
    const rlimit most{2, 2};
    REQUIRE_HERE(setrlimit(RLIMIT_NPROC, &most) == 0);
    const auto begin = now();
    const auto e = support::caught<rankcast::transport_error>(
        [] { fork_ranks(4, [](communicator& world) { rankcast::barrier(world); }); });
    REQUIRE_HERE(support::contains(e.what(), "could not be made"));
    REQUIRE_HERE(e.code() == EAGAIN);
    REQUIRE_HERE(seconds_since(begin) < 10);
    REQUIRE_HERE(!support::has_children());
  });
  const auto e = limited.wait();
  EXPECT_EQ(e.kind, "ok") << e.text;
}

TEST_F(fork_ranks_of, a_program_that_does_not_wait_for_its_children) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  fork_ranks(3, [](communicator& world) { rankcast::barrier(world); });
  const auto e = error_of<rankcast::remote_error>([] {
    fork_ranks(2, [](communicator& world) {
      if (world.rank() == 1) throw std::runtime_error("seen all the same");
    });
  });
  signal(SIGCHLD, before);
  ASSERT_TRUE(e);
}

TEST_F(fork_ranks_of, one_after_the_other_and_inside_each_other) {
  for (int i = 0; i < 3; ++i) {
    fork_ranks(2, [&](communicator& outer) {
      for (int k = 0; k < 2; ++k) {
        fork_ranks(3, [&](communicator& inner) {
          int sum = 1;
          rankcast::all_reduce(inner, sum);
          REQUIRE_HERE(sum == 3);
        });
      }
      REQUIRE_HERE(outer.rank() == 0 || !support::has_children());
      int sum = 1;
      rankcast::all_reduce(outer, sum);
      REQUIRE_HERE(sum == 2);
    });
  }
  // What fails inside fails outside, with the ranks on the way.
  const auto e = error_of<rankcast::remote_error>([] {
    fork_ranks(2, [](communicator& outer) {
      if (outer.rank() == 0) return;
      fork_ranks(2, [](communicator& inner) {
        if (inner.rank() == 1) throw std::runtime_error("deep");
      });
    });
  });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->rank(), 1);
  EXPECT_CONTAINS(e->what(), "rank 1 threw: deep");
}

TEST_F(fork_ranks_of, threads_afterwards_and_ranks_as_threads_inside) {
  fork_ranks(2, [](communicator& world) {
    rankcast::run(2, [](communicator& threads) { rankcast::barrier(threads); });
    rankcast::barrier(world);
  });
  rankcast::run(2, [](communicator& threads) { rankcast::barrier(threads); });
  fork_ranks(2, [](communicator& world) { rankcast::barrier(world); });
}

TEST_F(fork_ranks_of, a_rank_that_leaves_early) {
  fork_ranks(3, [](communicator& world) {
    int value = world.rank();
    rankcast::broadcast(world, value, {.root = 2});  // a root does not wait
    if (world.rank() == 2) return;
    REQUIRE_HERE(value == 2);
    std::this_thread::sleep_for(100ms);  // its process is gone by now
    const auto begin = now();
    try {
      rankcast::barrier(world);
      throw std::logic_error("a barrier without rank 2");
    } catch (const rankcast::error& e) {  // of the first to see it, and what the other one hears
      REQUIRE_HERE(support::contains(e.what(), "rank 2 left without taking part"));
    }
    REQUIRE_HERE(seconds_since(begin) < 5);
  });
}

TEST_F(fork_ranks_of, what_a_rank_that_left_has_given_is_there) {
  fork_ranks(3, [](communicator& world) {
    // Small, staged, and through a ring (whose sender stays until it is read).
    for (const std::size_t n : {std::size_t{3}, std::size_t{900}, std::size_t{300'000}}) {
      std::vector<int> data(n, world.rank());
      if (world.rank() == 1) std::this_thread::sleep_for(50ms);
      rankcast::broadcast(world, data, {.root = 2});
      REQUIRE_HERE(data.back() == 2);
    }
    std::vector<int> last(3000, world.rank());
    if (world.rank() == 0) std::this_thread::sleep_for(300ms);  // the root's process has ended
    rankcast::broadcast(world, last, {.root = 2});
    REQUIRE_HERE(last.front() == 2 && last.back() == 2);
  });
}

TEST_F(fork_ranks_of, closed_together) {
  fork_ranks(3, [](communicator& world) {
    world.close();
    (void)support::caught<rankcast::usage_error>([&] { rankcast::barrier(world); });
  });
}

TEST_F(fork_ranks_of, nothing_of_two_hundred_is_left) {
  const auto once = [] {
    fork_ranks(2, [](communicator& world) {
      std::vector<int> data(100'000, world.rank());
      rankcast::broadcast(world, data);  // touches a ring
      const auto half = world.duplicate();
      rankcast::barrier(half);
    });
  };
  once();
  // About 1.5 MB each: 300 MB if they stayed. Others on this machine may take some meanwhile, so it
  // has three tries.
  long long grown = 0;
  for (int i = 0; i < 3; ++i) {
    const auto before = support::kilobytes_line("/proc/meminfo", "Shmem:");
    for (int k = 0; k < 200; ++k) once();
    grown = support::kilobytes_line("/proc/meminfo", "Shmem:") - before;
    if (grown < (100 << 20)) break;
  }
  EXPECT_LT(grown, 100 << 20);
}

}  // namespace
