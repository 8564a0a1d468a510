/// Weights of tokens for sampling, as whole numbers: their sums have no rounding, so that they are
/// the same however a vocabulary is cut.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "rankcast/parallel/logits/rows.hpp"

namespace rankcast::inline v0::detail {

/// Weights of tokens as whole numbers: floor(exp((logit - largest) / temperature) * 2^bits), with
/// as many bits as keep the sum over the vocabulary below 2^62.
class token_weights {
 public:
  token_weights(float temperature, std::int64_t vocabulary) noexcept
      : temperature_(temperature),
        scale_(std::ldexp(
            1.0f, 62 - static_cast<int>(std::bit_width(static_cast<std::uint64_t>(vocabulary))))) {}

  /// Not inlined, and without a loop remainder: whoever asks for a token's weight gets the same.
  [[gnu::noinline]] void of(const logit_chunk& logits, std::size_t filled, float largest,
                            std::uint64_t* weights) const noexcept {
    for (std::size_t i = 0; i < filled; i += lanes) {
      std::array<float, lanes> e;
      for (std::size_t l = 0; l < lanes; ++l) {
        e[l] = exp_nonpositive((logits[i + l] - largest) / temperature_) * scale_;
      }
      for (std::size_t l = 0; l < lanes; ++l) weights[i + l] = static_cast<std::uint64_t>(e[l]);
    }
  }

 private:
  float temperature_;
  float scale_;
};

using weight_chunk = std::array<std::uint64_t, static_cast<std::size_t>(chunk_logits)>;

/// floor(share * total), at least 0 and below `total`.
[[nodiscard]] inline std::uint64_t point_in(double share, std::uint64_t total) noexcept {
  return std::min(static_cast<std::uint64_t>(share * static_cast<double>(total)), total - 1);
}

}  // namespace rankcast::inline v0::detail
