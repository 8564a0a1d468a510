// Scores from sharded logits, against the unsharded rows in float64.
#include "rankcast/parallel/logits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "rankcast/collectives/barrier.hpp"
#include "rankcast/transports/local/threads.hpp"
#include "sharded_logits.hpp"

namespace {

using namespace logits_for_tests;
using rankcast::communicator;
using rankcast::sharded_vocabulary;
using rankcast::tensor;

TEST(vocabulary, near_even_and_padded_shares) {
  using rankcast::vocabulary_shard;
  EXPECT_EQ(vocabulary_shard::near_even(10, 4, 1),
            (vocabulary_shard{.first = 3, .count = 3, .padding = 0, .vocabulary = 10}));
  EXPECT_EQ(vocabulary_shard::padded_to(8, 5, 4, 2),
            (vocabulary_shard{.first = 4, .count = 1, .padding = 1, .vocabulary = 5}));
  EXPECT_EQ(vocabulary_shard::padded_to(8, 5, 4, 3),
            (vocabulary_shard{.first = 5, .count = 0, .padding = 2, .vocabulary = 5}));
  EXPECT_THROW((void)vocabulary_shard::padded_to(4, 5, 2, 0), rankcast::usage_error);
}

TEST(vocabulary, every_id_has_one_owner) {
  rankcast::run(4, [](communicator& world) {
    const sharded_vocabulary v(world, 10);
    const std::vector<int> owners{0, 0, 0, 1, 1, 1, 2, 2, 3, 3};
    for (std::int64_t i = 0; i < 10; ++i)
      EXPECT_EQ(v.owner(i), owners[static_cast<std::size_t>(i)]);
    EXPECT_THROW((void)v.owner(10), rankcast::usage_error);
    EXPECT_THROW((void)v.owner(-1), rankcast::usage_error);
  });
}

TEST(vocabulary, shares_that_do_not_tile_are_refused_everywhere) {
  using rankcast::vocabulary_shard;
  const auto refused = [](std::vector<vocabulary_shard> shards, const std::string& text) {
    rankcast::run(static_cast<int>(shards.size()), [&](communicator& world) {
      try {
        const sharded_vocabulary v(world, shards[static_cast<std::size_t>(world.rank())]);
        ADD_FAILURE() << text;
      } catch (const rankcast::error& e) {
        EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
      }
      rankcast::barrier(world);
    });
  };
  refused({{0, 3, 0, 6}, {4, 2, 0, 6}}, "rank 1 holds 2 ids from 4 on");
  refused({{0, 3, 0, 6}, {2, 4, 0, 6}}, "rank 1 holds 4 ids from 2 on");
  refused({{3, 3, 0, 6}, {0, 3, 0, 6}}, "rank 0 holds 3 ids from 3 on");
  refused({{0, 3, 0, 6}, {3, 2, 1, 6}}, "they end at 5, the vocabulary has 6");
  refused({{0, 3, 0, 6}, {3, 4, 0, 6}}, "rank 1 holds 4 ids");
  refused({{0, 3, -1, 6}, {3, 3, 0, 6}}, "rank 0 holds 3 ids");
  refused({{0, 3, 0, 6}, {3, 3, 0, 7}}, "rank 1 one of 7");
  refused({{0, 0, 0, 0}, {0, 0, 0, 0}}, "a vocabulary of 0 ids");
}

TEST(exponential, is_that_of_the_library) {
  using rankcast::detail::exp_nonpositive;
  EXPECT_EQ(exp_nonpositive(0.0f), 1.0f);
  EXPECT_EQ(exp_nonpositive(rankcast::detail::minus_infinity), 0.0f);
  EXPECT_EQ(exp_nonpositive(-100.0f), 0.0f);
  for (float x = -86.9f; x < 0.0f; x += 0.00173f) {
    const double right = std::exp(static_cast<double>(x));
    ASSERT_NEAR(static_cast<double>(exp_nonpositive(x)) / right, 1.0, 3e-7) << x;
  }
}

TEST(scores, equal_those_of_the_whole_row) {
  for (const double mean : {0.0, -40.0}) {  // all negative: padding must not win
    each_layout(3, 1301, mean, [](const auto& vocabulary, const auto& mine, const auto& full) {
      const std::vector<std::int64_t> targets{0, full.best(1), 1300};
      const auto s = rankcast::token_log_probabilities(vocabulary, mine, targets);
      for (std::int64_t row = 0; row < 3; ++row) {
        const auto i = static_cast<std::size_t>(row);
        const double right = full.at(row, targets[i]) - full.normalizer(row);
        EXPECT_NEAR(static_cast<double>(s.log_probability[i]), right, 2e-6 * (1 + std::abs(right)));
        EXPECT_NEAR(static_cast<double>(s.log_normalizer[i]), full.normalizer(row), 1e-5);
        EXPECT_EQ(s.best_id[i], full.best(row));
        EXPECT_EQ(s.is_greedy[i], full.best(row) == targets[i] ? 1 : 0);
      }
    });
  }
}

TEST(scores, take_more_rows_than_fit_one_exchange) {
  const auto full = full_logits::random(1500, 11, dtype::float32, 3u);
  rankcast::run(3, [&](communicator& world) {
    const sharded_vocabulary vocabulary(world, 11);
    const shard_of mine(full, vocabulary.mine());
    std::vector<std::int32_t> targets;  // 32-bit ids are as good
    for (int i = 0; i < 1500; ++i) targets.push_back(i % 11);
    const auto s = rankcast::token_log_probabilities(vocabulary, mine.view, targets);
    for (std::int64_t row = 0; row < 1500; ++row) {
      EXPECT_NEAR(static_cast<double>(s.log_probability[static_cast<std::size_t>(row)]),
                  full.at(row, row % 11) - full.normalizer(row), 1e-5);
    }
  });
}

TEST(scores, of_ignored_rows_are_neutral_and_the_rows_are_not_looked_at) {
  auto full = full_logits::random(3, 10, dtype::float32, 5u);
  for (std::int64_t i = 0; i < 10; ++i) full.at(1, i) = std::nan("");
  rankcast::run(2, [&](communicator& world) {
    const sharded_vocabulary vocabulary(world, 10);
    const shard_of mine(full, vocabulary.mine());
    const std::vector<std::int64_t> targets{4, -100, 9};
    const auto s =
        rankcast::token_log_probabilities(vocabulary, mine.view, targets, {.ignored_target = -100});
    EXPECT_EQ(s.log_probability[1], 0.0f);
    EXPECT_EQ(s.best_id[1], -1);
    EXPECT_EQ(s.is_greedy[1], 1);
    EXPECT_NEAR(static_cast<double>(s.log_probability[2]), full.at(2, 9) - full.normalizer(2),
                1e-5);
  });
}

TEST(scores, of_masked_tokens_are_minus_infinity) {
  full_logits full(1, 6, dtype::float32, -infinity);
  full.at(0, 4) = 2;
  full.at(0, 5) = 2;
  rankcast::run(3, [&](communicator& world) {
    const sharded_vocabulary vocabulary(world, 6);
    const shard_of mine(full, vocabulary.mine());
    const std::vector<std::int64_t> masked{0};
    const std::vector<std::int64_t> open{5};
    const auto a = rankcast::token_log_probabilities(vocabulary, mine.view, masked);
    EXPECT_EQ(a.log_probability[0], -std::numeric_limits<float>::infinity());
    EXPECT_EQ(a.best_id[0], 4);
    const auto b = rankcast::token_log_probabilities(vocabulary, mine.view, open);
    EXPECT_NEAR(b.log_probability[0], -0.6931472f, 1e-6f);
    EXPECT_EQ(b.is_greedy[0], 0);  // 4 ties and is lower
  });
}

TEST(scores, of_a_transposed_tensor) {
  const auto full = full_logits::random(4, 9, dtype::bfloat16, 8u);
  rankcast::run(2, [&](communicator& world) {
    const sharded_vocabulary vocabulary(world, 9);
    const rankcast::vocabulary_shard& s = vocabulary.mine();
    tensor columns(dtype::bfloat16, {s.count, 4});
    for (std::int64_t row = 0; row < 4; ++row) {
      for (std::int64_t c = 0; c < s.count; ++c) store(columns, c, row, full.at(row, s.first + c));
    }
    const auto ids = rankcast::argmax(vocabulary, columns.view().transpose(0, 1));
    for (std::int64_t row = 0; row < 4; ++row) {
      EXPECT_EQ(ids[static_cast<std::size_t>(row)], full.best(row));
    }
  });
}

TEST(scores, without_rows_are_empty) {
  rankcast::run(3, [](communicator& world) {
    const sharded_vocabulary vocabulary(world, 10);
    const tensor none(dtype::float32, {0, vocabulary.mine().width()});
    EXPECT_TRUE(rankcast::token_log_probabilities(vocabulary, none, std::vector<std::int64_t>{})
                    .log_probability.empty());
    EXPECT_TRUE(rankcast::argmax(vocabulary, none).empty());
    EXPECT_TRUE(rankcast::top_k(vocabulary, none, 2).id.empty());
    EXPECT_TRUE(rankcast::sample(vocabulary, none, {.top_p = 0.5}).empty());
    tensor out(dtype::float32, {0, 10});
    rankcast::all_gather_logits(vocabulary, none, out);
  });
}

TEST(scores, that_cannot_be_are_refused_everywhere) {
  const auto shard = [](const sharded_vocabulary& v, std::int64_t rows) {
    tensor t(dtype::float32, {rows, v.mine().width()});
    for (float& x : t.values<float>()) x = 1;
    return t;
  };
  expect_refused<rankcast::usage_error>(
      3, 10, {"target 10", "row 1", "vocabulary of 10"}, [&](const sharded_vocabulary& v) {
        (void)rankcast::token_log_probabilities(v, shard(v, 2).view(),
                                                std::vector<std::int64_t>{0, 10});
      });
  expect_refused<rankcast::usage_error>(
      3, 10, {"target -1", "row 0", "vocabulary of 10"}, [&](const sharded_vocabulary& v) {
        (void)rankcast::token_log_probabilities(v, shard(v, 2).view(),
                                                std::vector<std::int64_t>{-1, 4});
      });
  expect_refused<rankcast::usage_error>(
      3, 10, {"row 601", "NaN", "id 9", "rank 2"}, [&](const sharded_vocabulary& v) {
        tensor t = shard(v, 700);
        if (v.comm().rank() == 2) {
          t.at<float>(601, v.mine().count - 1) = std::numeric_limits<float>::quiet_NaN();
          t.at<float>(602, 0) = std::numeric_limits<float>::quiet_NaN();
        }
        (void)rankcast::token_log_probabilities(v, t.view(), std::vector<std::int64_t>(700, 3));
      });
  expect_refused<rankcast::usage_error>(
      2, 10, {"row 0", "+infinity", "id 5"}, [&](const sharded_vocabulary& v) {
        tensor t = shard(v, 1);
        if (v.comm().rank() == 1) t.at<float>(0, 0) = std::numeric_limits<float>::infinity();
        (void)rankcast::token_log_probabilities(v, t.view(), std::vector<std::int64_t>{0});
      });
  expect_refused<rankcast::usage_error>(
      2, 10, {"row 1", "-infinity"}, [&](const sharded_vocabulary& v) {
        tensor t = shard(v, 2);
        for (std::int64_t c = 0; c < 5; ++c)
          t.at<float>(1, c) = -std::numeric_limits<float>::infinity();
        (void)rankcast::token_log_probabilities(v, t.view(), std::vector<std::int64_t>{0, 1});
      });
  expect_refused<rankcast::mismatch_error>(
      3, 10, {"rank 1", "targets"}, [&](const sharded_vocabulary& v) {
        const std::int64_t target = v.comm().rank() == 1 ? 99 : 3;
        (void)rankcast::token_log_probabilities(v, shard(v, 1).view(),
                                                std::vector<std::int64_t>{target});
      });
  // What one rank alone can see to be wrong reaches the others as remote_error.
  expect_refused<rankcast::usage_error>(
      3, 10, {"3 targets given for 2 rows"},
      [&](const sharded_vocabulary& v) {
        const std::vector<std::int64_t> targets(v.comm().rank() == 1 ? 3 : 2, 0);
        (void)rankcast::token_log_probabilities(v, shard(v, 2).view(), targets);
      },
      1);
  expect_refused<rankcast::usage_error>(
      3, 10, {"wanted (rows,4)"},
      [&](const sharded_vocabulary& v) {
        const tensor wide(dtype::float32, {1, v.mine().width() + (v.comm().rank() == 0 ? 1 : 0)});
        std::memset(const_cast<std::byte*>(wide.view().address()), 0, wide.bytes());
        (void)rankcast::argmax(v, wide);
      },
      0);
  expect_refused<rankcast::usage_error>(2, 10, {"float64"}, [&](const sharded_vocabulary& v) {
    const tensor t(dtype::float64, {1, v.mine().width()});
    (void)rankcast::argmax(v, t.view());
  });
}

TEST(scores, cost_the_same_bytes_at_any_vocabulary) {
  const auto received = [](std::int64_t ids) {
    std::uint64_t bytes = 0;
    const full_logits full(64, ids, dtype::bfloat16, 1.0);
    rankcast::run(4, [&](communicator& world) {
      const sharded_vocabulary vocabulary(world, ids);
      const shard_of mine(full, vocabulary.mine());
      const auto before = world.counters();
      (void)rankcast::token_log_probabilities(vocabulary, mine.view,
                                              std::vector<std::int64_t>(64, 3));
      const auto after = world.counters();
      EXPECT_EQ(after.operations - before.operations, 1u);
      if (world.rank() == 1) bytes = after.bytes_received - before.bytes_received;
    });
    return bytes;
  };
  EXPECT_EQ(received(100), received(20000));
  EXPECT_EQ(received(100), 3u * (64u * 16u + 40u));
}

}  // namespace
