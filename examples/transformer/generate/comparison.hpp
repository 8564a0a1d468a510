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
      const float difference = std::fabs(logits[i] - expected[i]);
      // Not max(): a NaN must not be passed over.
      if (!(difference <= largest_)) largest_ = difference;
    }
    ++steps_;
    const std::int32_t wanted = lead.tokens[index];
    if (picked == wanted) return;
    const float margin = std::fabs(expected[static_cast<std::size_t>(wanted)] -
                                   expected[static_cast<std::size_t>(picked)]);
    const bool tie = margin < tie_margin;
    ++(tie ? ties_ : disagreements_);
    notes_ += (tie ? "tie" : "difference") + std::string(" in prompt ") + std::to_string(prompt) +
              " at token " + std::to_string(index) + ": unsharded " + std::to_string(wanted) +
              ", sharded " + std::to_string(picked) + ", their logits are " +
              std::to_string(margin) + " apart\n";
  }

  [[nodiscard]] bool tokens_agree() const noexcept {
    return disagreements_ == 0 && std::isfinite(largest_);
  }
  [[nodiscard]] float max_logit_difference() const noexcept { return largest_; }
  [[nodiscard]] int steps() const noexcept { return steps_; }
  [[nodiscard]] int ties() const noexcept { return ties_; }
  [[nodiscard]] int disagreements() const noexcept { return disagreements_; }
  /// One line per tie or difference.
  [[nodiscard]] const std::string& notes() const noexcept { return notes_; }

 private:
  const run_figures& unsharded_;
  float largest_ = 0;
  int steps_ = 0;
  int ties_ = 0;
  int disagreements_ = 0;
  std::string notes_;
};

}  // namespace rankcast::transformer
