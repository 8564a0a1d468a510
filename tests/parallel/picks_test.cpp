// Picks from sharded logits, against the unsharded rows in float64.
#include "rankcast/parallel/logits.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "rankcast/transports/local/threads.hpp"
#include "sharded_logits.hpp"

namespace {

using namespace logits_for_tests;
using rankcast::communicator;
using rankcast::sharded_vocabulary;
using rankcast::tensor;

TEST(picks, the_largest_and_of_equal_ones_the_lowest_id) {
  for (const double mean : {0.0, -40.0}) {
    each_layout(5, 700, mean, [](const auto& vocabulary, const auto& mine, const auto& full) {
      const auto ids = rankcast::argmax(vocabulary, mine);
      ASSERT_EQ(ids.size(), 5u);
      for (std::int64_t row = 0; row < 5; ++row) {
        EXPECT_EQ(ids[static_cast<std::size_t>(row)], full.best(row));
      }
    });
  }
  const full_logits equal(2, 40, dtype::float16, -5.0);
  rankcast::run(4, [&](communicator& world) {
    const sharded_vocabulary vocabulary(world, 40);
    const shard_of mine(equal, vocabulary.mine());
    EXPECT_EQ(rankcast::argmax(vocabulary, mine.view), (std::vector<std::int64_t>{0, 0}));
    EXPECT_EQ(rankcast::top_k(vocabulary, mine.view, 12).id[11], 11);
  });
}

TEST(picks, the_k_largest_in_order) {
  for (const std::int64_t k : {1, 7, 300, 5000}) {  // coarse types: many equal logits
    each_layout(3, 700, 0, [&](const auto& vocabulary, const auto& mine, const auto& full) {
      const auto top = rankcast::top_k(vocabulary, mine, k);
      const std::int64_t kept = std::min<std::int64_t>(k, 700);
      ASSERT_EQ(top.k, kept);
      for (std::int64_t row = 0; row < 3; ++row) {
        const auto order = full.order(row);
        for (std::int64_t j = 0; j < kept; ++j) {
          const auto at = static_cast<std::size_t>(row * kept + j);
          ASSERT_EQ(top.id[at], order[static_cast<std::size_t>(j)]);
          ASSERT_EQ(static_cast<double>(top.logit[at]), full.at(row, top.id[at]));
        }
      }
    });
  }
}

TEST(picks, that_cannot_be_are_refused_everywhere) {
  const auto filled = [](const sharded_vocabulary& v, float value) {
    tensor t(dtype::float32, {2, v.mine().width()});
    for (float& x : t.values<float>()) x = value;
    return t;
  };
  expect_refused<rankcast::usage_error>(
      3, 9, {"argmax", "row 0", "-infinity"}, [&](const sharded_vocabulary& v) {
        (void)rankcast::argmax(v, filled(v, -std::numeric_limits<float>::infinity()).view());
      });
  expect_refused<rankcast::usage_error>(
      3, 9, {"argmax", "row 1", "NaN", "id 4", "rank 1"}, [&](const sharded_vocabulary& v) {
        tensor t = filled(v, 1);
        if (v.comm().rank() == 1) t.at<float>(1, 1) = std::numeric_limits<float>::quiet_NaN();
        (void)rankcast::argmax(v, t.view());
      });
  expect_refused<rankcast::usage_error>(
      3, 9, {"top_k", "row 1", "NaN", "id 4", "rank 1"}, [&](const sharded_vocabulary& v) {
        tensor t = filled(v, 1);
        if (v.comm().rank() == 1) t.at<float>(1, 1) = std::numeric_limits<float>::quiet_NaN();
        (void)rankcast::top_k(v, t.view(), 2);
      });
  expect_refused<rankcast::usage_error>(3, 9, {"k is 0"}, [&](const sharded_vocabulary& v) {
    (void)rankcast::top_k(v, filled(v, 1).view(), 0);
  });
  expect_refused<rankcast::mismatch_error>(3, 9, {"rank 2", "call"},
                                           [&](const sharded_vocabulary& v) {
                                             if (v.comm().rank() == 2)
                                               (void)rankcast::top_k(v, filled(v, 1).view(), 1);
                                             else (void)rankcast::argmax(v, filled(v, 1).view());
                                           });
}

}  // namespace
