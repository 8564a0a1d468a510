/// Sampling from sharded logits. The token that is drawn depends on the logits, the options and one
/// uniform number per row, and not on how many ranks hold the vocabulary: the weights of the tokens
/// are whole numbers, whose sums have no rounding to differ by.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/parallel/logits/candidates.hpp"
#include "rankcast/parallel/logits/exchange.hpp"
#include "rankcast/parallel/logits/pick.hpp"
#include "rankcast/parallel/logits/weights.hpp"

namespace rankcast::inline v0 {

/// The same on every rank. The filters apply in this order: temperature, top_k, top_p.
struct sample_options {
  float temperature = 1.0f;           // 0: the best token, as argmax
  std::int64_t top_k = 0;             // only the k largest logits; 0: all
  double top_p = 1.0;                 // only the fewest largest logits that hold this share; 1: all
  std::uint64_t seed = 0;             // of the uniform numbers
  std::uint64_t step = 0;             // another number for every token that is generated
  std::span<const double> uniform{};  // one in [0, 1) per row, instead of seed and step
  rankcast::timeout timeout{};
  rankcast::completion completion = completion::group_default;
};

/// The uniform number in [0, 1) that `sample` uses for a row. Source: SplitMix64 (Steele et al.
/// 2014), over a mix of the three counters.
[[nodiscard]] constexpr double uniform_number(std::uint64_t seed, std::uint64_t step,
                                              std::uint64_t row) noexcept {
  const auto scramble = [](std::uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  const std::uint64_t bits = scramble(scramble(scramble(seed) ^ step) ^ row);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

namespace detail {

/// The sampler of one call.
class sampler {
 public:
  sampler(logit_call& call, const sample_options& options) noexcept
      : call_(call),
        options_(options),
        weights_(options.temperature, call.vocabulary().size()),
        candidates_(call) {}

  /// Draws for every row of the call.
  std::vector<std::int64_t> run() {
    ids_.assign(static_cast<std::size_t>(call_.rows()), -1);
    const bool some = options_.top_k > 0 && options_.top_k < call_.vocabulary().size();
    const std::int64_t block = some ? candidate_exchange::rows_at_once(options_.top_k)
                                    : rows_per_exchange(sizeof(candidate));
    std::vector<std::int64_t> rows;
    std::int64_t first = 0;
    do {
      rows.resize(static_cast<std::size_t>(std::min(block, call_.rows() - first)));
      std::iota(rows.begin(), rows.end(), first);
      if (some) draw_from_top_k(rows);
      else draw_from_all(rows);
      first += static_cast<std::int64_t>(rows.size());
    } while (first < call_.rows());
    return std::move(ids_);
  }

 private:
  struct row_mass {
    std::uint64_t own = 0;     // of this rank's share
    std::uint64_t before = 0;  // of the shares of lower ranks
    std::uint64_t total = 0;
  };

  [[nodiscard]] double uniform(std::int64_t row) const noexcept {
    const auto at = static_cast<std::size_t>(row);
    return options_.uniform.empty() ? uniform_number(options_.seed, options_.step, at)
                                    : options_.uniform[at];
  }
  std::int64_t& id(std::int64_t row) noexcept { return ids_[static_cast<std::size_t>(row)]; }

  // The k largest of every rank hold the k largest of all: one exchange, and all ranks can draw.
  void draw_from_top_k(std::span<const std::int64_t> rows) {
    candidates_.run(rows, options_.top_k, true);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      candidates_.merge(static_cast<std::int64_t>(i), merged_);
      merged_.resize(std::min(merged_.size(), static_cast<std::size_t>(options_.top_k)));
      if (merged_.front().logit == minus_infinity) call_.throw_masked(rows[i]);
      weigh_candidates(merged_.front().logit);
      const std::uint64_t total =
          std::accumulate(candidate_weights_.begin(), candidate_weights_.end(), std::uint64_t{0});
      (void)draw_from_candidates(rows[i], wanted_mass(total));
    }
  }

  // Without top_k: agree on the largest logit, then on the mass of each shard.
  void draw_from_all(std::span<const std::int64_t> rows) {
    const std::vector<float> tops = largest_of(rows);
    const std::vector<row_mass> masses = mass_of(rows, tops);
    if (options_.top_p < 1.0) draw_from_nucleus(rows, tops, masses);
    else draw_by_owner(rows, tops, masses);
  }

  std::vector<float> largest_of(std::span<const std::int64_t> rows) {
    row_exchange<float> exchange(call_);
    exchange.begin(std::ssize(rows));
    for (std::size_t i = 0; i < rows.size() && !call_.faulty(); ++i) {
      const row_summary s = summarise<false>(call_.logits(), rows[i]);
      if (call_.usable(s, rows[i], true)) exchange.set(static_cast<std::int64_t>(i), s.largest);
    }
    exchange.run();
    std::vector<float> tops(rows.size(), minus_infinity);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (int r = 0; r < call_.comm().size(); ++r) {
        tops[i] = std::max(tops[i], exchange.get(r, static_cast<std::int64_t>(i)));
      }
      if (tops[i] == minus_infinity) call_.throw_masked(rows[i]);
    }
    return tops;
  }

  std::vector<row_mass> mass_of(std::span<const std::int64_t> rows, std::span<const float> tops) {
    row_exchange<std::uint64_t> exchange(call_);
    exchange.begin(std::ssize(rows));
    weight_chunk w;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::uint64_t own = 0;
      call_.logits().each_chunk(
          rows[i], [&](std::int64_t, std::int64_t, const logit_chunk& x, std::size_t filled) {
            weights_.of(x, filled, tops[i], w.data());
            own = std::accumulate(w.begin(), w.begin() + static_cast<std::ptrdiff_t>(filled), own);
            return true;
          });
      exchange.set(static_cast<std::int64_t>(i), own);
    }
    exchange.run();
    std::vector<row_mass> masses(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (int r = 0; r < call_.comm().size(); ++r) {
        const std::uint64_t theirs = exchange.get(r, static_cast<std::int64_t>(i));
        if (r < call_.comm().rank()) masses[i].before += theirs;
        if (r == call_.comm().rank()) masses[i].own = theirs;
        masses[i].total += theirs;
      }
    }
    return masses;
  }

  // The rank in whose share the point falls finds the token and tells the others.
  void draw_by_owner(std::span<const std::int64_t> rows, std::span<const float> tops,
                     std::span<const row_mass> masses) {
    row_exchange<std::int32_t> exchange(call_);
    exchange.begin(std::ssize(rows));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::uint64_t point = point_in(uniform(rows[i]), masses[i].total);
      const bool owner = point >= masses[i].before && point - masses[i].before < masses[i].own;
      exchange.set(static_cast<std::int64_t>(i),
                   owner ? token_at(rows[i], tops[i], point - masses[i].before) : -1);
    }
    exchange.run();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (int r = 0; r < call_.comm().size(); ++r) {
        id(rows[i]) =
            std::max<std::int64_t>(id(rows[i]), exchange.get(r, static_cast<std::int64_t>(i)));
      }
    }
  }

  // The token of this rank's share in which a point of the share's mass falls.
  [[nodiscard]] std::int32_t token_at(std::int64_t row, float top, std::uint64_t point) const {
    std::int64_t found = -1;
    weight_chunk w;
    call_.logits().each_chunk(
        row, [&](std::int64_t first, std::int64_t n, const logit_chunk& x, std::size_t filled) {
          weights_.of(x, filled, top, w.data());
          for (std::int64_t j = 0; j < n; ++j) {
            const std::uint64_t weight = w[static_cast<std::size_t>(j)];
            if (point < weight) {
              found = first + j;
              return false;
            }
            point -= weight;
          }
          return true;
        });
    return static_cast<std::int32_t>(call_.vocabulary().mine().first + found);
  }

  // Every rank offers its largest logits, more of them each time, until they hold enough mass.
  void draw_from_nucleus(std::span<const std::int64_t> rows, std::span<const float> tops,
                         std::span<const row_mass> masses) {
    std::vector<std::size_t> open(rows.size());
    std::iota(open.begin(), open.end(), std::size_t{0});
    std::vector<std::int64_t> batch;
    for (std::int64_t k = 32; !open.empty(); k *= 4) {
      std::vector<std::size_t> left;
      const auto at_once = static_cast<std::size_t>(candidate_exchange::rows_at_once(k));
      for (std::size_t first = 0; first < open.size(); first += at_once) {
        const std::size_t count = std::min(at_once, open.size() - first);
        batch.clear();
        for (std::size_t i = 0; i < count; ++i) batch.push_back(rows[open[first + i]]);
        candidates_.run(batch, k, true);
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t at = open[first + i];
          candidates_.merge(static_cast<std::int64_t>(i), merged_);
          weigh_candidates(tops[at]);
          if (!draw_from_candidates(rows[at], wanted_mass(masses[at].total))) left.push_back(at);
        }
      }
      open = std::move(left);
    }
  }

  [[nodiscard]] std::uint64_t wanted_mass(std::uint64_t total) const noexcept {
    if (options_.top_p >= 1.0) return total;
    const double share = std::ceil(options_.top_p * static_cast<double>(total));
    return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(share), 1, total);
  }

  void weigh_candidates(float top) {
    candidate_weights_.clear();
    logit_chunk x;
    weight_chunk w;
    for (std::size_t first = 0; first < merged_.size(); first += x.size()) {
      const std::size_t n = std::min(x.size(), merged_.size() - first);
      std::size_t filled = 0;
      for (; filled < n; ++filled) x[filled] = merged_[first + filled].logit;
      for (; filled % lanes != 0; ++filled) x[filled] = minus_infinity;
      weights_.of(x, filled, top, w.data());
      candidate_weights_.insert(candidate_weights_.end(), w.begin(),
                                w.begin() + static_cast<std::ptrdiff_t>(n));
    }
  }

  // Keeps the fewest first candidates that hold `wanted`, and draws from them in the order of ids.
  // False when all of them hold less.
  bool draw_from_candidates(std::int64_t row, std::uint64_t wanted) {
    std::uint64_t kept_mass = 0;
    kept_.clear();
    for (std::size_t i = 0; i < merged_.size() && kept_mass < wanted; ++i) {
      kept_mass += candidate_weights_[i];
      kept_.emplace_back(merged_[i].id, candidate_weights_[i]);
    }
    if (kept_mass < wanted) return false;
    std::sort(kept_.begin(), kept_.end());
    std::uint64_t point = point_in(uniform(row), kept_mass);
    for (const auto& [token, weight] : kept_) {
      if (point < weight) {
        id(row) = token;
        return true;
      }
      point -= weight;
    }
    return false;  // not reached: the point lies below the sum of the weights
  }

  logit_call& call_;
  const sample_options& options_;
  token_weights weights_;
  candidate_exchange candidates_;
  std::vector<candidate> merged_;
  std::vector<std::uint64_t> candidate_weights_;              // of merged_
  std::vector<std::pair<std::int32_t, std::uint64_t>> kept_;  // id and weight
  std::vector<std::int64_t> ids_;
};

inline void check_sample_options(logit_call& call, const sample_options& o) {
  if (!(o.temperature >= 0) || o.temperature == plus_infinity) {
    call.refuse("temperature is " + std::to_string(o.temperature));
  }
  if (o.top_k < 0) call.refuse("top_k is " + std::to_string(o.top_k));
  if (!(o.top_p > 0) || o.top_p > 1) call.refuse("top_p is " + std::to_string(o.top_p));
  if (!o.uniform.empty() && std::ssize(o.uniform) != call.rows()) {
    call.refuse(std::to_string(o.uniform.size()) + " uniform numbers given for " +
                std::to_string(call.rows()) + " rows of logits");
  }
  call.agree_on("sampling options", o.temperature);
  call.agree_on("sampling options", o.top_k);
  call.agree_on("sampling options", o.top_p);
  if (o.uniform.empty()) {
    call.agree_on("sampling options", o.seed);
    call.agree_on("sampling options", o.step);
  }
  for (std::size_t i = 0; i < o.uniform.size(); ++i) {
    if (!(o.uniform[i] >= 0) || o.uniform[i] >= 1) {
      call.refuse("the uniform number of row " + std::to_string(i) + " is " +
                  std::to_string(o.uniform[i]));
    }
    call.agree_on("sampling options", o.uniform[i]);
  }
}

}  // namespace detail

/// Draws one token per row, the same on all ranks. With u the row's uniform number: the tokens that
/// the filters leave, in the order of their ids, share [0, 1) by their probabilities; the one
/// whose part u falls into is drawn.
///
/// Shape    logits: this rank's shard, [rows, width], float32, bfloat16 or float16, any strides.
///          Returns [rows].
/// Errors   usage_error on every rank: a NaN, +infinity, or a row of -infinity among the real
///          columns. usage_error here and remote_error elsewhere: logits or options out of range.
///          mismatch_error when ranks give other options or rows. Then as every collective.
/// Cost     a row, from each rank: 16 bytes in three all_gathers; with top_k 8 * k bytes in one;
///          with top_p alone 12 bytes in two, then 256 bytes, and four times that again while the
///          kept tokens hold too little (all of the vocabulary in the worst case). Blocks of rows
///          of 8 KiB or one row, and 40 bytes a block. Allocates (ranks + 1) blocks.
/// Promises the same draw at every number of ranks and every cut of the vocabulary, bit for bit,
///          for one binary on one kind of processor. Tokens less likely than the best one by
///          2^-(62 - b), b the bits of the vocabulary's size (2^-44 for 150,000 ids), are never
///          drawn.
[[nodiscard]] inline std::vector<std::int64_t> sample(const sharded_vocabulary& vocabulary,
                                                      const const_tensor_view& logits,
                                                      sample_options options = {},
                                                      call_site where = call_site::here()) {
  detail::logit_call call(vocabulary, logits, "sample",
                          {.timeout = options.timeout, .completion = options.completion}, where);
  detail::check_sample_options(call, options);
  if (options.temperature > 0) return detail::sampler(call, options).run();
  std::vector<std::int64_t> ids;
  for (const detail::candidate& c : detail::best_of_rows(call, true)) ids.push_back(c.id);
  return ids;
}

}  // namespace rankcast::inline v0
