/// Rotary position embedding, as the Hugging Face weights want it: the two halves of the rotated
/// dimensions form pairs (i, i + d/2); angles, cosines and sines in float32.
/// Source: Su et al., RoFormer, 2021; Llama 3's frequency scaling from its published config.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "transformer/checkpoint/config.hpp"

namespace rankcast::transformer {

class rotary {
 public:
  explicit rotary(const model_config& config) : half_(config.rope.dimensions / 2) {
    const auto dimensions = static_cast<float>(config.rope.dimensions);
    for (std::int64_t i = 0; i < half_; ++i) {
      const float exponent = static_cast<float>(2 * i) / dimensions;
      const float frequency = 1.0F / std::pow(static_cast<float>(config.rope.theta), exponent);
      frequencies_.push_back(scaled(frequency, config.rope));
    }
  }

  /// Rotates heads [heads, head_dim] of the token at `position`, in place.
  void apply(float* heads, std::int64_t count, std::int64_t head_dim, std::int64_t position) {
    extend(position);
    const float* cosine = cosines_.data() + position * half_;
    const float* sine = sines_.data() + position * half_;
    for (std::int64_t h = 0; h < count; ++h, heads += head_dim) {
      for (std::int64_t i = 0; i < half_; ++i) {
        const float a = heads[i];
        const float b = heads[i + half_];
        heads[i] = a * cosine[i] - b * sine[i];
        heads[i + half_] = b * cosine[i] + a * sine[i];
      }
    }
  }

 private:
  // Llama 3: long wavelengths are stretched by `factor`, short ones kept, a ramp between.
  static float scaled(float frequency, const rope_config& s) {
    if (s.scaling == rope_scaling::none) return frequency;
    const auto factor = static_cast<float>(s.factor);
    if (s.scaling == rope_scaling::linear) return frequency / factor;
    const auto low = static_cast<float>(s.low_frequency_factor);
    const auto high = static_cast<float>(s.high_frequency_factor);
    const auto old_length = static_cast<float>(s.original_max_positions);
    const float wavelength = 2.0F * std::numbers::pi_v<float> / frequency;
    if (wavelength > old_length / low) return frequency / factor;
    if (wavelength < old_length / high) return frequency;
    const float smooth = (old_length / wavelength - low) / (high - low);
    return (1.0F - smooth) * frequency / factor + smooth * frequency;
  }

  void extend(std::int64_t position) {
    for (; positions_ <= position; ++positions_) {
      for (const float frequency : frequencies_) {
        const float angle = static_cast<float>(positions_) * frequency;
        cosines_.push_back(std::cos(angle));
        sines_.push_back(std::sin(angle));
      }
    }
  }

  std::int64_t half_;
  std::vector<float> frequencies_;
  std::int64_t positions_ = 0;  // rows of the two tables
  std::vector<float> cosines_;
  std::vector<float> sines_;
};

}  // namespace rankcast::transformer
