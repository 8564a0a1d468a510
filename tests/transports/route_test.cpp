// The ways that broadcasts take.
#include "rankcast/transports/frames/route.hpp"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace {

using rankcast::frames::feeder_of;
using rankcast::frames::places;
using rankcast::frames::tree_parent;

std::vector<int> each_alone(int ranks) {
  std::vector<int> of;
  for (int r = 0; r < ranks; ++r) of.push_back(100 - r);
  return of;
}

// Several layouts: in a row, in turns, uneven, some ranks alone.
const std::vector<std::vector<int>> layouts = {
    {0},
    {5, 5, 5},
    {0, 0, 2, 2},
    {0, 1, 0, 1},
    {7, 3, 3, 7, 1},
    {4, 0, 4, 4, 1, 1, 9, 4},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
    each_alone(1),
    each_alone(8),
    each_alone(21),
};

TEST(route, every_node_of_a_tree_is_reached_in_few_steps_from_few_children) {
  for (const int size : {1, 2, 3, 4, 7, 8, 9, 64, 100, 1000}) {
    int depth_limit = 0;
    while ((1 << depth_limit) < size) ++depth_limit;
    for (const int root : {0, size / 2, size - 1}) {
      std::vector<int> children(static_cast<std::size_t>(size));
      for (int node = 0; node < size; ++node) {
        int steps = 0;
        for (int at = node; at != root; ++steps) {
          at = tree_parent(at, root, size);
          ASSERT_GE(at, 0);
          ASSERT_LT(at, size);
          ASSERT_LE(steps, depth_limit) << "from " << node << " to " << root << " of " << size;
        }
        EXPECT_LE(steps, depth_limit);
        if (node == root) EXPECT_EQ(tree_parent(node, root, size), -1);
        else ++children[static_cast<std::size_t>(tree_parent(node, root, size))];
      }
      for (const int n : children) EXPECT_LE(n, depth_limit);
    }
  }
}

TEST(route, places_are_numbered_by_their_lowest_ranks) {
  const std::vector<int> of{7, 3, 3, 7, 1};
  const places where(of);
  EXPECT_EQ(where.count(), 3);
  const std::vector<int> wanted{0, 1, 1, 0, 2};
  for (int r = 0; r < 5; ++r) EXPECT_EQ(where.of(r), wanted[static_cast<std::size_t>(r)]);
  EXPECT_EQ(where.leader(0), 0);
  EXPECT_EQ(where.leader(1), 1);
  EXPECT_EQ(where.leader(2), 4);
  EXPECT_TRUE(where.has(4));
  EXPECT_FALSE(where.has(5));
  EXPECT_FALSE(where.has(-1));
}

// Who feeds whom is one number per rank, so none is reached twice; here, that all are reached, and
// that only one way leads into each place but the root's.
TEST(route, every_rank_is_reached_and_each_place_entered_once) {
  for (const auto& of : layouts) {
    const places where(of);
    const int ranks = static_cast<int>(of.size());
    for (const int flat_places : {1, 3, 8}) {
      for (int root = 0; root < ranks; ++root) {
        std::vector<int> entries(static_cast<std::size_t>(where.count()));
        for (int rank = 0; rank < ranks; ++rank) {
          int steps = 0;
          for (int at = rank; at != root; ++steps) {
            at = feeder_of(where, at, root, flat_places);
            ASSERT_TRUE(where.has(at)) << "rank " << rank << ", root " << root;
            ASSERT_LE(steps, ranks) << "rank " << rank << ", root " << root;
          }
          const int from = feeder_of(where, rank, root, flat_places);
          if (rank == root) EXPECT_EQ(from, -1);
          else if (where.of(from) != where.of(rank))
            ++entries[static_cast<std::size_t>(where.of(rank))];
        }
        for (int p = 0; p < where.count(); ++p) {
          EXPECT_EQ(entries[static_cast<std::size_t>(p)], p == where.of(root) ? 0 : 1)
              << "place " << p << ", root " << root;
        }
      }
    }
  }
}

TEST(route, the_root_feeds_its_own_place_and_leaders_feed_theirs) {
  const places where(std::vector<int>{0, 0, 2, 2, 0, 2});
  const auto feeders = [&](int root) {
    std::vector<int> from;
    for (int r = 0; r < 6; ++r) from.push_back(feeder_of(where, r, root, 8));
    return from;
  };
  EXPECT_EQ(feeders(0), (std::vector<int>{-1, 0, 0, 2, 0, 2}));
  EXPECT_EQ(feeders(1), (std::vector<int>{1, -1, 1, 2, 1, 2}));
  EXPECT_EQ(feeders(5), (std::vector<int>{5, 0, 5, 5, 0, -1}));
}

// With every rank at a place of its own: straight to few, along a tree to many.
TEST(route, ranks_that_share_nothing) {
  for (const int size : {8, 9}) {
    const places where(each_alone(size));
    for (int root = 0; root < size; ++root) {
      for (int rank = 0; rank < size; ++rank) {
        const int straight = rank == root ? -1 : root;
        EXPECT_EQ(feeder_of(where, rank, root, 8),
                  size <= 8 ? straight : tree_parent(rank, root, size));
      }
    }
  }
}

TEST(route, other_calls_go_straight) {
  const places where(std::vector<int>{0, 0, 1, 1});
  rankcast::call_record r;
  r.root = 0;
  for (int to = 0; to < 4; ++to) {
    for (int from = 0; from < 4; ++from) {
      r.code = rankcast::opcode::scatter;
      EXPECT_EQ(rankcast::frames::feeds(r, from, to, where, 8), from == 0 && to != 0);
      r.code = rankcast::opcode::reduce;
      EXPECT_EQ(rankcast::frames::feeds(r, from, to, where, 8), to == 0 && from != 0);
      r.code = rankcast::opcode::all_gather;
      EXPECT_EQ(rankcast::frames::feeds(r, from, to, where, 8), from != to);
    }
  }
}

// A refused call may name a root that is none.
TEST(route, a_root_that_is_none_feeds_nobody) {
  const places where(std::vector<int>{0, 0, 1, 1});
  rankcast::call_record r;
  r.code = rankcast::opcode::broadcast;
  for (const int root : {-1, 4, 1'000'000}) {
    r.root = root;
    for (int to = 0; to < 4; ++to) {
      for (int from = 0; from < 4; ++from) {
        EXPECT_FALSE(rankcast::frames::feeds(r, from, to, where, 8));
      }
    }
  }
}

}  // namespace
