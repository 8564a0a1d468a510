/// Causal self-attention over this rank's heads, with grouped KV heads, a cache and, where the
/// family has one, a sliding window.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "transformer/math/vector.hpp"
#include "transformer/model/kv_cache.hpp"
#include "transformer/model/rotary.hpp"
#include "transformer/parallel/heads.hpp"
#include "transformer/parallel/linear.hpp"

namespace rankcast::transformer {

class attention {
 public:
  /// `window`: keys a query sees, itself included; 0 for all before it.
  attention(std::int64_t layer, head_share heads, std::int64_t head_dim, std::int64_t window,
            column_linear* qkv, row_linear* output)
      : layer_(layer),
        heads_(heads),
        head_dim_(head_dim),
        window_(window),
        qkv_(qkv),
        output_(output) {}

  /// in, out: [rows, hidden], the rows at positions cache.length() and on.
  void forward(const float* in, std::int64_t rows, kv_cache& cache, rotary& rope, float* out) {
    const std::int64_t nq = heads_.query.count;
    const std::int64_t nkv = heads_.kv.count;
    const std::int64_t width = (nq + 2 * nkv) * head_dim_;
    projected_.resize(static_cast<std::size_t>(rows * width));
    mixed_.resize(static_cast<std::size_t>(rows * nq * head_dim_));
    qkv_->forward(in, rows, projected_.data());

    const std::int64_t start = cache.length();
    for (std::int64_t r = 0; r < rows; ++r) {
      float* q = projected_.data() + r * width;
      float* k = q + nq * head_dim_;
      const float* v = k + nkv * head_dim_;
      rope.apply(q, nq, head_dim_, start + r);
      rope.apply(k, nkv, head_dim_, start + r);
      for (std::int64_t h = 0; h < nkv; ++h) {
        const std::int64_t at = (start + r) * head_dim_;
        std::copy_n(k + h * head_dim_, head_dim_, cache.keys(layer_, h) + at);
        std::copy_n(v + h * head_dim_, head_dim_, cache.values(layer_, h) + at);
      }
    }
    split_range(rows * nq, [&](std::int64_t first, std::int64_t last) {
      std::vector<float> scores;
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t r = i / nq;
        const std::int64_t h = i % nq;
        attend(projected_.data() + r * width + h * head_dim_, start + r,
               cache.keys(layer_, heads_.kv_of(h)), cache.values(layer_, heads_.kv_of(h)), scores,
               mixed_.data() + i * head_dim_);
      }
    });
    output_->forward(mixed_.data(), rows, out);
  }

 private:
  // One query at `position` over the keys it sees: softmax(q k / sqrt(d)) v, in float32.
  void attend(const float* q, std::int64_t position, const float* keys, const float* values,
              std::vector<float>& scores, float* out) const {
    const std::int64_t first = window_ == 0 ? 0 : std::max<std::int64_t>(0, position - window_ + 1);
    const std::int64_t count = position - first + 1;
    scores.resize(static_cast<std::size_t>(count));
    const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim_));
    row_dots(keys + first * head_dim_, count, head_dim_, q, scale, scores.data());
    float most = -std::numeric_limits<float>::infinity();
    for (const float s : scores) most = std::max(most, s);
    float total = 0;
    for (float& s : scores) {
      s = std::exp(s - most);
      total += s;
    }
    for (float& s : scores) s /= total;
    weighted_rows(values + first * head_dim_, count, head_dim_, scores.data(), out);
  }

  std::int64_t layer_;
  head_share heads_;
  std::int64_t head_dim_;
  std::int64_t window_;
  column_linear* qkv_;
  row_linear* output_;
  std::vector<float> projected_;  // [rows, q | k | v]
  std::vector<float> mixed_;      // [rows, query heads * head_dim]
};

}  // namespace rankcast::transformer
