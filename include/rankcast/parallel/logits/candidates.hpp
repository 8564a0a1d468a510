/// The largest logits of a row, with their ids: of one shard, and of all shards together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "rankcast/parallel/logits/exchange.hpp"

namespace rankcast::inline v0::detail {

struct candidate {
  float logit = minus_infinity;
  std::int32_t id = -1;  // -1: none
};
static_assert(sizeof(candidate) == 8);

/// Larger logits first, of equal ones the lower id; places without a candidate last.
[[nodiscard]] inline bool comes_before(const candidate& a, const candidate& b) noexcept {
  if (a.logit != b.logit) return a.logit > b.logit;
  return static_cast<std::uint32_t>(a.id) < static_cast<std::uint32_t>(b.id);
}

/// Finds the `k` first candidates of a row, in order, into `best`; `finite`: +infinity is a fault,
/// as a NaN always is, and noted in the call. Allocates up to 2k entries, kept from row to row.
inline void select_candidates(logit_call& call, std::int64_t row, std::int64_t k, bool finite,
                              std::vector<candidate>& best) {
  best.clear();
  const auto wanted = static_cast<std::size_t>(k);
  float threshold = minus_infinity;  // once `wanted` are known: what a later id must exceed
  bool full = false;
  const auto cut = [&] {
    if (best.size() <= wanted) return;
    std::nth_element(best.begin(), best.begin() + k - 1, best.end(), comes_before);
    best.resize(wanted);
    threshold = best.back().logit;
    full = true;
  };
  call.logits().each_chunk(row, [&](std::int64_t first, std::int64_t n, const logit_chunk& x,
                                    std::size_t filled) {
    if (has_nan(x, filled)) {
      row_summary s;
      s.nan_column =
          first + (std::find_if(x.begin(), x.end(), [](float v) { return v != v; }) - x.begin());
      (void)call.usable(s, row, finite);
      return false;
    }
    if (full && !(largest(x, filled) > threshold)) return true;
    for (std::int64_t i = 0; i < n; ++i) {
      const float v = x[static_cast<std::size_t>(i)];
      if (full && !(v > threshold)) continue;  // ids ascend: an equal one comes after
      best.push_back({v, static_cast<std::int32_t>(call.vocabulary().mine().first + first + i)});
      if (best.size() >= 2 * wanted) cut();
    }
    return true;
  });
  cut();
  std::sort(best.begin(), best.end(), comes_before);
  if (finite && !best.empty() && best.front().logit == plus_infinity) {
    call.report(row_fault::infinite, row, best.front().id);
  }
}

/// Candidates of several rows, offered by every rank and merged.
class candidate_exchange {
 public:
  explicit candidate_exchange(logit_call& call) noexcept : call_(call), exchange_(call) {}

  /// Rows that fit one exchange when each rank offers `k`.
  [[nodiscard]] static std::int64_t rows_at_once(std::int64_t k) noexcept {
    return rows_per_exchange(k * static_cast<std::int64_t>(sizeof(candidate)));
  }

  /// Every rank offers its `k` first candidates of each of `rows`; `finite`: none may be +infinity.
  void run(std::span<const std::int64_t> rows, std::int64_t k, bool finite) {
    k_ = std::min(k, call_.vocabulary().largest_count());
    exchange_.begin(static_cast<std::int64_t>(rows.size()) * k_);
    std::int64_t at = 0;
    for (const std::int64_t row : rows) {
      own_.clear();
      if (!call_.faulty()) select_candidates(call_, row, k_, finite, own_);
      for (std::int64_t i = 0; i < k_; ++i) {
        const auto j = static_cast<std::size_t>(i);
        exchange_.set(at++, j < own_.size() ? own_[j] : candidate{});
      }
    }
    exchange_.run();
  }

  /// The candidates of the i-th row of the last exchange, in order, as far as nothing that was not
  /// offered can come before them: at least k, or all there are.
  void merge(std::int64_t i, std::vector<candidate>& merged) const {
    merged.clear();
    candidate limit;  // the first of what the ranks may have kept back comes after this
    bool limited = false;
    for (int r = 0; r < call_.comm().size(); ++r) {
      const std::int64_t count = call_.vocabulary().of(r).count;
      for (std::int64_t j = 0; j < std::min(k_, count); ++j) {
        merged.push_back(exchange_.get(r, i * k_ + j));
      }
      if (count <= k_) continue;
      if (!limited || comes_before(merged.back(), limit)) limit = merged.back();
      limited = true;
    }
    std::sort(merged.begin(), merged.end(), comes_before);
    if (!limited) return;
    const auto end = std::upper_bound(merged.begin(), merged.end(), limit, comes_before);
    merged.erase(end, merged.end());
  }

 private:
  logit_call& call_;
  row_exchange<candidate> exchange_;
  std::int64_t k_ = 0;
  std::vector<candidate> own_;
};

}  // namespace rankcast::inline v0::detail
