// The rule by which dimensions are cut: shares tile the total, near-even, larger first.
#include "rankcast/core/partition.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace {

using rankcast::partition;
using rankcast::slice;

TEST(partitions, tile_exactly_in_whole_units) {
  for (std::int64_t total = 0; total <= 60; ++total) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (std::int64_t unit = 1; unit <= 7; ++unit) {
        std::int64_t next = 0;
        std::int64_t before = std::numeric_limits<std::int64_t>::max();
        for (int r = 0; r < ranks; ++r) {
          const slice s = partition(total, ranks, r, unit);
          ASSERT_EQ(s.first, next);
          ASSERT_GE(s.count, 0);
          if (s.end() != total) {
            ASSERT_EQ(s.count % unit, 0);
          }
          const std::int64_t units = (s.count + unit - 1) / unit;
          ASSERT_LE(units, before);                             // larger shares first
          ASSERT_GE(units, (total + unit - 1) / unit / ranks);  // near-even
          before = units;
          next = s.end();
        }
        ASSERT_EQ(next, total);
      }
    }
  }
}

TEST(partitions, by_hand) {
  EXPECT_EQ(partition(10, 4, 2), (slice{6, 2}));
  EXPECT_EQ(rankcast::partition_counts(10, 4), (std::vector<std::int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(rankcast::partition_counts(10, 4, 4), (std::vector<std::int64_t>{4, 4, 2, 0}));
  EXPECT_EQ(rankcast::partition_counts(2, 4), (std::vector<std::int64_t>{1, 1, 0, 0}));
}

TEST(partitions, refuse_what_cannot_be) {
  EXPECT_THROW((void)partition(-1, 1, 0), rankcast::usage_error);
  EXPECT_THROW((void)partition(1, 0, 0), rankcast::usage_error);
  EXPECT_THROW((void)partition(1, 2, 2), rankcast::usage_error);
  EXPECT_THROW((void)partition(1, 2, -1), rankcast::usage_error);
  EXPECT_THROW((void)partition(1, 2, 0, 0), rankcast::usage_error);
}

}  // namespace
