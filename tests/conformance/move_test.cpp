// Collectives that only move data, on every dtype: ranks x sizes x roots against the oracle.
#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using support::pattern_by_rank;
using support::run_ranks;
using support::same;
using support::tensor_of;
using support::oracle::counts;

std::string where(const char* call, const rankcast::communicator& c, rankcast::dtype type,
                  std::int64_t size, int root) {
  return std::string(call) + " of " + std::to_string(size) + " " +
         std::string(rankcast::name(type)) + ", root " + std::to_string(root) + ", rank " +
         std::to_string(c.rank()) + " of " + std::to_string(c.size());
}

// Calls f(world, type, size, root) on every rank for the whole matrix.
template <class F>
void matrix(F&& f) {
  for (const int ranks : support::rank_counts()) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      for (const rankcast::dtype type : support::all_dtypes()) {
        for (const std::int64_t size : support::sizes(rankcast::size_of(type))) {
          for (const int root : support::roots(ranks)) f(world, type, size, root);
        }
      }
    });
  }
}

// Without a root.
template <class F>
void rootless_matrix(F&& f) {
  for (const int ranks : support::rank_counts()) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      for (const rankcast::dtype type : support::all_dtypes()) {
        for (const std::int64_t size : support::sizes(rankcast::size_of(type))) {
          f(world, type, size);
        }
      }
    });
  }
}

TEST(moves, broadcast) {
  matrix([](auto& world, rankcast::dtype type, std::int64_t size, int root) {
    support::step("broadcast");
    const auto in = pattern_by_rank(world.size(), size, root);
    const auto me = support::oracle::index(world.rank());
    auto t = tensor_of(type, in[me]);
    rankcast::broadcast(world, t, {.root = root});
    EXPECT_TRUE(same(t, support::oracle::broadcast(in, root)[me]))
        << where("broadcast", world, type, size, root);
  });
}

TEST(moves, scatter) {
  matrix([](auto& world, rankcast::dtype type, std::int64_t size, int root) {
    support::step("scatter");
    const int n = world.size();
    const auto all = support::pattern_values(root, size * n, root);
    const auto wanted = support::oracle::scatter(all, counts(support::oracle::index(n), size));
    auto got = support::room(type, size);
    if (world.rank() == root) {
      rankcast::scatter(world, tensor_of(type, all), got, {.root = root});
    } else {
      rankcast::scatter(world, rankcast::nothing, got, {.root = root});
    }
    EXPECT_TRUE(same(got, wanted[support::oracle::index(world.rank())]))
        << where("scatter", world, type, size, root);
  });
}

TEST(moves, gather) {
  matrix([](auto& world, rankcast::dtype type, std::int64_t size, int root) {
    support::step("gather");
    const auto in = pattern_by_rank(world.size(), size, root);
    const auto mine = tensor_of(type, in[support::oracle::index(world.rank())]);
    if (world.rank() != root) {
      rankcast::gather(world, mine, rankcast::nothing, {.root = root});
      return;
    }
    auto got = support::room(type, size * world.size());
    rankcast::gather(world, mine, got, {.root = root});
    EXPECT_TRUE(same(got, support::oracle::gather(in))) << where("gather", world, type, size, root);
  });
}

TEST(moves, all_gather) {
  rootless_matrix([](auto& world, rankcast::dtype type, std::int64_t size) {
    support::step("all_gather");
    const auto in = pattern_by_rank(world.size(), size);
    const auto mine = tensor_of(type, in[support::oracle::index(world.rank())]);
    auto got = support::room(type, size * world.size());
    rankcast::all_gather(world, mine, got);
    EXPECT_TRUE(same(got, support::oracle::gather(in)))
        << where("all_gather", world, type, size, -1);
  });
}

TEST(moves, all_to_all) {
  rootless_matrix([](auto& world, rankcast::dtype type, std::int64_t size) {
    support::step("all_to_all");
    const auto n = support::oracle::index(world.size());
    const auto me = support::oracle::index(world.rank());
    const auto in = pattern_by_rank(world.size(), size * world.size());
    const auto wanted =
        support::oracle::all_to_all(in, std::vector<counts>(n, counts(n, size)))[me];
    auto got = support::room(type, size * world.size());
    rankcast::all_to_all(world, tensor_of(type, in[me]), got);
    EXPECT_TRUE(same(got, wanted)) << where("all_to_all", world, type, size, -1);
    auto in_place = tensor_of(type, in[me]);
    rankcast::all_to_all(world, in_place, in_place);
    EXPECT_TRUE(same(in_place, wanted)) << where("all_to_all in place", world, type, size, -1);
  });
}

TEST(moves, in_place_forms) {
  matrix([](auto& world, rankcast::dtype type, std::int64_t size, int root) {
    if (type != rankcast::dtype::int32 && type != rankcast::dtype::bytes) return;
    const int n = world.size();
    const auto me = support::oracle::index(world.rank());
    const auto in = pattern_by_rank(n, size, root);

    support::step("gather in place");
    auto got = support::room(type, size * n);
    auto own = got.view().slice(0, size * world.rank(), size);
    support::write_values(own, in[me]);
    if (world.rank() == root) {
      rankcast::gather(world, own, got, {.root = root});
      EXPECT_TRUE(same(got, support::oracle::gather(in)))
          << where("gather", world, type, size, root);
    } else {
      rankcast::gather(world, own, rankcast::nothing, {.root = root});
    }

    support::step("all_gather in place");
    rankcast::all_gather(world, own, got);
    EXPECT_TRUE(same(got, support::oracle::gather(in)))
        << where("all_gather", world, type, size, -1);

    support::step("scatter in place");
    const auto all = support::pattern_values(root, size * n, root + 1);
    auto source = tensor_of(type, all);
    auto share = source.view().slice(0, size * world.rank(), size);
    if (world.rank() == root) {
      rankcast::scatter(world, source, share, {.root = root});
      EXPECT_TRUE(same(source, all)) << where("scatter", world, type, size, root);
    } else {
      auto room = support::room(type, size);
      rankcast::scatter(world, rankcast::nothing, room, {.root = root});
      const auto cut = support::oracle::scatter(all, counts(support::oracle::index(n), size));
      EXPECT_TRUE(same(room, cut[me])) << where("scatter", world, type, size, root);
    }
  });
}

// What a barrier means: nobody leaves it before everybody has entered. The steady clock is one for
// all processes of a machine.
TEST(moves, barrier) {
  for (const int ranks : support::rank_counts()) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      support::step("barrier");
      for (int round = 0; round < 50; ++round) {
        const auto now = [] { return rankcast::steady_clock::now().time_since_epoch().count(); };
        const std::int64_t entered = now();
        rankcast::barrier(world);
        const std::int64_t left = now();
        std::vector<std::int64_t> all(static_cast<std::size_t>(ranks));
        rankcast::all_gather(world, entered, all);
        for (const std::int64_t other : all) EXPECT_GE(left, other);
      }
    });
  }
}

// The sizes a user gets: the default limits, data beyond them.
TEST(moves, default_limits) {
  const rankcast::local::settings defaults;
  for (const std::size_t bytes : {defaults.eager_bytes, defaults.eager_bytes + 1,
                                  defaults.chunk_bytes - 1, defaults.chunk_bytes * 2 + 1}) {
    run_ranks(3,
              [&](rankcast::communicator& world) {
                const auto n = static_cast<std::int64_t>(bytes);
                const auto in = pattern_by_rank(3, n);
                const auto me = support::oracle::index(world.rank());
                auto t = tensor_of(rankcast::dtype::uint8, in[me]);
                auto all = support::room(rankcast::dtype::uint8, 3 * n);
                rankcast::all_gather(world, t, all);
                EXPECT_TRUE(same(all, support::oracle::gather(in)));
                rankcast::broadcast(world, t, {.root = 1});
                EXPECT_TRUE(same(t, in[1]));
              },
              {.eager_bytes = defaults.eager_bytes, .chunk_bytes = defaults.chunk_bytes});
  }
}

}  // namespace
