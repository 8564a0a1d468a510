// What may be data besides tensors: ranges, arrays, single values, opaque structs, nothing.
#include <deque>
#include <span>

#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using support::run_ranks;
using support::oracle::index;

struct particle {
  double mass;
  std::int32_t id;
  char name[5];
  friend bool operator==(const particle& a, const particle& b) {
    return a.mass == b.mass && a.id == b.id && std::memcmp(a.name, b.name, 5) == 0;
  }
};

enum class colour : std::uint8_t { red, green };

particle particle_of(int rank, int i) {
  return {rank + i * 0.5, rank * 100 + i, {'p', static_cast<char>('a' + rank), 'x', 'y', 'z'}};
}

TEST(values, ranges_and_single_values) {
  for (const int ranks : {1, 2, 3, 8}) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      const int me = world.rank();
      const int root = ranks - 1;
      double x = me;
      rankcast::broadcast(world, x, {.root = root});
      EXPECT_EQ(x, root);
      std::array<int, 3> a{me, me + 1, me + 2};
      rankcast::broadcast(world, a, {.root = root});
      EXPECT_EQ(a, (std::array<int, 3>{root, root + 1, root + 2}));
      long plain[2] = {me, -me};
      rankcast::broadcast(world, plain, {.root = root});
      EXPECT_EQ(plain[1], -root);
      std::string text = me == root ? "values" : "......";
      rankcast::broadcast(world, text, {.root = root});
      EXPECT_EQ(text, "values");

      std::vector<int> joined(index(ranks));
      rankcast::all_gather(world, me, joined);
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(joined[index(r)], r);
      rankcast::gather(world, me * 2, joined, {.root = 0});
      if (me == 0) {
        EXPECT_EQ(joined.back(), 2 * root);
      }
      int own = -1;
      std::vector<int> shares;
      for (int r = 0; r < ranks; ++r) shares.push_back(10 * r);
      rankcast::scatter(world, shares, own, {.root = 0});
      EXPECT_EQ(own, 10 * me);
      int sum = 0;
      rankcast::all_reduce(world, me, sum);
      EXPECT_EQ(sum, ranks * (ranks - 1) / 2);
      rankcast::reduce_scatter(world, shares, own);
      EXPECT_EQ(own, 10 * me * ranks);
      std::vector<int> window(10, -1);
      rankcast::broadcast(world, std::span(window).subspan(3, 2), {.root = root});
      EXPECT_EQ(window, std::vector<int>(10, -1));
    });
  }
}

TEST(values, opaque_structs) {
  for (const int ranks : {1, 3, 4}) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      const int me = world.rank();
      particle p = particle_of(me, 0);
      rankcast::broadcast(world, p, {.root = ranks - 1});
      EXPECT_EQ(p, particle_of(ranks - 1, 0));
      colour c = me == 0 ? colour::green : colour::red;
      rankcast::broadcast(world, c);
      EXPECT_EQ(c, colour::green);

      // Uneven: counts are in values, not in bytes. Rank 1 gives none.
      std::vector<std::int64_t> counts;
      std::vector<particle> wanted;
      for (int r = 0; r < ranks; ++r) {
        counts.push_back(r == 1 ? 0 : r + 20);
        for (int i = 0; i < counts.back(); ++i) wanted.push_back(particle_of(r, i));
      }
      std::vector<particle> mine;
      for (int i = 0; i < counts[index(me)]; ++i) mine.push_back(particle_of(me, i));
      std::vector<particle> all(wanted.size());
      rankcast::all_gather(world, mine, all, {.counts = counts});
      EXPECT_EQ(all, wanted);
      std::vector<particle> share(mine.size());
      if (me == ranks - 1) {
        rankcast::scatter(world, all, share, {.root = ranks - 1, .counts = counts});
      } else {
        rankcast::scatter(world, rankcast::nothing, share, {.root = ranks - 1});
      }
      EXPECT_EQ(share, mine);
      std::vector<particle> at_root(wanted.size());
      rankcast::gather(world, mine, at_root, {.counts = counts});
      if (me == 0) {
        EXPECT_EQ(at_root, wanted);
      }

      const std::vector<std::int64_t> one_each(index(ranks), 1);
      std::vector<particle> out;
      for (int r = 0; r < ranks; ++r) out.push_back(particle_of(me, r));
      std::vector<particle> in(index(ranks));
      rankcast::all_to_all(world, out, in, {.send_counts = one_each, .receive_counts = one_each});
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(in[index(r)], particle_of(r, me));
      if (ranks > 1 && me < 2) {
        particle q = particle_of(me, 7);
        if (me == 0) rankcast::send(world, q, 1);
        else rankcast::receive(world, q, 0);
        EXPECT_EQ(q, particle_of(0, 7));
      }
    });
  }
}

TEST(values, empty_data_with_and_without_memory) {
  run_ranks(3, [](rankcast::communicator& world) {
    std::vector<float> none;
    std::vector<float> reserved;
    reserved.reserve(8);
    rankcast::broadcast(world, world.rank() == 0 ? none : reserved);
    rankcast::all_gather(world, none, reserved);
    rankcast::all_reduce(world, none);
    rankcast::all_to_all(world, reserved, none);
    rankcast::reduce_scatter(world, none, none);
    rankcast::scatter(world, none, reserved);
    rankcast::gather(world, none, reserved);
    if (world.rank() == 0) rankcast::send(world, none, 1);
    if (world.rank() == 1) rankcast::receive(world, none, 0);
    rankcast::tensor empty(rankcast::dtype::float32, {0, 5});
    rankcast::broadcast(world, empty);
    EXPECT_TRUE(none.empty() && reserved.empty());
  });
}

}  // namespace
