/// Scores of given tokens from sharded logits, without gathering them.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "rankcast/parallel/logits/exchange.hpp"

namespace rankcast::inline v0 {

struct score_options {
  /// Rows with this target are padding: they are not looked at.
  std::optional<std::int64_t> ignored_target{};
  rankcast::timeout timeout{};
  rankcast::completion completion = completion::group_default;
};

/// One entry per row. Rows that were ignored have 0, -1, 1 and 0: sums of log-probabilities and
/// "all greedy" over a padded sequence are those of its real tokens.
struct token_scores {
  std::vector<float> log_probability;   // of the target: log-softmax over the whole vocabulary
  std::vector<std::int64_t> best_id;    // of the largest logit, the lowest id of equal ones
  std::vector<std::uint8_t> is_greedy;  // 1 where the target is best_id
  std::vector<float> log_normalizer;    // log of the sum of exp(logit): logit - this = log p
};

namespace detail {

struct score_record {
  float largest = minus_infinity;
  float sum = 0;                  // of exp(logit - largest)
  float target = minus_infinity;  // the target's logit, at its owner
  std::int32_t best = -1;         // id of `largest`
};
static_assert(sizeof(score_record) == 16);

inline score_record score_own_share(logit_call& call, std::int64_t row, std::int64_t target) {
  const vocabulary_shard& share = call.vocabulary().mine();
  const row_summary s = summarise<true>(call.logits(), row);
  score_record r;
  if (!call.usable(s, row, true) || s.column < 0) return r;
  r.largest = s.largest;
  r.sum = static_cast<float>(s.sum);
  r.best = static_cast<std::int32_t>(share.first + s.column);
  if (target >= share.first && target < share.end()) {
    r.target = call.logits().at(row, target - share.first);
  }
  return r;
}

// The records of all ranks, in rank order, become the scores of one row.
inline void merge_scores(const logit_call& call, const row_exchange<score_record>& exchange,
                         std::int64_t i, std::int64_t row, std::int64_t target, token_scores& out) {
  score_record best;
  float target_logit = minus_infinity;
  for (int r = 0; r < call.comm().size(); ++r) {
    const score_record s = exchange.get(r, i);
    if (s.largest > best.largest) best = s;  // ranks ascend with the ids: the first of equals stays
    target_logit = std::max(target_logit, s.target);
  }
  if (best.best < 0) call.throw_masked(row);
  double total = 0;
  for (int r = 0; r < call.comm().size(); ++r) {
    const score_record s = exchange.get(r, i);
    total += static_cast<double>(s.sum) *
             std::exp(static_cast<double>(s.largest) - static_cast<double>(best.largest));
  }
  const double normalizer = static_cast<double>(best.largest) + std::log(total);
  const auto at = static_cast<std::size_t>(row);
  // The largest logit comes off first: it may be so large that the logarithm would drown in it.
  out.log_probability[at] = static_cast<float>(static_cast<double>(target_logit) -
                                               static_cast<double>(best.largest) - std::log(total));
  out.best_id[at] = best.best;
  out.is_greedy[at] = best.best == target ? 1 : 0;
  out.log_normalizer[at] = static_cast<float>(normalizer);
}

}  // namespace detail

/// Log-probability of one target token per row, the best token, and whether they are the same, on
/// all ranks. Arithmetic is float32 (sums in float64) whatever the type of the logits.
///
/// Shape    logits: this rank's shard, [rows, width], float32, bfloat16 or float16, any strides.
///          targets: [rows], ids of the whole vocabulary, the same on all ranks.
/// Errors   usage_error on every rank: a target outside the vocabulary (row, id, vocabulary); a
///          NaN, +infinity or a row of -infinity among the real columns. usage_error here and
///          remote_error elsewhere: logits or targets of the wrong shape. mismatch_error when ranks
///          give other targets or rows. Then as every collective.
/// Cost     one all_gather of 16 bytes a row and 40 bytes for every 512 rows, from each rank; none
///          of it grows with the vocabulary. Allocates the result and (ranks + 1) * 8 KiB.
/// Source   Megatron-LM, vocab-parallel cross entropy (Shoeybi et al. 2019, section 3).
[[nodiscard]] inline token_scores token_log_probabilities(const sharded_vocabulary& vocabulary,
                                                          const const_tensor_view& logits,
                                                          const token_ids& targets,
                                                          score_options options = {},
                                                          call_site where = call_site::here()) {
  detail::logit_call call(vocabulary, logits, "token_log_probabilities",
                          {.timeout = options.timeout, .completion = options.completion}, where);
  const std::int64_t rows = call.rows();
  if (targets.size() != rows) {
    call.refuse(std::to_string(targets.size()) + " targets given for " + std::to_string(rows) +
                " rows of logits");
  }
  const auto ignored = [&](std::int64_t row) {
    return options.ignored_target && targets[row] == *options.ignored_target;
  };
  call.agree_on("targets", options.ignored_target.value_or(-1));
  for (std::int64_t row = 0; row < rows; ++row) {
    call.agree_on("targets", targets[row]);
    if (!ignored(row) && (targets[row] < 0 || targets[row] >= vocabulary.size())) {
      call.report(detail::row_fault::target, row, targets[row]);
    }
  }

  const auto n = static_cast<std::size_t>(rows);
  token_scores out{.log_probability = std::vector<float>(n, 0.0f),
                   .best_id = std::vector<std::int64_t>(n, -1),
                   .is_greedy = std::vector<std::uint8_t>(n, 1),
                   .log_normalizer = std::vector<float>(n, 0.0f)};
  detail::row_exchange<detail::score_record> exchange(call);
  const std::int64_t block = detail::rows_per_exchange(sizeof(detail::score_record));
  std::int64_t first = 0;
  do {  // also without rows: the others may have some, and must learn of it
    const std::int64_t count = std::min(block, rows - first);
    exchange.begin(count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = first + i;
      exchange.set(i, ignored(row) || call.faulty()
                          ? detail::score_record{}
                          : detail::score_own_share(call, row, targets[row]));
    }
    exchange.run();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = first + i;
      if (!ignored(row)) detail::merge_scores(call, exchange, i, row, targets[row], out);
    }
    first += count;
  } while (first < rows);
  return out;
}

}  // namespace rankcast::inline v0
