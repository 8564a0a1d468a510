/// Sharded against unsharded: the run that follows an unsharded one is held against it step by
/// step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "transformer/generate/run.hpp"

namespace rankcast::transformer {

/// Where two runs pick different tokens although their logits are this close, it is a tie: either
/// token is right, and the comparison goes on from the unsharded one.
inline constexpr float tie_margin = 1e-3F;

/// What a comparison found; of several groups, one for each, to be added up.
struct comparison_result {
  float max_logit_difference = 0;
  int steps = 0;
  int ties = 0;
  int disagreements = 0;
  std::string notes;  // one line per tie or difference

  [[nodiscard]] bool tokens_agree() const noexcept {
    return disagreements == 0 && std::isfinite(max_logit_difference);
  }
  void note(float difference) noexcept {
    // Not max(): a NaN must not be passed over.
    if (!(difference <= max_logit_difference)) max_logit_difference = difference;
  }
  comparison_result& operator+=(const comparison_result& o) {
    note(o.max_logit_difference);
    steps += o.steps;
    ties += o.ties;
    disagreements += o.disagreements;
    notes += o.notes;
    return *this;
  }
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& max_logit_difference& steps& ties& disagreements& notes;
  }
};

class comparison {
 public:
  /// `unsharded` has been traced.
  explicit comparison(const run_figures& unsharded) : unsharded_(unsharded) {}

  /// One step of the other run: its logits [vocabulary], and what it would have picked.
  void step(std::size_t prompt, std::size_t index, std::span<const float> logits,
            std::int32_t picked) {
    const completion_result& lead = unsharded_.completions[prompt];
    const std::vector<float>& expected = lead.logits[index];
    for (std::size_t i = 0; i < expected.size(); ++i) {
      result_.note(std::fabs(logits[i] - expected[i]));
    }
    ++result_.steps;
    const std::int32_t wanted = lead.tokens[index];
    if (picked == wanted) return;
    const float margin = std::fabs(expected[static_cast<std::size_t>(wanted)] -
                                   expected[static_cast<std::size_t>(picked)]);
    const bool tie = margin < tie_margin;
    ++(tie ? result_.ties : result_.disagreements);
    result_.notes += (tie ? "tie" : "difference") + std::string(" in prompt ") +
                     std::to_string(prompt) + " at token " + std::to_string(index) +
                     ": unsharded " + std::to_string(wanted) + ", sharded " +
                     std::to_string(picked) + ", their logits are " + std::to_string(margin) +
                     " apart\n";
  }

  [[nodiscard]] const comparison_result& result() const noexcept { return result_; }

 private:
  const run_figures& unsharded_;
  comparison_result result_;
};

}  // namespace rankcast::transformer
