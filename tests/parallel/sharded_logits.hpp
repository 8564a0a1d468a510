// Logits for tests: random rows, one rank's shard of them in any type, with huge values in the
// padding and NaNs between the rows; and what the unsharded row says, in float64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "rankcast/collectives/reduce.hpp"
#include "rankcast/core/tensor.hpp"
#include "rankcast/parallel/logits/vocabulary.hpp"
#include "rankcast/transports/local/threads.hpp"

namespace logits_for_tests {

using rankcast::dtype;
using rankcast::vocabulary_shard;

inline constexpr dtype logit_types[] = {dtype::float32, dtype::bfloat16, dtype::float16};

inline double rounded(double value, dtype type) {
  const auto f = static_cast<float>(value);
  if (type == dtype::bfloat16) return static_cast<double>(float{rankcast::bfloat16(f)});
  if (type == dtype::float16) return static_cast<double>(float{rankcast::float16(f)});
  return static_cast<double>(f);
}

// [rows, vocabulary], as an unsharded model would give them, already rounded to the type.
struct full_logits {
  std::int64_t rows = 0;
  std::int64_t vocabulary = 0;
  dtype type = dtype::float32;
  std::vector<double> values;

  full_logits(std::int64_t r, std::int64_t v, dtype t, double fill = 0)
      : rows(r),
        vocabulary(v),
        type(t),
        values(static_cast<std::size_t>(r * v), rounded(fill, t)) {}

  static full_logits random(std::int64_t r, std::int64_t v, dtype t, unsigned seed, double mean = 0,
                            double spread = 3) {
    full_logits l(r, v, t);
    std::mt19937 engine(seed);
    std::normal_distribution<double> draw(mean, spread);
    for (double& x : l.values) x = rounded(draw(engine), t);
    return l;
  }

  double& at(std::int64_t row, std::int64_t id) {
    return values[static_cast<std::size_t>(row * vocabulary + id)];
  }
  [[nodiscard]] double at(std::int64_t row, std::int64_t id) const {
    return values[static_cast<std::size_t>(row * vocabulary + id)];
  }
  [[nodiscard]] double normalizer(std::int64_t row) const {
    double top = -std::numeric_limits<double>::infinity();
    for (std::int64_t i = 0; i < vocabulary; ++i) top = std::max(top, at(row, i));
    double total = 0;
    for (std::int64_t i = 0; i < vocabulary; ++i) total += std::exp(at(row, i) - top);
    return top + std::log(total);
  }
  [[nodiscard]] std::int64_t best(std::int64_t row) const {
    std::int64_t id = 0;
    for (std::int64_t i = 1; i < vocabulary; ++i) {
      if (at(row, i) > at(row, id)) id = i;
    }
    return id;
  }
  // Ids by falling logit, equal ones by rising id.
  [[nodiscard]] std::vector<std::int64_t> order(std::int64_t row) const {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(vocabulary));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
    std::stable_sort(ids.begin(), ids.end(),
                     [&](std::int64_t a, std::int64_t b) { return at(row, a) > at(row, b); });
    return ids;
  }
};

inline void store(rankcast::tensor& t, std::int64_t row, std::int64_t column, double value) {
  const auto f = static_cast<float>(value);
  if (t.dtype() == dtype::bfloat16) t.at<rankcast::bfloat16>(row, column) = rankcast::bfloat16(f);
  else if (t.dtype() == dtype::float16) t.at<rankcast::float16>(row, column) = rankcast::float16(f);
  else t.at<float>(row, column) = f;
}
inline double load(const rankcast::const_tensor_view& t, std::int64_t row, std::int64_t column) {
  if (t.dtype() == dtype::bfloat16) return double{float{t.at<rankcast::bfloat16>(row, column)}};
  if (t.dtype() == dtype::float16) return double{float{t.at<rankcast::float16>(row, column)}};
  return double{t.at<float>(row, column)};
}

// One rank's part of the rows; `gap` columns that belong to nobody lie between two rows.
struct shard_of {
  rankcast::tensor storage;
  rankcast::const_tensor_view view;

  shard_of(const full_logits& full, const vocabulary_shard& s, std::int64_t gap = 3)
      : storage(full.type, {full.rows, s.width() + gap}),
        view(storage.view().slice(1, 0, s.width())) {
    const double huge = full.type == dtype::float16 ? 65504.0 : 1e30;
    for (std::int64_t row = 0; row < full.rows; ++row) {
      for (std::int64_t c = 0; c < s.width() + gap; ++c) {
        store(storage, row, c,
              c < s.count     ? full.at(row, s.first + c)
              : c < s.width() ? huge
                              : std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
};

// A way to cut a vocabulary, by rank.
using cut = vocabulary_shard (*)(std::int64_t vocabulary, int ranks, int rank);

inline constexpr cut cuts[] = {
    [](std::int64_t v, int n, int r) { return vocabulary_shard::near_even(v, n, r); },
    // Padded at the end, so far that the last ranks may hold nothing else.
    [](std::int64_t v, int n, int r) {
      return vocabulary_shard::padded_to(v + v / 2 + 1, v, n, r);
    },
    // All ids at the last rank, padding everywhere.
    [](std::int64_t v, int n, int r) {
      return vocabulary_shard{
          .first = 0, .count = r == n - 1 ? v : 0, .padding = r, .vocabulary = v};
    },
    // One id for rank 0, nothing for rank 1 (of three or more), the rest near-even.
    [](std::int64_t v, int n, int r) {
      if (n < 3) return vocabulary_shard::near_even(v, n, r);
      vocabulary_shard s{
          .first = r == 0 ? 0 : 1, .count = r == 0 ? 1 : 0, .padding = 2, .vocabulary = v};
      if (r < 2) return s;
      const rankcast::slice part = rankcast::partition(v - 1, n - 2, r - 2);
      s.first = 1 + part.first;
      s.count = part.count;
      return s;
    },
};

inline constexpr double infinity = std::numeric_limits<double>::infinity();

// Every number of ranks, cut and type: f(vocabulary, this rank's logits, all logits).
template <class F>
void each_layout(std::int64_t rows, std::int64_t ids, double mean, F&& f) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const cut& c : cuts) {
      for (const dtype type : logit_types) {
        const auto full = full_logits::random(rows, ids, type, 7u, mean);
        rankcast::run(ranks, [&](rankcast::communicator& world) {
          const rankcast::sharded_vocabulary vocabulary(world, c(ids, ranks, world.rank()));
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
  rankcast::run(ranks, [&](rankcast::communicator& world) {
    const rankcast::sharded_vocabulary vocabulary(world, ids);
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

}  // namespace logits_for_tests
