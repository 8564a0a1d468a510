// Objects by every collective that moves them, small and large, on every transport.
#include "object/everything.hpp"
#include "object/round_trip.hpp"
#include "rankcast/object.hpp"
#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using rankcast::communicator;
using rankcast::expect;
using support::everything;
using support::run_ranks;
using support::oracle::index;

// What rank r has: everything, with parts that differ by rank, and bulk data of `bulk` numbers.
everything object_of(int rank, std::size_t bulk) {
  everything e = support::sample_of_everything();
  e.text += " of rank " + std::to_string(rank);
  e.numbers.assign(bulk, static_cast<std::uint16_t>(rank + 1));
  for (std::size_t i = 0; i < bulk; ++i)
    e.numbers[i] = static_cast<std::uint16_t>(e.numbers[i] + i);
  return e;
}

template <class T>
bool same(const T& a, const T& b) {
  return support::encoded(a) == support::encoded(b);
}

// In the message itself; larger than a chunk; out of band (64 KiB), by more than one chunk.
constexpr std::size_t bulks[] = {0, 200, 70'000};

TEST(objects, broadcast) {
  for (const int ranks : support::rank_counts()) {
    run_ranks(ranks, [&](communicator& world) {
      for (const std::size_t bulk : bulks) {
        for (const int root : support::roots(ranks)) {
          support::step("broadcast");
          everything e = object_of(world.rank(), world.rank() % 2 == 0 ? 3 : bulk);
          if (world.rank() == root) e = object_of(root, bulk);
          rankcast::broadcast_object(world, e, {.root = root});
          EXPECT_TRUE(same(e, object_of(root, bulk)));
          support::step("broadcast by value");
          const rankcast::rooted_options options{.root = root};
          const auto v =
              world.rank() == root
                  ? rankcast::broadcast_object(world, std::vector<std::string>(bulk, "x"), options)
                  : rankcast::broadcast_object(world, expect<std::vector<std::string>>, options);
          EXPECT_EQ(v, std::vector<std::string>(bulk, "x"));
        }
      }
    });
  }
}

TEST(objects, scatter_and_gather) {
  for (const int ranks : support::rank_counts()) {
    run_ranks(ranks, [&](communicator& world) {
      for (const std::size_t bulk : bulks) {
        for (const int root : support::roots(ranks)) {
          support::step("scatter");
          std::vector<everything> all;
          if (world.rank() == root) {
            for (int r = 0; r < ranks; ++r) all.push_back(object_of(r, bulk + index(r)));
          }
          const auto mine =
              rankcast::scatter_object(world, all, expect<everything>, {.root = root});
          EXPECT_TRUE(same(mine, object_of(world.rank(), bulk + index(world.rank()))));
          support::step("gather");
          const auto back = rankcast::gather_object(world, mine, {.root = root});
          EXPECT_TRUE(same(back, all));  // empty elsewhere
        }
      }
    });
  }
}

TEST(objects, all_gather) {
  for (const int ranks : support::rank_counts()) {
    run_ranks(ranks, [&](communicator& world) {
      for (const std::size_t bulk : bulks) {
        const auto all = rankcast::all_gather_object(world, object_of(world.rank(), bulk));
        ASSERT_EQ(all.size(), index(ranks));
        for (int r = 0; r < ranks; ++r) EXPECT_TRUE(same(all[index(r)], object_of(r, bulk)));
      }
    });
  }
}

TEST(objects, send_and_receive) {
  for (const int ranks : support::rank_counts()) {
    run_ranks(ranks, [&](communicator& world) {
      const int next = (world.rank() + 1) % ranks;
      const int previous = (world.rank() + ranks - 1) % ranks;
      for (const std::size_t bulk : bulks) {
        const everything mine = object_of(world.rank(), bulk);
        everything got;
        auto receiving = rankcast::start_receive_object(world, got, previous, {.tag = 7});
        rankcast::send_object(world, mine, next, {.tag = 7});
        receiving.wait();
        EXPECT_TRUE(same(got, object_of(previous, bulk)));
      }
    });
  }
}

// Many in flight, of different types, among calls of other kinds.
TEST(objects, started) {
  run_ranks(3, [&](communicator& world) {
    const int me = world.rank();
    std::vector<std::string> words(me == 1 ? 100 : 1, "word" + std::to_string(me));
    std::map<int, double> table;
    if (me == 2) table = {{1, 0.5}, {2, 0.25}};
    std::vector<std::string> gathered;
    std::vector<everything> at_root;
    const std::string mine(100 * index(me), 'm');
    const everything large = object_of(me, 70'000);
    std::vector<rankcast::work> works;
    works.push_back(rankcast::start_broadcast_object(world, words, {.root = 1}));
    works.push_back(rankcast::start_broadcast_object(world, table, {.root = 2}));
    int sum = me;
    works.push_back(rankcast::start_all_reduce(world, sum));
    works.push_back(rankcast::start_all_gather_object(world, mine, gathered));
    works.push_back(rankcast::start_gather_object(world, large, at_root, {.root = 1}));
    while (!works.empty()) {
      works.back().wait();
      works.pop_back();
    }
    EXPECT_EQ(words, std::vector<std::string>(100, "word1"));
    EXPECT_EQ(table, (std::map<int, double>{{1, 0.5}, {2, 0.25}}));
    EXPECT_EQ(sum, 3);
    ASSERT_EQ(gathered.size(), 3u);
    for (int r = 0; r < 3; ++r) EXPECT_EQ(gathered[index(r)].size(), 100 * index(r));
    if (me == 1) {
      for (int r = 0; r < 3; ++r) EXPECT_TRUE(same(at_root[index(r)], object_of(r, 70'000)));
    }
  });
}

TEST(objects, ranks_that_name_different_types) {
  run_ranks(2, [&](communicator& world) {
    const rankcast::rooted_options all{.completion = rankcast::completion::everyone};
    const auto e = support::error_of<rankcast::mismatch_error>([&] {
      std::vector<int> numbers{1};
      std::vector<double> others{1};
      if (world.rank() == 0) rankcast::broadcast_object(world, numbers, all);
      else rankcast::broadcast_object(world, others, all);
    });
    if (e) {
      EXPECT_EQ(e->argument(), "type");
      EXPECT_CONTAINS(e->what(), "double");
    }
  });
}

}  // namespace
