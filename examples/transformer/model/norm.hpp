/// The two normalisations of the families: RMSNorm and LayerNorm, statistics in float32.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "transformer/checkpoint/folder.hpp"
#include "transformer/checkpoint/slices.hpp"

namespace rankcast::transformer {

/// Replicated on every rank. With a bias it is a LayerNorm (GPT-NeoX), without an RMSNorm.
class norm {
 public:
  norm(std::string tensor, std::int64_t hidden, float epsilon, bool centred)
      : tensor_(std::move(tensor)), hidden_(hidden), epsilon_(epsilon), centred_(centred) {}

  void load(checkpoint& from) {
    weight_.resize(dtype::float32, {hidden_});
    copy_whole(from.stored(tensor_ + ".weight"), {hidden_}, weight_);
    if (!centred_) return;
    bias_.resize(dtype::float32, {hidden_});
    copy_whole(from.stored(tensor_ + ".bias"), {hidden_}, bias_);
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
      const float* w = weight_.data<float>();
      if (centred_) {
        const float* b = bias_.data<float>();
        for (std::int64_t i = 0; i < hidden_; ++i) out[i] = (in[i] - centre) * scale * w[i] + b[i];
      } else {
        for (std::int64_t i = 0; i < hidden_; ++i) out[i] = in[i] * scale * w[i];
      }
    }
  }

  [[nodiscard]] std::size_t weight_bytes() const noexcept {
    return weight_.bytes() + bias_.bytes();
  }

 private:
  std::string tensor_;
  std::int64_t hidden_;
  float epsilon_;
  bool centred_;
  tensor weight_ = tensor(dtype::float32, {0});
  tensor bias_ = tensor(dtype::float32, {0});
};

}  // namespace rankcast::transformer
