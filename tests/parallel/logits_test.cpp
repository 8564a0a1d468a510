// Gather, scores and picks from sharded logits, against the unsharded rows in float64.
#include "rankcast/parallel/logits.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "rankcast/collectives/barrier.hpp"
#include "rankcast/collectives/reduce.hpp"
#include "rankcast/transports/local/threads.hpp"
#include "sharded_logits.hpp"

namespace {

using namespace logits_for_tests;
using rankcast::communicator;
using rankcast::nothing;
using rankcast::sharded_vocabulary;
using rankcast::tensor;

constexpr double infinity = std::numeric_limits<double>::infinity();

// Every number of ranks, cut and type: f(vocabulary, this rank's logits, all logits).
template <class F>
void each_layout(std::int64_t rows, std::int64_t ids, double mean, F&& f) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const cut& c : cuts) {
      for (const dtype type : logit_types) {
        const auto full = full_logits::random(rows, ids, type, 7u, mean);
        rankcast::run(ranks, [&](communicator& world) {
          const sharded_vocabulary vocabulary(world, c(ids, ranks, world.rank()));
          const shard_of mine(full, vocabulary.mine());
          f(vocabulary, mine.view, full);
        });
      }
    }
  }
}

// Calls f(vocabulary, rank) on every rank, wants E with all `texts` in it on each of `where` (all
// ranks when empty), and a group that works afterwards.
template <class E, class F>
void expect_refused(int ranks, std::int64_t ids, const std::vector<std::string>& texts, F&& f,
                    int only_rank = -1) {
  rankcast::run(ranks, [&](communicator& world) {
    const sharded_vocabulary vocabulary(world, ids);
    try {
      f(vocabulary);
      ADD_FAILURE() << "rank " << world.rank() << " was not refused";
    } catch (const rankcast::error& e) {
      const bool mine = only_rank < 0 || world.rank() == only_rank;
      if (mine) EXPECT_NE(dynamic_cast<const E*>(&e), nullptr) << e.what();
      else EXPECT_NE(dynamic_cast<const rankcast::remote_error*>(&e), nullptr) << e.what();
      for (const std::string& t : texts) {
        EXPECT_NE(std::string(e.what()).find(t), std::string::npos) << t << ": " << e.what();
      }
    }
    int ones = 1;
    rankcast::all_reduce(world, ones);
    EXPECT_EQ(ones, ranks);
  });
}

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

// An output with columns of its own between the rows, filled with a mark.
struct marked_output {
  static constexpr double mark = 77;
  tensor storage;
  rankcast::tensor_view view;

  marked_output(dtype type, std::int64_t rows, std::int64_t ids)
      : storage(type, {rows + 2, ids + 5}),
        view(rankcast::tensor_view(storage).slice(0, 1, rows).slice(1, 2, ids)) {
    for (std::int64_t r = 0; r < rows + 2; ++r) {
      for (std::int64_t c = 0; c < ids + 5; ++c) store(storage, r, c, mark);
    }
  }
  void expect(const full_logits& full) const {
    for (std::int64_t r = 0; r < storage.extent(0); ++r) {
      for (std::int64_t c = 0; c < storage.extent(1); ++c) {
        const bool inside = r >= 1 && r <= full.rows && c >= 2 && c < full.vocabulary + 2;
        ASSERT_EQ(load(storage.view(), r, c), inside ? full.at(r - 1, c - 2) : mark)
            << "row " << r << " column " << c;
      }
    }
  }
};

TEST(gathering, to_one_rank_writes_the_vocabulary_and_nothing_else) {
  each_layout(4, 131, 0, [](const auto& vocabulary, const auto& mine, const auto& full) {
    const int rank = vocabulary.comm().rank();
    for (int root = 0; root < vocabulary.comm().size(); ++root) {
      for (const dtype type : {full.type, dtype::float32}) {
        marked_output out(type, full.rows, full.vocabulary);
        if (rank == root) rankcast::gather_logits(vocabulary, mine, out.view, {.root = root});
        else rankcast::gather_logits(vocabulary, mine, nothing, {.root = root});
        if (rank == root) out.expect(full);
      }
    }
  });
}

TEST(gathering, to_all_writes_the_vocabulary_and_nothing_else) {
  each_layout(4, 131, 0, [](const auto& vocabulary, const auto& mine, const auto& full) {
    const bool wide = vocabulary.comm().rank() % 2 == 1;  // each rank's own choice
    marked_output out(wide ? dtype::float32 : full.type, full.rows, full.vocabulary);
    rankcast::all_gather_logits(vocabulary, mine, out.view);
    out.expect(full);
  });
}

TEST(gathering, takes_logits_that_were_computed_in_place) {
  const auto full = full_logits::random(6, 20, dtype::float32, 2u);
  rankcast::run(3, [&](communicator& world) {
    const sharded_vocabulary vocabulary(world, 20);
    const rankcast::vocabulary_shard& s = vocabulary.mine();
    marked_output out(dtype::float32, 6, 20);
    const rankcast::tensor_view own = out.view.slice(1, s.first, s.count);
    for (std::int64_t r = 0; r < 6; ++r) {
      for (std::int64_t c = 0; c < s.count; ++c) {
        own.at<float>(r, c) = static_cast<float>(full.at(r, s.first + c));
      }
    }
    rankcast::all_gather_logits(vocabulary, own, out.view);
    out.expect(full);
  });
}

TEST(gathering, moves_each_logit_once_in_its_own_type) {
  const full_logits full(200, 30000, dtype::bfloat16, 1.0);  // several blocks a shard
  rankcast::run(3, [&](communicator& world) {
    const sharded_vocabulary vocabulary(world, 30000);
    const shard_of mine(full, vocabulary.mine(), 0);
    tensor out(dtype::float32, {200, 30000});
    const auto before = world.counters();
    if (world.rank() == 1) rankcast::gather_logits(vocabulary, mine.view, out, {.root = 1});
    else rankcast::gather_logits(vocabulary, mine.view, nothing, {.root = 1});
    const auto after = world.counters();
    const std::uint64_t data = world.rank() == 1 ? 200u * 20000u * 2u : 0u;
    EXPECT_EQ(after.bytes_received - before.bytes_received, data + 2u * 40u);
    if (world.rank() == 1) {
      for (const float x : out.values<float>()) ASSERT_EQ(x, 1.0f);
    }
  });
}

TEST(gathering, that_cannot_be_is_refused_before_data_moves) {
  const auto ones = [](const sharded_vocabulary& v, dtype type) {
    return shard_of(full_logits(2, v.size(), type, 1.0), v.mine(), 0);
  };
  expect_refused<rankcast::usage_error>(
      3, 10, {"root 3", "group of 3"}, [&](const sharded_vocabulary& v) {
        rankcast::gather_logits(v, ones(v, dtype::float32).view, nothing, {.root = 3});
      });
  expect_refused<rankcast::usage_error>(
      3, 10, {"the output is missing"},
      [&](const sharded_vocabulary& v) {
        rankcast::gather_logits(v, ones(v, dtype::float32).view, nothing, {.root = 1});
      },
      1);
  expect_refused<rankcast::usage_error>(
      3, 10, {"wanted (2,10)"},
      [&](const sharded_vocabulary& v) {
        tensor out(dtype::float32, {2, v.comm().rank() == 2 ? 12 : 10});
        rankcast::all_gather_logits(v, ones(v, dtype::float32).view, out);
      },
      2);
  expect_refused<rankcast::usage_error>(
      2, 10, {"output of float16"}, [&](const sharded_vocabulary& v) {
        tensor out(dtype::float16, {2, 10});
        rankcast::all_gather_logits(v, ones(v, dtype::bfloat16).view, out);
      });
  expect_refused<rankcast::mismatch_error>(2, 10, {"root"}, [&](const sharded_vocabulary& v) {
    tensor out(dtype::float32, {2, 10});
    rankcast::gather_logits(v, ones(v, dtype::float32).view, out, {.root = v.comm().rank()});
  });
  expect_refused<rankcast::mismatch_error>(2, 10, {"dtype"}, [&](const sharded_vocabulary& v) {
    tensor out(dtype::float32, {2, 10});
    const dtype type = v.comm().rank() == 0 ? dtype::float16 : dtype::bfloat16;
    rankcast::all_gather_logits(v, ones(v, type).view, out);
  });
  expect_refused<rankcast::usage_error>(2, 10, {"overlap"}, [&](const sharded_vocabulary& v) {
    tensor out(dtype::float32, {2, 10});
    std::memset(rankcast::tensor_view(out).address(), 0, out.bytes());
    rankcast::all_gather_logits(v, out.view().slice(1, 2, 5), out);
  });
}

TEST(gathering, spends_one_budget) {
  using namespace std::chrono_literals;
  std::atomic<bool> over{false};
  rankcast::run(2, [&](communicator& world) {
    const sharded_vocabulary vocabulary(world, 10);
    tensor mine(dtype::float32, {2, vocabulary.mine().width()});
    for (float& x : mine.values<float>()) x = 1;
    tensor out(dtype::float32, {2, 10});
    const auto call = [&](rankcast::timeout limit) {
      rankcast::all_gather_logits(vocabulary, mine.view(), out, {.timeout = limit});
    };
    if (world.rank() == 1) {
      while (!over) std::this_thread::sleep_for(1ms);
      EXPECT_THROW(call(10s), rankcast::error);
      return;
    }
    const auto begin = rankcast::steady_clock::now();
    EXPECT_THROW(call(200ms), rankcast::timeout_error);
    const auto waited = rankcast::steady_clock::now() - begin;
    EXPECT_GE(waited, 200ms);
    EXPECT_LT(waited, 10s);
    over = true;
  });
}

}  // namespace
