/// The two normalisations of the families: RMSNorm and LayerNorm, statistics in float32.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "transformer/checkpoint/folder.hpp"
#include "transformer/checkpoint/slices.hpp"

namespace rankcast::transformer {

/// Replicated on every rank. With a bias it is a LayerNorm (GPT-NeoX), without an RMSNorm.
class norm {
 public:
  norm(std::string tensor, std::int64_t hidden, float epsilon, bool centred)
      : tensor_(std::move(tensor)), hidden_(hidden), epsilon_(epsilon), centred_(centred) {}

  void load(checkpoint& from) {
    const slice all{0, hidden_};
    weight_.resize(static_cast<std::size_t>(hidden_));
    copy_slices(from.find(tensor_ + ".weight", {hidden_}), 0, {&all, 1},
                reinterpret_cast<std::byte*>(weight_.data()), dtype::float32);
    if (!centred_) return;
    bias_.resize(static_cast<std::size_t>(hidden_));
    copy_slices(from.find(tensor_ + ".bias", {hidden_}), 0, {&all, 1},
                reinterpret_cast<std::byte*>(bias_.data()), dtype::float32);
  }

  /// in, out: [rows, hidden]; they may be the same.
  void forward(const float* in, std::int64_t rows, float* out) const {
    const auto n = static_cast<double>(hidden_);
    for (std::int64_t r = 0; r < rows; ++r, in += hidden_, out += hidden_) {
      double mean = 0;
      if (centred_) {
        for (std::int64_t i = 0; i < hidden_; ++i) mean += static_cast<double>(in[i]);
        mean /= n;
      }
      double squares = 0;
      for (std::int64_t i = 0; i < hidden_; ++i) {
        const double d = static_cast<double>(in[i]) - mean;
        squares += d * d;
      }
      const auto centre = static_cast<float>(mean);
      const auto scale =
          static_cast<float>(1.0 / std::sqrt(squares / n + static_cast<double>(epsilon_)));
      const float* w = weight_.data();
      if (centred_) {
        for (std::int64_t i = 0; i < hidden_; ++i) {
          out[i] = (in[i] - centre) * scale * w[i] + bias_[static_cast<std::size_t>(i)];
        }
      } else {
        for (std::int64_t i = 0; i < hidden_; ++i) out[i] = in[i] * scale * w[i];
      }
    }
  }

  [[nodiscard]] std::size_t weight_bytes() const noexcept {
    return (weight_.size() + bias_.size()) * sizeof(float);
  }

 private:
  std::string tensor_;
  std::int64_t hidden_;
  float epsilon_;
  bool centred_;
  std::vector<float> weight_;
  std::vector<float> bias_;
};

}  // namespace rankcast::transformer
