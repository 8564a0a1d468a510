// Small data of ranks that are threads are read where they lie when the reader comes at once. A
// sender whose readers are late goes on all the same, and may write over what it has sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <rankcast/rankcast.hpp>
#include <span>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;

constexpr auto late = 200ms;
constexpr std::size_t elements = 1024;  // 4 KiB: more than is copied in any case, less than waits

std::vector<float> values_of(int rank, std::size_t n = elements) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i) + static_cast<float>(rank);
  return values;
}

// `send` on one rank returns before the other one comes to `receive`.
template <class Send, class Receive>
void expect_no_wait(int sender, Send send, Receive receive) {
  rankcast::run(2, [&](communicator& world) {
    for (int turn = 0; turn < 3; ++turn) {
      rankcast::barrier(world);
      if (world.rank() == sender) {
        auto data = values_of(sender, 2 * elements);
        const auto begin = rankcast::steady_clock::now();
        send(world, std::span(data));
        EXPECT_LT(rankcast::steady_clock::now() - begin, late / 2);
        for (float& x : data) x = -1;
      } else {
        std::this_thread::sleep_for(late);
        receive(world);
      }
    }
  });
}

TEST(loans, broadcast_to_a_late_reader) {
  expect_no_wait(
      0,
      [](communicator& world, std::span<float> data) {
        rankcast::broadcast(world, data.first(elements));
      },
      [](communicator& world) {
        std::vector<float> got(elements);
        rankcast::broadcast(world, got);
        EXPECT_EQ(got, values_of(0));
      });
}

TEST(loans, scatter_to_a_late_reader) {
  expect_no_wait(
      0,
      [](communicator& world, std::span<float> data) {
        std::vector<float> own(elements);
        rankcast::scatter(world, data, own);
        EXPECT_EQ(own, values_of(0));
      },
      [](communicator& world) {
        std::vector<float> got(elements);
        rankcast::scatter(world, rankcast::nothing, got);
        EXPECT_EQ(got, values_of(static_cast<int>(elements)));
      });
}

TEST(loans, gather_by_a_late_root) {
  expect_no_wait(
      1,
      [](communicator& world, std::span<float> data) {
        rankcast::gather(world, data.first(elements), rankcast::nothing);
      },
      [](communicator& world) {
        std::vector<float> all(2 * elements);
        rankcast::gather(world, values_of(5), all);
        EXPECT_EQ(std::vector<float>(all.begin() + elements, all.end()), values_of(1));
      });
}

TEST(loans, reduce_by_a_late_root) {
  expect_no_wait(
      1,
      [](communicator& world, std::span<float> data) {
        rankcast::reduce(world, data.first(elements), rankcast::nothing);
      },
      [](communicator& world) {
        std::vector<float> sum(elements);
        rankcast::reduce(world, std::vector<float>(elements, 1), sum);
        EXPECT_EQ(sum, values_of(2));
      });
}

// A started call has its copy at once: nobody may look again for a long time.
TEST(loans, a_started_call_does_not_wait_for_readers) {
  rankcast::run(2, [](communicator& world) {
    if (world.rank() == 0) {
      auto data = values_of(0);
      auto sent = rankcast::start_broadcast(world, data, {.timeout = 0ms});
      EXPECT_TRUE(sent.test());
      for (float& x : data) x = -1;
    } else {
      std::this_thread::sleep_for(late);
      std::vector<float> got(elements);
      rankcast::broadcast(world, got);
      EXPECT_EQ(got, values_of(0));
    }
  });
}

// Recalled while the late reader copies from somebody else: each gets what it should.
TEST(loans, a_reader_that_copies_from_another_rank) {
  rankcast::run(3, [](communicator& world) {
    std::vector<float> large(8'000'000, world.rank() == 2 ? 2.0F : 0.0F);
    auto small = values_of(world.rank() == 0 ? 0 : 9);
    for (int i = 0; i < 3; ++i) {
      rankcast::broadcast(world, large, {.root = 2});
      rankcast::broadcast(world, small, {.root = 0});
      EXPECT_EQ(large[static_cast<std::size_t>(i)], 2.0F);
      EXPECT_EQ(small, values_of(0));
    }
  });
}

// Without checks, too, readers wait for counts that only the root gives.
TEST(loans, counts_without_checks) {
  rankcast::run_options options;
  options.sizes.check = rankcast::local::checks::off;
  rankcast::run(
      2,
      [](communicator& world) {
        for (int i = 0; i < 500; ++i) {
          const std::int64_t first = i % 7;
          const std::vector<std::int64_t> counts{first, 10 - first};
          const auto own = static_cast<std::size_t>(counts[static_cast<std::size_t>(world.rank())]);
          auto all = values_of(i, 10);
          std::vector<float> share(own);
          if (world.rank() == 0) {
            rankcast::scatter(world, all, share, {.counts = counts});
          } else {
            rankcast::scatter(world, rankcast::nothing, share);
          }
          std::vector<float> back(10);
          if (world.rank() == 0) {
            rankcast::gather(world, share, back, {.counts = counts});
            ASSERT_EQ(back, all);
          } else {
            rankcast::gather(world, share, rankcast::nothing);
          }
        }
      },
      options);
}

// So much that copies go past the caches; one rank gives nothing, and has no address for it.
TEST(loans, more_than_the_caches_hold) {
  constexpr std::size_t n = 16 << 20 >> 2;
  rankcast::run(2, [](communicator& world) {
    const std::vector<std::int64_t> counts{n, 0};
    const std::vector<float> given = world.rank() == 0 ? values_of(3, n) : std::vector<float>();
    std::vector<float> all(n);
    rankcast::all_gather(world, given, all, {.counts = counts});
    EXPECT_EQ(all, values_of(3, n));
    std::vector<float> shifted(n + 1);  // at no multiple of anything
    rankcast::all_gather(world, given, std::span(shifted).subspan(1), {.counts = counts});
    EXPECT_TRUE(std::equal(all.begin(), all.end(), shifted.begin() + 1));
  });
}

// Many in flight, started and blocking, of sizes around all limits; readers late now and then.
TEST(loans, many_in_turn) {
  rankcast::run(2, [](communicator& world) {
    for (int i = 0; i < 3'000; ++i) {
      const int root = (i / 3) % 2;
      const std::size_t n = (static_cast<std::size_t>(i) * 37) % 3'200 + 1;
      if (i % 97 == world.rank()) std::this_thread::sleep_for(100us);
      auto data = world.rank() == root ? values_of(i, n) : std::vector<float>(n);
      if (i % 5 == 0) {
        auto other = world.rank() == root ? values_of(i + 1, n) : std::vector<float>(n);
        auto first = rankcast::start_broadcast(world, data, {.root = root});
        auto second = rankcast::start_broadcast(world, other, {.root = root});
        second.wait();
        first.wait();
        ASSERT_EQ(other, values_of(i + 1, n)) << i;
      } else {
        rankcast::broadcast(world, data, {.root = root});
      }
      ASSERT_EQ(data, values_of(i, n)) << i;
    }
  });
}

}  // namespace
