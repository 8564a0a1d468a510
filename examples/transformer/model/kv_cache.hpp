/// Keys and values of the tokens seen so far, for the KV heads that this rank holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rankcast/core/error.hpp"

namespace rankcast::transformer {

/// One sequence. Per layer and KV head: [capacity, head_dim] float32, contiguous, so that a query
/// reads its keys front to back.
class kv_cache {
 public:
  kv_cache() = default;
  kv_cache(std::int64_t layers, std::int64_t kv_heads, std::int64_t head_dim, std::int64_t capacity)
      : kv_heads_(kv_heads),
        head_dim_(head_dim),
        capacity_(capacity),
        keys_(static_cast<std::size_t>(layers * kv_heads * capacity * head_dim)),
        values_(keys_.size()) {}

  /// Tokens held; the next one gets this position.
  [[nodiscard]] std::int64_t length() const noexcept { return length_; }
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::int64_t head_dim() const noexcept { return head_dim_; }

  [[nodiscard]] float* keys(std::int64_t layer, std::int64_t head) noexcept {
    return keys_.data() + (layer * kv_heads_ + head) * capacity_ * head_dim_;
  }
  [[nodiscard]] float* values(std::int64_t layer, std::int64_t head) noexcept {
    return values_.data() + (layer * kv_heads_ + head) * capacity_ * head_dim_;
  }

  /// Throws usage_error when `more` tokens do not fit.
  void require(std::int64_t more) const {
    if (length_ + more > capacity_) {
      throw usage_error("kv_cache: " + std::to_string(length_) + " tokens held and " +
                        std::to_string(more) + " more do not fit a capacity of " +
                        std::to_string(capacity_));
    }
  }
  /// All layers have stored `more` tokens.
  void advance(std::int64_t more) noexcept { length_ += more; }
  /// Forgets all tokens but the first `length`.
  void truncate(std::int64_t length) noexcept {
    if (length < length_) length_ = length;
  }

 private:
  std::int64_t kv_heads_ = 0;
  std::int64_t head_dim_ = 0;
  std::int64_t capacity_ = 0;
  std::int64_t length_ = 0;
  std::vector<float> keys_;
  std::vector<float> values_;
};

}  // namespace rankcast::transformer
