// Four times more ranks than CPUs: all collectives in a mixed sequence, with results that are
// known, within the time that it may take when nobody keeps the others from running.
#include <sched.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "support/children.hpp"
#include "support/ranks.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;

constexpr int ranks = 8;
constexpr std::size_t cpus = 2;

using numbers = std::vector<std::int64_t>;

// What rank r has at position k of call i.
std::int64_t value(int r, std::size_t k, int i) {
  return r * 1'000'003 + static_cast<std::int64_t>(k) * 7 + i;
}
numbers values(int r, std::size_t n, int i) {
  numbers v(n);
  for (std::size_t k = 0; k < n; ++k) v[k] = value(r, k, i);
  return v;
}
std::int64_t sum_of_ranks(int n, std::size_t k, int i) {
  std::int64_t sum = 0;
  for (int r = 0; r < n; ++r) sum += value(r, k, i);
  return sum;
}

void collective(const communicator& world, int i, std::size_t size, int root) {
  const int n = world.size();
  const int me = world.rank();
  const auto count = static_cast<std::size_t>(n);
  const auto at = [&](int r) { return static_cast<std::size_t>(r) * size; };
  switch (i % 10) {
    case 0: {
      numbers data = values(me, size, i);
      rankcast::broadcast(world, data, {.root = root});
      REQUIRE_HERE(data == values(root, size, i));
      break;
    }
    case 1: {
      numbers mine(size);
      rankcast::scatter(world, values(me, count * size, i), mine, {.root = root});
      for (std::size_t k = 0; k < size; ++k) REQUIRE_HERE(mine[k] == value(root, at(me) + k, i));
      break;
    }
    case 2: {
      numbers all(me == root ? count * size : 0);
      rankcast::gather(world, values(me, size, i), all, {.root = root});
      for (int r = 0; r < n && me == root; ++r) {
        for (std::size_t k = 0; k < size; ++k) REQUIRE_HERE(all[at(r) + k] == value(r, k, i));
      }
      break;
    }
    case 3: {
      numbers all(count * size);
      rankcast::all_gather(world, values(me, size, i), all);
      for (int r = 0; r < n; ++r) {
        for (std::size_t k = 0; k < size; ++k) REQUIRE_HERE(all[at(r) + k] == value(r, k, i));
      }
      break;
    }
    case 4: {
      numbers data(size);
      rankcast::reduce(world, values(me, size, i), data, rankcast::sum, {.root = root});
      for (std::size_t k = 0; k < size && me == root; ++k) {
        REQUIRE_HERE(data[k] == sum_of_ranks(n, k, i));
      }
      break;
    }
    case 5: {
      numbers data = values(me, size, i);
      rankcast::all_reduce(world, data);
      for (std::size_t k = 0; k < size; ++k) REQUIRE_HERE(data[k] == sum_of_ranks(n, k, i));
      break;
    }
    case 6: {
      numbers mine(size);
      rankcast::reduce_scatter(world, values(me, count * size, i), mine);
      for (std::size_t k = 0; k < size; ++k) {
        REQUIRE_HERE(mine[k] == sum_of_ranks(n, at(me) + k, i));
      }
      break;
    }
    case 7: {
      numbers in(count * size);
      rankcast::all_to_all(world, values(me, count * size, i), in);
      for (int r = 0; r < n; ++r) {
        for (std::size_t k = 0; k < size; ++k) {
          REQUIRE_HERE(in[at(r) + k] == value(r, at(me) + k, i));
        }
      }
      break;
    }
    case 8: {
      const numbers out = values(me, size, i);
      numbers in(size);
      const int from = (me + n - 1) % n;
      auto sent = rankcast::start_send(world, out, (me + 1) % n, {.tag = i});
      rankcast::receive(world, in, from, {.tag = i});
      sent.wait();
      REQUIRE_HERE(in == values(from, size, i));
      break;
    }
    default: {
      rankcast::barrier(world);
      const auto half = world.split(me % 2, root == 0 ? -me : me);
      numbers data = values(me, size, i);
      rankcast::broadcast(half, data);
      REQUIRE_HERE(data == values(half.members()[0], size, i));
    }
  }
}

class oversubscribed : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t few;
    CPU_ZERO(&few);
    for (std::size_t c = 0, taken = 0; c < CPU_SETSIZE && taken < cpus; ++c) {
      if (!CPU_ISSET(c, &before_)) continue;
      CPU_SET(c, &few);
      ++taken;
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof few, &few), 0);
    alarm(110);
  }
  void TearDown() override {
    alarm(0);
    sched_setaffinity(0, sizeof before_, &before_);
  }

  static void play(communicator& world) {
    std::mt19937_64 random(31);
    const auto below = [&](std::uint64_t n) { return static_cast<std::size_t>(random() % n); };
    for (int i = 0; i < 600; ++i) {
      const std::size_t size = i % 30 < 10 ? below(20) : below(i % 7 == 0 ? 30'000 : 1'000);
      collective(world, i, size, static_cast<int>(below(ranks)));
    }
  }

 private:
  cpu_set_t before_{};
};

TEST_F(oversubscribed, threads) {
  const auto begin = rankcast::steady_clock::now();
  EXPECT_NO_THROW(rankcast::run(ranks, play));
  EXPECT_LT(support::seconds_since(begin), 60);
}

TEST_F(oversubscribed, processes) {
  if (support::process_has_threads()) {
    GTEST_SKIP() << "this build has a thread of its own in every process";
  }
  const auto begin = rankcast::steady_clock::now();
  EXPECT_NO_THROW(rankcast::fork_ranks(ranks, play));
  EXPECT_LT(support::seconds_since(begin), 60);
}

}  // namespace
