/// Rows of one rank's logits as float32, and what is computed over them: the largest, the sum of
/// exponentials. Rows are read in chunks that stay in the L1 cache, whatever their type and
/// strides.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "rankcast/core/dtype.hpp"
#include "rankcast/core/tensor.hpp"

namespace rankcast::inline v0::detail {

inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
inline constexpr float plus_infinity = std::numeric_limits<float>::infinity();

[[nodiscard]] constexpr bool is_logit_type(dtype type) noexcept {
  return type == dtype::float32 || type == dtype::bfloat16 || type == dtype::float16;
}

// Values that are looked at together; a multiple of `lanes`.
inline constexpr std::int64_t chunk_logits = 512;
// Sums and maxima run in this many interleaved accumulators, which a compiler turns into vectors.
inline constexpr std::size_t lanes = 8;
using logit_chunk = std::array<float, static_cast<std::size_t>(chunk_logits)>;

/// exp(x) for -infinity <= x <= 0, relative error below 3e-7; below -87 it is 0. Plain arithmetic,
/// so that every rank that runs this binary gets the same bits. The limit is applied to the bits,
/// as integers: a choice between floats would become a branch, which loops cannot vectorise.
/// Source: Cephes, expf.
[[nodiscard]] inline float exp_nonpositive(float x) noexcept {
  constexpr auto limit = std::bit_cast<std::int32_t>(87.0f);
  const std::int32_t magnitude = std::bit_cast<std::int32_t>(x) & 0x7fffffff;
  const float y = -std::bit_cast<float>(std::min(magnitude, limit));
  const auto n = static_cast<std::int32_t>(y * 1.44269504088896341f - 0.5f);  // rounds, as y <= 0
  const auto f = static_cast<float>(n);
  const float r = (y - f * 0.693359375f) + f * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const auto scaled = std::bit_cast<std::int32_t>(p * std::bit_cast<float>((n + 127) << 23));
  const std::int32_t kept = (magnitude - limit - 1) >> 31;  // all ones up to the limit, else zero
  return std::bit_cast<float>(scaled & kept);
}

template <class T>
void load_values(const std::byte* at, std::int64_t stride, std::int64_t n, float* out) noexcept {
  const T* values = reinterpret_cast<const T*>(at);
  if constexpr (std::is_same_v<T, float>) {
    if (stride == 1) {
      std::memcpy(out, values, static_cast<std::size_t>(n) * sizeof(float));
      return;
    }
  }
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(values[i * stride]);
}

/// The first `columns` columns of logits [rows, width], any strides.
class logit_rows {
 public:
  logit_rows() = default;
  logit_rows(const const_tensor_view& logits, std::int64_t columns) noexcept
      : base_(logits.address()),
        type_(logits.dtype()),
        columns_(columns),
        row_stride_(logits.layout().stride(0)),
        stride_(logits.layout().stride(1)) {}

  [[nodiscard]] std::int64_t columns() const noexcept { return columns_; }

  /// Columns [first, first + n) of a row, n <= chunk_logits; the chunk is filled up with -infinity
  /// to a multiple of `lanes`. Returns that multiple.
  std::size_t load(std::int64_t row, std::int64_t first, std::int64_t n,
                   logit_chunk& chunk) const noexcept {
    const std::byte* at =
        base_ + (row * row_stride_ + first * stride_) * static_cast<std::int64_t>(size_of(type_));
    if (type_ == dtype::bfloat16) load_values<bfloat16>(at, stride_, n, chunk.data());
    else if (type_ == dtype::float16) load_values<float16>(at, stride_, n, chunk.data());
    else load_values<float>(at, stride_, n, chunk.data());
    auto filled = static_cast<std::size_t>(n);
    while (filled % lanes != 0) chunk[filled++] = minus_infinity;
    return filled;
  }

  /// Calls f(first column, columns, chunk, filled) over a row until it returns false.
  template <class F>
  void each_chunk(std::int64_t row, F&& f) const {
    alignas(64) logit_chunk chunk;
    for (std::int64_t first = 0; first < columns_; first += chunk_logits) {
      const std::int64_t n = std::min(chunk_logits, columns_ - first);
      const std::size_t filled = load(row, first, n, chunk);
      if (!f(first, n, chunk, filled)) return;
    }
  }

  [[nodiscard]] float at(std::int64_t row, std::int64_t column) const noexcept {
    logit_chunk chunk;
    load(row, column, 1, chunk);
    return chunk[0];
  }

 private:
  const std::byte* base_ = nullptr;
  dtype type_ = dtype::float32;
  std::int64_t columns_ = 0;
  std::int64_t row_stride_ = 0;  // in elements
  std::int64_t stride_ = 1;
};

/// The largest of a chunk; NaNs are passed over.
[[nodiscard]] inline float largest(const logit_chunk& x, std::size_t filled) noexcept {
  std::array<float, lanes> m;
  m.fill(minus_infinity);
  for (std::size_t i = 0; i < filled; i += lanes) {
    for (std::size_t l = 0; l < lanes; ++l) m[l] = x[i + l] > m[l] ? x[i + l] : m[l];
  }
  return *std::max_element(m.begin(), m.end());
}

[[nodiscard]] inline bool has_nan(const logit_chunk& x, std::size_t filled) noexcept {
  std::array<std::int32_t, lanes> found{};
  for (std::size_t i = 0; i < filled; i += lanes) {
    for (std::size_t l = 0; l < lanes; ++l) found[l] |= x[i + l] != x[i + l] ? 1 : 0;
  }
  return std::any_of(found.begin(), found.end(), [](std::int32_t f) { return f != 0; });
}

/// Sum of exp(x - shift) over a chunk; shift is finite and not below any x.
[[nodiscard]] inline double sum_of_exp(const logit_chunk& x, std::size_t filled,
                                       float shift) noexcept {
  std::array<float, lanes> s{};
  for (std::size_t i = 0; i < filled; i += lanes) {
    for (std::size_t l = 0; l < lanes; ++l) s[l] += exp_nonpositive(x[i + l] - shift);
  }
  double total = 0;
  for (const float lane : s) total += static_cast<double>(lane);
  return total;
}

/// What one pass over a row finds. Columns count from the start of the shard.
struct row_summary {
  float largest = minus_infinity;
  std::int64_t column = -1;      // of the first of the largest; -1: nothing above -infinity
  std::int64_t nan_column = -1;  // -1: none
  double sum = 0;                // of exp(x - largest), when asked for
};

/// Largest logit and, with_sum, the sum of exponentials relative to it. A sum needs a finite
/// largest logit; it stays unspecified where that is +infinity.
template <bool with_sum>
[[nodiscard]] row_summary summarise(const logit_rows& rows, std::int64_t row) {
  row_summary s;
  rows.each_chunk(
      row, [&](std::int64_t first, std::int64_t, const logit_chunk& x, std::size_t filled) {
        if (has_nan(x, filled)) {
          const auto* at = std::find_if(x.begin(), x.end(), [](float v) { return v != v; });
          s.nan_column = first + (at - x.begin());
          return false;
        }
        const float top = detail::largest(x, filled);
        if (top > s.largest) {
          if (with_sum && s.sum != 0) {
            s.sum *= std::exp(static_cast<double>(s.largest) - static_cast<double>(top));
          }
          s.largest = top;
          s.column = first + (std::find(x.begin(), x.end(), top) - x.begin());
        }
        if (with_sum && s.column >= 0 && s.largest != plus_infinity) {
          s.sum += sum_of_exp(x, filled, s.largest);
        }
        return true;
      });
  return s;
}

}  // namespace rankcast::inline v0::detail
