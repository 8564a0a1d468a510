// No hidden communication: the bytes each rank takes from others, exactly.
#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using rankcast::communicator;
using support::oracle::index;

// Bytes received by this rank, and operations started, while f runs.
template <class F>
std::uint64_t received(const communicator& world, F&& f) {
  const auto before = world.counters();
  f();
  const auto after = world.counters();
  EXPECT_EQ(after.operations, before.operations + 1);
  return after.bytes_received - before.bytes_received;
}

TEST(counters, count_every_byte_received) {
  for (const int ranks : {1, 2, 4}) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{4}, std::size_t{4 * 103}}) {
      support::run_ranks(ranks, [&](communicator& world) {
        const auto others = static_cast<std::uint64_t>(ranks - 1);
        const std::uint64_t bytes = n * sizeof(int);
        const bool root = world.rank() == ranks - 1;
        std::vector<int> a(n);
        std::vector<int> wide(n * index(ranks));
        const int r = ranks - 1;
        EXPECT_EQ(received(world, [&] { rankcast::barrier(world); }), 0u);
        EXPECT_EQ(received(world, [&] { rankcast::broadcast(world, a, {.root = r}); }),
                  root ? 0 : bytes);
        EXPECT_EQ(received(world, [&] { rankcast::scatter(world, wide, a, {.root = r}); }),
                  root ? 0 : bytes);
        EXPECT_EQ(received(world, [&] { rankcast::gather(world, a, wide, {.root = r}); }),
                  root ? others * bytes : 0);
        EXPECT_EQ(received(world, [&] { rankcast::all_gather(world, a, wide); }), others * bytes);
        EXPECT_EQ(received(world, [&] { rankcast::all_to_all(world, wide, wide); }),
                  others * bytes);
        EXPECT_EQ(received(world, [&] { rankcast::reduce_scatter(world, wide, a); }),
                  others * bytes);
        EXPECT_EQ(
            received(world, [&] { rankcast::reduce(world, a, a, rankcast::sum, {.root = r}); }),
            root ? others * bytes : 0);
        // Small: all of everybody. Large: the own slice of all, and the others' slices of the
        // result.
        const std::uint64_t slice = bytes / static_cast<std::uint64_t>(ranks);
        EXPECT_EQ(received(world, [&] { rankcast::all_reduce(world, a); }),
                  bytes <= 256 ? others * bytes : others * slice * 2);
        if (ranks > 1 && world.rank() < 2) {
          EXPECT_EQ(received(world,
                             [&] {
                               if (world.rank() == 0) rankcast::send(world, a, 1);
                               else rankcast::receive(world, a, 0);
                             }),
                    world.rank() == 1 ? bytes : 0);
        }
        rankcast::tensor t(rankcast::dtype::int32, {static_cast<std::int64_t>(n)});
        constexpr std::size_t header = 14;  // of a tensor with one dimension
        EXPECT_EQ(received(world, [&] { rankcast::broadcast_tensor(world, t, {.root = r}); }),
                  root ? 0 : bytes + header);
      });
    }
  }
}

TEST(counters, know_waiting_from_moving) {
  support::run_ranks(2, [](communicator& world) {
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    rankcast::barrier(world);
    if (world.rank() == 0) {
      EXPECT_GT(world.counters().waiting, std::chrono::milliseconds(200));
    }
    EXPECT_LT(world.counters().moving, std::chrono::milliseconds(200));
    std::vector<float> large(1'000'000, 1.0f);
    rankcast::all_reduce(world, large);
    EXPECT_GT(world.counters().moving, std::chrono::nanoseconds(0));
    EXPECT_EQ(world.health(), std::vector<rankcast::rank_state>(2, rankcast::rank_state::alive));
    rankcast::barrier(world);
  });
}

}  // namespace
