// The tree along which broadcasts to many go.
#include "rankcast/transports/frames/route.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace {

using rankcast::frames::tree_parent;

TEST(route, every_rank_is_reached_in_few_steps_from_few_children) {
  for (const int size : {1, 2, 3, 4, 7, 8, 9, 64, 100, 1000}) {
    int depth_limit = 0;
    while ((1 << depth_limit) < size) ++depth_limit;
    for (const int root : {0, size / 2, size - 1}) {
      std::vector<int> children(static_cast<std::size_t>(size));
      for (int rank = 0; rank < size; ++rank) {
        int steps = 0;
        for (int at = rank; at != root; ++steps) {
          at = tree_parent(at, root, size);
          ASSERT_GE(at, 0);
          ASSERT_LT(at, size);
          ASSERT_LE(steps, depth_limit) << "from " << rank << " to " << root << " of " << size;
        }
        EXPECT_LE(steps, depth_limit);
        if (rank == root) EXPECT_EQ(tree_parent(rank, root, size), -1);
        else ++children[static_cast<std::size_t>(tree_parent(rank, root, size))];
      }
      for (const int n : children) EXPECT_LE(n, depth_limit);
    }
  }
}

TEST(route, few_ranks_and_messages_go_straight) {
  rankcast::call_record r;
  r.code = rankcast::opcode::broadcast;
  r.root = 2;
  EXPECT_FALSE(rankcast::frames::along_tree(r, 8, 8));
  EXPECT_TRUE(rankcast::frames::along_tree(r, 9, 8));
  r.message = true;
  EXPECT_FALSE(rankcast::frames::along_tree(r, 9, 8));
  for (int to = 0; to < 9; ++to) {
    for (int from = 0; from < 9; ++from) {
      EXPECT_EQ(rankcast::frames::feeds(r, from, to, 9, 8), from == 2 && to != 2);
    }
  }
}

}  // namespace
