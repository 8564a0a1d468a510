// Sampling from sharded logits: against an unsharded sampler in float64, and the same draws at
// every number of ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "rankcast/collectives/reduce.hpp"
#include "rankcast/parallel/logits.hpp"
#include "rankcast/transports/local/threads.hpp"
#include "sharded_logits.hpp"

namespace {

using namespace logits_for_tests;
using rankcast::communicator;
using rankcast::sample_options;
using rankcast::sharded_vocabulary;
using rankcast::tensor;

std::vector<double> uniforms(std::int64_t rows, std::uint64_t seed) {
  std::vector<double> u;
  for (std::int64_t r = 0; r < rows; ++r) {
    u.push_back(rankcast::uniform_number(seed, 0, static_cast<std::uint64_t>(r)));
  }
  return u;
}

// A dozen obvious lines: filter, then walk the ids. `distance`: of u from the edges of the part of
// [0, 1) that the drawn token has.
struct reference_draw {
  std::int64_t id = -1;
  double distance = 0;
};
reference_draw draw(const full_logits& full, std::int64_t row, const sample_options& o, double u) {
  const auto order = full.order(row);
  std::map<std::int64_t, double> kept;  // by id
  double all = 0;
  const std::size_t n =
      o.top_k > 0 ? std::min(order.size(), static_cast<std::size_t>(o.top_k)) : order.size();
  const double temperature = static_cast<double>(o.temperature);
  const auto weight = [&](std::int64_t id) {
    return std::exp((full.at(row, id) - full.at(row, order[0])) / temperature);
  };
  for (std::size_t i = 0; i < n; ++i) all += weight(order[i]);
  double mass = 0;
  for (std::size_t i = 0; i < n && (mass < o.top_p * all || o.top_p == 1); ++i) {
    kept[order[i]] = weight(order[i]);
    mass += weight(order[i]);
  }
  double low = 0;
  for (const auto& [id, w] : kept) {
    const double high = low + w / mass;
    if (u < high) return {id, std::min(u - low, high - u)};
    low = high;
  }
  return {kept.rbegin()->first, 0};
}

std::vector<std::int64_t> draw_sharded(const full_logits& full, int ranks, cut c,
                                       const sample_options& o) {
  std::vector<std::vector<std::int64_t>> ids(static_cast<std::size_t>(ranks));
  rankcast::run(ranks, [&](communicator& world) {
    const sharded_vocabulary v(world, c(full.vocabulary, ranks, world.rank()));
    const shard_of mine(full, v.mine());
    ids[static_cast<std::size_t>(world.rank())] = rankcast::sample(v, mine.view, o);
  });
  for (const auto& theirs : ids) EXPECT_EQ(theirs, ids[0]);
  return ids[0];
}

const sample_options all_options[] = {
    {},
    {.temperature = 0.3f},
    {.temperature = 2.5f},
    {.top_k = 1},
    {.top_k = 40},
    {.temperature = 1.7f, .top_k = 300},
    {.top_p = 0.9},
    {.top_p = 0.05},
    {.temperature = 8.0f, .top_p = 0.97},  // flat: most of the vocabulary is kept
    {.temperature = 0.8f, .top_k = 50, .top_p = 0.6},
};

TEST(sampling, draws_what_the_unsharded_sampler_draws_at_any_number_of_ranks) {
  constexpr std::int64_t rows = 12;
  for (const dtype type : logit_types) {
    const auto full = full_logits::random(rows, 900, type, 21u, -20, 3);
    for (sample_options o : all_options) {
      const auto u = uniforms(rows, 11);
      o.uniform = u;
      const auto alone = draw_sharded(full, 1, cuts[0], o);
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto i = static_cast<std::size_t>(row);
        const auto right = draw(full, row, o, u[i]);
        // At an edge float32 and float64 may differ, and only there.
        EXPECT_TRUE(alone[i] == right.id || right.distance <= 1e-6)
            << "row " << row << ": drew " << alone[i] << ", reference " << right.id;
      }
      for (const cut& c : cuts) EXPECT_EQ(draw_sharded(full, 3, c, o), alone);
      for (const int ranks : {2, 4, 5}) EXPECT_EQ(draw_sharded(full, ranks, cuts[1], o), alone);
    }
  }
}

TEST(sampling, follows_the_probabilities) {
  full_logits full(4000, 4, dtype::float32);
  const double p[] = {0.1, 0.2, 0.3, 0.4};
  for (std::int64_t r = 0; r < full.rows; ++r) {
    for (std::int64_t i = 0; i < 4; ++i) full.at(r, i) = rounded(std::log(p[i]), full.type);
  }
  for (const double top_p : {1.0, 0.6}) {
    const auto ids = draw_sharded(full, 3, cuts[0], {.top_p = top_p, .seed = 5});
    std::vector<double> share(4, 0);
    for (const std::int64_t id : ids) share[static_cast<std::size_t>(id)] += 1.0 / 4000;
    for (std::size_t i = 0; i < 4; ++i) {
      const double right = top_p == 1.0 ? p[i] : i < 2 ? 0.0 : p[i] / 0.7;
      EXPECT_NEAR(share[i], right, 0.035) << "token " << i << " top_p " << top_p;
    }
  }
}

TEST(sampling, with_a_step_for_every_token) {
  const auto full = full_logits::random(1, 500, dtype::float32, 1u, 0, 0.5);
  const auto a = draw_sharded(full, 2, cuts[0], {.seed = 9, .step = 0});
  EXPECT_EQ(draw_sharded(full, 3, cuts[0], {.seed = 9, .step = 0}), a);
  std::vector<std::int64_t> later;
  for (std::uint64_t step = 1; step < 6; ++step) {
    later.push_back(draw_sharded(full, 2, cuts[0], {.seed = 9, .step = step})[0]);
  }
  EXPECT_NE(later, std::vector<std::int64_t>(5, a[0]));
}

TEST(sampling, at_temperature_zero_is_the_best_token) {
  const auto full = full_logits::random(5, 300, dtype::bfloat16, 4u);
  const auto ids = draw_sharded(full, 4, cuts[1], {.temperature = 0.0f, .top_p = 0.5});
  for (std::int64_t r = 0; r < 5; ++r) EXPECT_EQ(ids[static_cast<std::size_t>(r)], full.best(r));
  // And close to zero nothing else is left, nor is anything divided by zero.
  const auto cold = draw_sharded(full_logits::random(5, 300, dtype::float32, 4u), 4, cuts[1],
                                 {.temperature = 1e-42f});
  EXPECT_EQ(cold.size(), 5u);
}

TEST(sampling, never_draws_masked_tokens) {
  full_logits full(200, 64, dtype::float16, -std::numeric_limits<double>::infinity());
  for (std::int64_t r = 0; r < full.rows; ++r) {
    full.at(r, 63) = -3;
    full.at(r, 17) = -3;
  }
  for (const sample_options& o :
       {sample_options{}, sample_options{.top_k = 10}, sample_options{.top_p = 0.99}}) {
    for (const std::int64_t id : draw_sharded(full, 4, cuts[1], o)) {
      EXPECT_TRUE(id == 17 || id == 63) << id;
    }
  }
}

TEST(sampling, reaches_the_edges) {
  const full_logits full(2, 7, dtype::float32, -1.0);
  const std::vector<double> u{0.0, std::nextafter(1.0, 0.0)};
  for (const double p : {1.0, 0.999}) {
    EXPECT_EQ(draw_sharded(full, 3, cuts[1], {.top_p = p, .uniform = u}),
              (std::vector<std::int64_t>{0, 6}));
  }
}

TEST(sampling, of_one_token_needs_no_luck) {
  const full_logits full(3, 1, dtype::float32, -9.0);
  EXPECT_EQ(draw_sharded(full, 3, cuts[0], {.top_p = 0.5}), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(draw_sharded(full, 2, cuts[0], {}), (std::vector<std::int64_t>{0, 0, 0}));
}

TEST(sampling, does_not_gather_the_vocabulary) {
  const auto full = full_logits::random(4, 60000, dtype::float32, 6u);
  rankcast::run(3, [&](communicator& world) {
    const sharded_vocabulary v(world, 60000);
    const shard_of mine(full, v.mine());
    const auto bytes = [&](const sample_options& o) {
      const auto before = world.counters().bytes_received;
      (void)rankcast::sample(v, mine.view, o);
      return world.counters().bytes_received - before;
    };
    EXPECT_EQ(bytes({}), 2u * (4u * 16u + 3u * 40u));
    EXPECT_EQ(bytes({.top_k = 20}), 2u * (4u * 20u * 8u + 40u));
    EXPECT_LE(bytes({.temperature = 0.25f, .top_p = 0.9}), 2u * (4u * (12u + 256u) + 3u * 40u));
  });
}

// Every rank throws E with `text`, and the group works afterwards.
template <class E, class F>
void expect_refused(const std::string& text, F&& f) {
  rankcast::run(3, [&](communicator& world) {
    const sharded_vocabulary v(world, 9);
    tensor t(dtype::float32, {2, v.mine().width()});
    for (float& x : t.values<float>()) x = 1;
    try {
      (void)f(v, t);
      ADD_FAILURE() << "not refused: " << text;
    } catch (const E& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
    int ones = 1;
    rankcast::all_reduce(world, ones);
    EXPECT_EQ(ones, 3);
  });
}

TEST(sampling, that_cannot_be_is_refused_everywhere) {
  using rankcast::sample;
  using rankcast::usage_error;
  constexpr float inf = std::numeric_limits<float>::infinity();
  for (const sample_options& o :
       {sample_options{}, sample_options{.top_k = 2}, sample_options{.top_p = 0.5},
        sample_options{.temperature = 0.0f}}) {
    expect_refused<usage_error>("row 1 has a NaN for id 3 (rank 1)", [&](const auto& v, tensor& t) {
      if (v.comm().rank() == 1) t.at<float>(1, 0) = std::nanf("");
      return sample(v, t.view(), o);
    });
    expect_refused<usage_error>("row 0 has +infinity for id 7 (rank 2)",
                                [&](const auto& v, tensor& t) {
                                  if (v.comm().rank() == 2) t.at<float>(0, 1) = inf;
                                  return sample(v, t.view(), o);
                                });
    expect_refused<usage_error>("row 1 has no logit above -infinity",
                                [&](const auto& v, tensor& t) {
                                  for (std::int64_t c = 0; c < 3; ++c) t.at<float>(1, c) = -inf;
                                  return sample(v, t.view(), o);
                                });
  }
  const auto refused = [](const std::string& text, const sample_options& o) {
    expect_refused<usage_error>(text,
                                [&](const auto& v, tensor& t) { return sample(v, t.view(), o); });
  };
  const std::vector<double> bad{0.5, 1.0};
  refused("temperature is -1", {.temperature = -1.0f});
  refused("temperature is nan", {.temperature = std::nanf("")});
  refused("top_k is -2", {.top_k = -2});
  refused("top_p is 0.0", {.top_p = 0.0});
  refused("top_p is 1.5", {.top_p = 1.5});
  refused("uniform number of row 1", {.uniform = bad});
  refused("1 uniform numbers given for 2 rows", {.uniform = std::span(bad).first(1)});
  expect_refused<rankcast::mismatch_error>(
      "rank 2 gave other sampling options", [](const auto& v, tensor& t) {
        return sample(v, t.view(), {.seed = v.comm().rank() == 2 ? 8u : 7u});
      });
}

}  // namespace
