// From vocabulary shards to what a scorer needs: whole logits at rank 0, or one log-probability a
// row. `bytes` of both points are those of the whole logits, so that they can be compared.
#pragma once

#include <rankcast/parallel/logits.hpp>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "measure.hpp"
#include "values.hpp"

namespace bench {

/// Rows of logits over 49152 ids, of which a rank holds its share of the columns.
class logits_case {
 public:
  static constexpr std::int64_t ids = 49152;  // 48 rounds of the values 0 to 1023

  logits_case(const rankcast::communicator& comm, std::size_t bytes)
      : vocabulary_(comm, ids),
        rows_(static_cast<std::int64_t>(bytes / sizeof(float)) / ids),
        shard_(rankcast::dtype::float32, {rows_, vocabulary_.mine().count}),
        targets_(static_cast<std::size_t>(rows_)) {
    if (comm.rank() == 0) whole_ = rankcast::tensor(rankcast::dtype::float32, {rows_, ids});
  }

  void prepare(int sample) {
    const rankcast::vocabulary_shard& mine = vocabulary_.mine();
    for (std::int64_t row = 0; row < rows_; ++row) {
      float* values = shard_.data<float>() + row * mine.count;
      for (std::int64_t i = 0; i < mine.count; ++i) {
        values[i] = value(static_cast<std::size_t>(mine.first + i), shift(row, sample));
      }
      targets_[static_cast<std::size_t>(row)] = (row * 7919 + sample) % ids;
    }
    if (at_root()) spoil({whole_.data<float>(), static_cast<std::size_t>(rows_ * ids)});
  }

  void gather() {
    if (at_root()) rankcast::gather_logits(vocabulary_, shard_, whole_);
    else rankcast::gather_logits(vocabulary_, shard_, rankcast::nothing);
  }
  void score() { scores_ = rankcast::token_log_probabilities(vocabulary_, shard_, targets_); }

  void check_gathered(int sample) const {
    for (std::int64_t at = 0; at_root() && at < rows_ * ids; ++at) {
      const auto id = static_cast<std::size_t>(at % ids);
      if (whole_.data<float>()[at] == value(id, shift(at / ids, sample))) continue;
      throw std::runtime_error("WRONG: gathered logit " + std::to_string(at));
    }
  }
  void check_scored(int sample) const {
    const double normalizer = 1023 + std::log(48 / (1 - std::exp(-1.0)));
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const double wanted =
          value(static_cast<std::size_t>(targets_[at]), shift(row, sample)) - normalizer;
      if (std::abs(static_cast<double>(scores_.log_probability[at]) - wanted) < 0.01) continue;
      throw std::runtime_error("WRONG: log-probability of row " + std::to_string(row));
    }
  }

 private:
  [[nodiscard]] bool at_root() const { return vocabulary_.comm().rank() == 0; }
  static std::uint32_t shift(std::int64_t row, int sample) {
    return shift_of(static_cast<int>(row), sample);
  }

  rankcast::sharded_vocabulary vocabulary_;
  std::int64_t rows_;
  rankcast::tensor shard_, whole_;
  std::vector<std::int64_t> targets_;
  rankcast::token_scores scores_;
};

/// False when the point is none of these.
inline bool measure_logits(stage& here, const command& given, const point& p,
                           const rankcast::communicator& comm) {
  const bool gather = p.operation == "gather_logits";
  if (!gather && p.operation != "token_log_probabilities") return false;
  logits_case logits(comm, p.bytes);
  const auto prepare = [&](int sample) { logits.prepare(sample); };
  if (gather) {
    measure(
        here, given, p, prepare, [&] { logits.gather(); },
        [&](int sample) { logits.check_gathered(sample); });
  } else {
    measure(
        here, given, p, prepare, [&] { logits.score(); },
        [&](int sample) { logits.check_scored(sample); });
  }
  return true;
}

}  // namespace bench
