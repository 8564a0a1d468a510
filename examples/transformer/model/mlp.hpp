/// The two MLPs of the families: gated (SiLU(gate) * up, Llama and its kin) and plain (GELU,
/// GPT-NeoX).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "transformer/checkpoint/config.hpp"
#include "transformer/parallel/linear.hpp"

namespace rankcast::transformer {

[[nodiscard]] inline float activate(activation kind, float x) noexcept {
  switch (kind) {
    case activation::silu: return x / (1.0F + std::exp(-x));
    case activation::gelu:
      return 0.5F * x * (1.0F + std::erf(x * std::numbers::sqrt2_v<float> / 2));
    case activation::gelu_tanh: {
      const float inner = 0.7978845608F * (x + 0.044715F * x * x * x);  // sqrt(2 / pi)
      return 0.5F * x * (1.0F + std::tanh(inner));
    }
  }
  return x;
}

class mlp {
 public:
  /// `width`: inner units on this rank; the input layer yields 2 * width when gated.
  mlp(activation kind, bool gated, std::int64_t width, column_linear* input, row_linear* output)
      : kind_(kind), gated_(gated), width_(width), input_(input), output_(output) {}

  /// in, out: [rows, hidden].
  void forward(const float* in, std::int64_t rows, float* out) {
    const std::int64_t columns = gated_ ? 2 * width_ : width_;
    inner_.resize(static_cast<std::size_t>(rows * columns));
    input_->forward(in, rows, inner_.data());
    float* compact = inner_.data();  // [rows, width], in place: never ahead of what is read
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* gate = inner_.data() + r * columns;
      for (std::int64_t i = 0; i < width_; ++i) {
        const float a = activate(kind_, gate[i]);
        compact[r * width_ + i] = gated_ ? a * gate[width_ + i] : a;
      }
    }
    output_->forward(compact, rows, out);
  }

 private:
  activation kind_;
  bool gated_;
  std::int64_t width_;
  column_linear* input_;
  row_linear* output_;
  std::vector<float> inner_;
};

}  // namespace rankcast::transformer
