/// Loops over rows that a library call each would be too much for: products of one vector with many
/// rows, of float32 (attention) or bfloat16 (weights), and the weighted sum of many rows. Compiled
/// for several instruction sets, chosen once at run time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "rankcast/core/dtype.hpp"

namespace rankcast::transformer {

namespace detail {

// Independent sums, so that the compiler may use vector registers without reordering a sum; enough
// of them that one addition need not wait for the one before.
inline constexpr std::int64_t lanes = 32;

template <class Element>
[[gnu::always_inline]] inline void row_dots_loop(const Element* rows, std::int64_t count,
                                                 std::int64_t width, const float* x, float scale,
                                                 float* out) {
  for (std::int64_t r = 0; r < count; ++r, rows += width) {
    std::array<float, lanes> sums{};
    std::int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
      // A page ahead: the hardware's prefetchers stop at its end.
      __builtin_prefetch(reinterpret_cast<const char*>(rows + i) + 4096);
      for (std::int64_t l = 0; l < lanes; ++l) {
        sums[static_cast<std::size_t>(l)] += static_cast<float>(rows[i + l]) * x[i + l];
      }
    }
    float sum = 0;
    for (; i < width; ++i) sum += static_cast<float>(rows[i]) * x[i];
    for (std::size_t half = lanes / 2; half > 0; half /= 2) {
      for (std::size_t l = 0; l < half; ++l) sums[l] += sums[l + half];
    }
    out[r] = (sum + sums[0]) * scale;
  }
}

[[gnu::always_inline]] inline void weighted_rows_loop(const float* rows, std::int64_t count,
                                                      std::int64_t width, const float* weights,
                                                      float* out) {
  for (std::int64_t i = 0; i < width; ++i) out[i] = 0;
  for (std::int64_t r = 0; r < count; ++r, rows += width) {
    const float w = weights[r];
    for (std::int64_t i = 0; i < width; ++i) out[i] += w * rows[i];
  }
}

template <class Element>
void row_dots_portable(const Element* rows, std::int64_t count, std::int64_t width, const float* x,
                       float scale, float* out) {
  row_dots_loop(rows, count, width, x, scale, out);
}
inline void weighted_rows_portable(const float* rows, std::int64_t count, std::int64_t width,
                                   const float* weights, float* out) {
  weighted_rows_loop(rows, count, width, weights, out);
}

#if defined(__x86_64__)
template <class Element>
[[gnu::target("avx2,fma")]] void row_dots_avx2(const Element* rows, std::int64_t count,
                                               std::int64_t width, const float* x, float scale,
                                               float* out) {
  row_dots_loop(rows, count, width, x, scale, out);
}
[[gnu::target("avx2,fma")]] inline void weighted_rows_avx2(const float* rows, std::int64_t count,
                                                           std::int64_t width, const float* weights,
                                                           float* out) {
  weighted_rows_loop(rows, count, width, weights, out);
}
#endif

struct vector_kernels {
  template <class Element>
  using row_dots_function = void (*)(const Element*, std::int64_t, std::int64_t, const float*,
                                     float, float*);

  row_dots_function<float> row_dots = row_dots_portable<float>;
  row_dots_function<bfloat16> row_dots_bfloat16 = row_dots_portable<bfloat16>;
  void (*weighted_rows)(const float*, std::int64_t, std::int64_t, const float*,
                        float*) = weighted_rows_portable;

  static const vector_kernels& chosen() {
    static const vector_kernels kernels = [] {
      vector_kernels k;
#if defined(__x86_64__)
      if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        k = {row_dots_avx2<float>, row_dots_avx2<bfloat16>, weighted_rows_avx2};
      }
#endif
      return k;
    }();
    return kernels;
  }
};

}  // namespace detail

/// out[r] = scale * rows[r] . x, for rows [count, width]; sums in float32.
inline void row_dots(const float* rows, std::int64_t count, std::int64_t width, const float* x,
                     float scale, float* out) {
  detail::vector_kernels::chosen().row_dots(rows, count, width, x, scale, out);
}

inline void row_dots(const bfloat16* rows, std::int64_t count, std::int64_t width, const float* x,
                     float scale, float* out) {
  detail::vector_kernels::chosen().row_dots_bfloat16(rows, count, width, x, scale, out);
}

/// out[width] = sum over r of weights[r] * rows[r], for rows [count, width].
inline void weighted_rows(const float* rows, std::int64_t count, std::int64_t width,
                          const float* weights, float* out) {
  detail::vector_kernels::chosen().weighted_rows(rows, count, width, weights, out);
}

}  // namespace rankcast::transformer
