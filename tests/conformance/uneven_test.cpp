// Shares that differ by rank, with zeros: gather, scatter, all_gather, reduce_scatter, all_to_all.
#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using rankcast::dtype;
using support::run_ranks;
using support::same;
using support::tensor_of;
using support::oracle::by_rank;
using support::oracle::counts;
using support::oracle::index;

std::int64_t total(const counts& c) {
  std::int64_t n = 0;
  for (const auto i : c) n += i;
  return n;
}

// Ways to cut: a zero first, in the middle and last; all at one rank; nothing at all; large shares.
std::vector<counts> cuts(int ranks) {
  std::vector<counts> all;
  const auto n = index(ranks);
  for (std::size_t zero = 0; zero < n; ++zero) {
    counts c;
    for (std::size_t r = 0; r < n; ++r) {
      c.push_back(r == zero ? 0 : static_cast<std::int64_t>(3 * r + 1));
    }
    all.push_back(c);
    counts one(n, 0);
    one[zero] = 200;  // above the eager limit
    all.push_back(one);
  }
  all.push_back(counts(n, 0));
  counts growing;
  for (std::size_t r = 0; r < n; ++r) growing.push_back(static_cast<std::int64_t>(40 * r + 63));
  all.push_back(growing);
  return all;
}

by_rank<std::int64_t> values_by(const counts& c) {
  by_rank<std::int64_t> in;
  for (std::size_t r = 0; r < c.size(); ++r) {
    in.push_back(support::pattern_values(static_cast<int>(r), c[r]));
  }
  return in;
}

template <class F>
void matrix(F&& f) {
  for (const int ranks : support::rank_counts()) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      for (const counts& c : cuts(ranks)) {
        for (const int root : support::roots(ranks)) {
          for (const dtype type : {dtype::int16, dtype::float32}) f(world, c, root, type);
        }
      }
    });
  }
}

TEST(uneven, gather_and_scatter) {
  matrix([](auto& world, const counts& c, int root, dtype type) {
    const auto me = index(world.rank());
    const auto in = values_by(c);
    const auto mine = tensor_of(type, in[me]);
    support::step("gather");
    if (world.rank() == root) {
      auto got = support::room(type, total(c));
      rankcast::gather(world, mine, got, {.root = root, .counts = c});
      EXPECT_TRUE(same(got, support::oracle::gather(in)));
      // The same in place.
      auto joined = support::room(type, total(c));
      auto own = joined.view().slice(0, rankcast::block_of(c, 0, root, world.size()).first, c[me]);
      support::write_values(own, in[me]);
      rankcast::gather(world, own, joined, {.root = root, .counts = c});
      EXPECT_TRUE(same(joined, support::oracle::gather(in)));
      auto share = support::room(type, c[me]);
      rankcast::scatter(world, joined, share, {.root = root, .counts = c});
      EXPECT_TRUE(same(share, in[me]));
    } else {
      rankcast::gather(world, mine, rankcast::nothing, {.root = root});
      rankcast::gather(world, mine, rankcast::nothing, {.root = root});
      auto share = support::room(type, c[me]);
      rankcast::scatter(world, rankcast::nothing, share, {.root = root});
      EXPECT_TRUE(same(share, in[me]));
    }
  });
}

TEST(uneven, all_gather) {
  matrix([](auto& world, const counts& c, int root, dtype type) {
    if (root != 0) return;
    support::step("all_gather");
    const auto me = index(world.rank());
    const auto in = values_by(c);
    auto got = support::room(type, total(c));
    rankcast::all_gather(world, tensor_of(type, in[me]), got, {.counts = c});
    EXPECT_TRUE(same(got, support::oracle::gather(in)));
    auto joined = support::room(type, total(c));
    auto own =
        joined.view().slice(0, rankcast::block_of(c, 0, world.rank(), world.size()).first, c[me]);
    support::write_values(own, in[me]);
    rankcast::all_gather(world, own, joined, {.counts = c});
    EXPECT_TRUE(same(joined, support::oracle::gather(in)));
  });
}

TEST(uneven, reduce_scatter) {
  matrix([](auto& world, const counts& c, int root, dtype type) {
    if (root != 0) return;
    support::step("reduce_scatter");
    const auto me = index(world.rank());
    const auto in = support::pattern_by_rank(world.size(), total(c));
    const auto wanted = support::oracle::reduce_scatter(in, c, rankcast::sum)[me];
    auto got = support::room(type, c[me]);
    rankcast::reduce_scatter(world, tensor_of(type, in[me]), got, rankcast::sum, {.counts = c});
    EXPECT_TRUE(same(got, wanted));
    // Into its own share of what it sends.
    auto source = tensor_of(type, in[me]);
    auto own =
        source.view().slice(0, rankcast::block_of(c, 0, world.rank(), world.size()).first, c[me]);
    rankcast::reduce_scatter(world, source, own, rankcast::sum, {.counts = c});
    auto copy = support::room(type, c[me]);
    if (copy.bytes() != 0) std::memcpy(copy.view().address(), own.address(), own.bytes());
    EXPECT_TRUE(same(copy, wanted));
  });
}

TEST(uneven, all_to_all) {
  for (const int ranks : support::rank_counts()) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      const auto n = index(ranks);
      const auto me = index(world.rank());
      for (std::int64_t scale : {0, 1, 2, 50}) {
        support::step("all_to_all");
        // Some pairs exchange nothing; one rank may send nothing at all.
        std::vector<counts> shares(n, counts(n));
        for (std::size_t s = 0; s < n; ++s) {
          for (std::size_t r = 0; r < n; ++r) {
            shares[s][r] = s == 1 ? 0 : static_cast<std::int64_t>((s + 2 * r) % 4) * scale;
          }
        }
        by_rank<std::int64_t> in;
        counts receive;
        for (std::size_t s = 0; s < n; ++s) {
          in.push_back(support::pattern_values(static_cast<int>(s), total(shares[s])));
          receive.push_back(shares[s][me]);
        }
        auto got = support::room(dtype::int32, total(receive));
        rankcast::all_to_all(world, tensor_of(dtype::int32, in[me]), got,
                             {.send_counts = shares[me], .receive_counts = receive});
        EXPECT_TRUE(same(got, support::oracle::all_to_all(in, shares)[me]));
        // In place: a symmetric table, so that both totals agree.
        for (std::size_t s = 0; s < n; ++s) {
          for (std::size_t r = 0; r < n; ++r) {
            shares[s][r] = static_cast<std::int64_t>((s + r) % 3) * scale;
          }
          in[s] = support::pattern_values(static_cast<int>(s), total(shares[s]));
        }
        auto both = tensor_of(dtype::int32, in[me]);
        rankcast::all_to_all(world, both, both,
                             {.send_counts = shares[me], .receive_counts = shares[me]});
        EXPECT_TRUE(same(both, support::oracle::all_to_all(in, shares)[me]));
      }
    });
  }
}

}  // namespace
