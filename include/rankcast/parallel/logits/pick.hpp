/// The best tokens of each row of sharded logits: one (argmax) or several (top_k).
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "rankcast/parallel/logits/candidates.hpp"
#include "rankcast/parallel/logits/exchange.hpp"

namespace rankcast::inline v0 {

/// Row-major [rows, k], the largest logit first.
struct top_tokens {
  std::int64_t k = 0;
  std::vector<std::int64_t> id;
  std::vector<float> logit;
};

namespace detail {

// The best candidate of every row on all ranks; `finite`: +infinity is a fault.
inline std::vector<candidate> best_of_rows(logit_call& call, bool finite) {
  std::vector<candidate> out(static_cast<std::size_t>(call.rows()));
  row_exchange<candidate> exchange(call);
  const std::int64_t block = rows_per_exchange(sizeof(candidate));
  std::int64_t first = 0;
  do {
    const std::int64_t count = std::min(block, call.rows() - first);
    exchange.begin(count);
    for (std::int64_t i = 0; i < count; ++i) {
      candidate c;
      if (!call.faulty()) {
        const row_summary s = summarise<false>(call.logits(), first + i);
        if (call.usable(s, first + i, finite) && s.column >= 0) {
          c = {s.largest, static_cast<std::int32_t>(call.vocabulary().mine().first + s.column)};
        }
      }
      exchange.set(i, c);
    }
    exchange.run();
    for (std::int64_t i = 0; i < count; ++i) {
      candidate& best = out[static_cast<std::size_t>(first + i)];
      for (int r = 0; r < call.comm().size(); ++r) {
        const candidate theirs = exchange.get(r, i);
        if (comes_before(theirs, best)) best = theirs;
      }
      if (best.id < 0) call.throw_masked(first + i);
    }
    first += count;
  } while (first < call.rows());
  return out;
}

}  // namespace detail

/// The id of the largest logit of each row, on all ranks; of equal ones the lowest id.
///
/// Shape    logits: this rank's shard, [rows, width], float32, bfloat16 or float16, any strides.
///          Returns [rows].
/// Errors   usage_error on every rank: a NaN, or a row of -infinity, among the real columns.
///          usage_error here and remote_error elsewhere: logits of the wrong shape. mismatch_error
///          when ranks give other rows. Then as every collective.
/// Cost     one all_gather of 8 bytes a row and 40 bytes for every 1024 rows, from each rank.
///          Allocates the result and (ranks + 1) * 8 KiB.
[[nodiscard]] inline std::vector<std::int64_t> argmax(const sharded_vocabulary& vocabulary,
                                                      const const_tensor_view& logits,
                                                      call_options options = {},
                                                      call_site where = call_site::here()) {
  detail::logit_call call(vocabulary, logits, "argmax", options, where);
  std::vector<std::int64_t> ids;
  for (const detail::candidate& c : detail::best_of_rows(call, false)) ids.push_back(c.id);
  return ids;
}

/// The `k` largest logits of each row and their ids, on all ranks; of equal ones the lower id
/// first. Their log-probabilities are logit - token_scores::log_normalizer.
///
/// Shape    logits: as argmax. Returns [rows, k]; a k above the vocabulary is cut to it.
/// Errors   as argmax, but a row of -infinity is a row like others; usage_error for k < 1;
///          mismatch_error when ranks give other k.
/// Cost     one all_gather of 8 * k bytes a row (k at most the largest share) from each rank, in
///          blocks of rows of 8 KiB or one row. Allocates the result, (ranks + 1) blocks, and
///          16 * k bytes.
[[nodiscard]] inline top_tokens top_k(const sharded_vocabulary& vocabulary,
                                      const const_tensor_view& logits, std::int64_t k,
                                      call_options options = {},
                                      call_site where = call_site::here()) {
  detail::logit_call call(vocabulary, logits, "top_k", options, where);
  if (k < 1) call.refuse("k is " + std::to_string(k));
  call.agree_on("k or rows", k);
  top_tokens out;
  out.k = std::min(k, vocabulary.size());
  const auto entries = static_cast<std::size_t>(call.rows() * out.k);
  out.id.reserve(entries);
  out.logit.reserve(entries);

  detail::candidate_exchange exchange(call);
  std::vector<detail::candidate> merged;
  std::vector<std::int64_t> rows;
  std::int64_t first = 0;
  do {
    const std::int64_t count =
        std::min(detail::candidate_exchange::rows_at_once(out.k), call.rows() - first);
    rows.resize(static_cast<std::size_t>(count));
    std::iota(rows.begin(), rows.end(), first);
    exchange.run(rows, out.k, false);
    for (std::int64_t i = 0; i < count; ++i) {
      exchange.merge(i, merged);
      for (std::int64_t j = 0; j < out.k; ++j) {
        out.id.push_back(merged[static_cast<std::size_t>(j)].id);
        out.logit.push_back(merged[static_cast<std::size_t>(j)].logit);
      }
    }
    first += count;
  } while (first < call.rows());
  return out;
}

}  // namespace rankcast::inline v0
