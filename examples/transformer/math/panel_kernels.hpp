/// The inner kernels of the matrix product, and their choice at run time.
///
/// Weights lie in panels of 32 outputs, input index outermost: panel[k][o], 32 outputs side by
/// side. A kernel keeps 32 outputs of a few rows in registers and adds panel[k] * x[row][k] for
/// k = 0, 1, 2, ... into them, in float32. Every output is thus one chain of fused multiply-adds in
/// the order of k: its bits depend neither on the number of rows, nor on threads, nor on how deep
/// the blocks are, and are the same with AVX2 and AVX-512.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "rankcast/core/dtype.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rankcast::transformer::detail {

/// Outputs side by side in one panel.
inline constexpr std::int64_t panel_width = 32;

/// y[rows, 32] = (add ? y : 0) + x[rows, depth] * panel[depth, 32]; strides in elements. The number
/// of rows belongs to the function.
template <class Weight>
using panel_kernel = void (*)(const Weight* panel, std::int64_t depth, const float* x,
                              std::int64_t x_stride, float* y, std::int64_t y_stride, bool add);

/// Writes `count` weights, a multiple of 32, as float32; exact.
using widening = void (*)(const bfloat16* from, float* to, std::int64_t count);

inline void widen_portable(const bfloat16* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
}

/// Any processor; left to the compiler's vectoriser.
template <int Rows, class Weight>
void panel_portable(const Weight* panel, std::int64_t depth, const float* x, std::int64_t x_stride,
                    float* y, std::int64_t y_stride, bool add) {
  for (std::int64_t row = 0; row < Rows; ++row) {
    std::array<float, panel_width> sums{};
    float* const out = y + row * y_stride;
    for (std::size_t o = 0; add && o < sums.size(); ++o) sums[o] = out[o];
    for (std::int64_t k = 0; k < depth; ++k) {
      const float value = x[row * x_stride + k];
      const Weight* const weights = panel + k * panel_width;
      for (std::size_t o = 0; o < sums.size(); ++o) sums[o] += float{weights[o]} * value;
    }
    for (std::size_t o = 0; o < sums.size(); ++o) out[o] = sums[o];
  }
}

#if defined(__x86_64__)

// Bytes ahead of the weights in use that are asked for. The hardware's prefetchers stop at each
// 4 KiB page; asking a page ahead keeps one core at the read bandwidth through all of a matrix.
inline constexpr std::int64_t prefetch_distance = 4096;

template <class Weight>
[[gnu::always_inline]] inline void prefetch_step(const Weight* weights) {
  const char* const ahead = reinterpret_cast<const char*>(weights) + prefetch_distance;
  _mm_prefetch(ahead, _MM_HINT_T0);
  if constexpr (sizeof(Weight) == 4) _mm_prefetch(ahead + 64, _MM_HINT_T0);
}

[[gnu::target("avx512f"), gnu::always_inline]] inline __m512 load_avx512(const float* from) {
  return _mm512_loadu_ps(from);
}
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512 load_avx512(const bfloat16* from) {
  const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  // Masks of all ones cost nothing: g++ 12 warns of its own header's unmasked forms.
  constexpr __mmask16 all = 0xffff;
  return _mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(all, _mm512_maskz_cvtepu16_epi32(all, narrow), 16));
}

[[gnu::target("avx512f")]] inline void widen_avx512(const bfloat16* from, float* to,
                                                    std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += panel_width) {
    prefetch_step(from + i);
    _mm512_storeu_ps(to + i, load_avx512(from + i));
    _mm512_storeu_ps(to + i + 16, load_avx512(from + i + 16));
  }
}

/// 2 * Rows accumulators of 16 floats: 8 rows take 16 of the 32 registers and hide the latency of
/// two multiply-add units; more rows were not faster.
template <int Rows, class Weight>
[[gnu::target("avx512f")]] void panel_avx512(const Weight* panel, std::int64_t depth,
                                             const float* x, std::int64_t x_stride, float* y,
                                             std::int64_t y_stride, bool add) {
  constexpr std::size_t size = Rows;
  __m512 low[size];
  __m512 high[size];
  for (int row = 0; row < Rows; ++row) {
    low[row] = add ? _mm512_loadu_ps(y + row * y_stride) : _mm512_setzero_ps();
    high[row] = add ? _mm512_loadu_ps(y + row * y_stride + 16) : _mm512_setzero_ps();
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    const Weight* const weights = panel + k * panel_width;
    prefetch_step(weights);
    const __m512 first = load_avx512(weights);
    const __m512 second = load_avx512(weights + 16);
    for (int row = 0; row < Rows; ++row) {
      const __m512 value = _mm512_set1_ps(x[row * x_stride + k]);
      low[row] = _mm512_fmadd_ps(first, value, low[row]);
      high[row] = _mm512_fmadd_ps(second, value, high[row]);
    }
  }
  for (int row = 0; row < Rows; ++row) {
    _mm512_storeu_ps(y + row * y_stride, low[row]);
    _mm512_storeu_ps(y + row * y_stride + 16, high[row]);
  }
}

[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 load_avx2(const float* from) {
  return _mm256_loadu_ps(from);
}
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 load_avx2(const bfloat16* from) {
  const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
}

[[gnu::target("avx2,fma")]] inline void widen_avx2(const bfloat16* from, float* to,
                                                   std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += panel_width) {
    prefetch_step(from + i);
    for (int part = 0; part < 4; ++part) {
      _mm256_storeu_ps(to + i + part * 8, load_avx2(from + i + part * 8));
    }
  }
}

/// 4 * Rows accumulators of 8 floats: 3 rows take 12 of the 16 registers.
template <int Rows, class Weight>
[[gnu::target("avx2,fma")]] void panel_avx2(const Weight* panel, std::int64_t depth, const float* x,
                                            std::int64_t x_stride, float* y, std::int64_t y_stride,
                                            bool add) {
  constexpr std::size_t size = Rows;
  __m256 sums[size][4];
  for (int row = 0; row < Rows; ++row) {
    for (int part = 0; part < 4; ++part) {
      const float* const from = y + row * y_stride + part * 8;
      sums[row][part] = add ? _mm256_loadu_ps(from) : _mm256_setzero_ps();
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    const Weight* const weights = panel + k * panel_width;
    prefetch_step(weights);
    __m256 values[size];
    for (int row = 0; row < Rows; ++row) values[row] = _mm256_set1_ps(x[row * x_stride + k]);
    for (int part = 0; part < 4; ++part) {
      const __m256 loaded = load_avx2(weights + part * 8);
      for (int row = 0; row < Rows; ++row) {
        sums[row][part] = _mm256_fmadd_ps(loaded, values[row], sums[row][part]);
      }
    }
  }
  for (int row = 0; row < Rows; ++row) {
    for (int part = 0; part < 4; ++part) {
      _mm256_storeu_ps(y + row * y_stride + part * 8, sums[row][part]);
    }
  }
}

#endif

/// The kernels of one instruction set: [rows - 1] handles `rows` rows, 1 to max_rows.
struct kernel_set {
  static constexpr std::size_t capacity = 8;
  const char* name;
  std::int64_t max_rows;
  widening widen;
  std::array<panel_kernel<float>, capacity> for_float32;
  std::array<panel_kernel<bfloat16>, capacity> for_bfloat16;
};

template <int... Index>
kernel_set portable_kernels(std::integer_sequence<int, Index...>) {
  return {"portable",
          sizeof...(Index),
          &widen_portable,
          {&panel_portable<Index + 1, float>...},
          {&panel_portable<Index + 1, bfloat16>...}};
}

#if defined(__x86_64__)
template <int... Index>
kernel_set avx2_kernels(std::integer_sequence<int, Index...>) {
  return {"avx2",
          sizeof...(Index),
          &widen_avx2,
          {&panel_avx2<Index + 1, float>...},
          {&panel_avx2<Index + 1, bfloat16>...}};
}

template <int... Index>
kernel_set avx512_kernels(std::integer_sequence<int, Index...>) {
  return {"avx512",
          sizeof...(Index),
          &widen_avx512,
          {&panel_avx512<Index + 1, float>...},
          {&panel_avx512<Index + 1, bfloat16>...}};
}
#endif

/// The widest kernels this processor and system run.
[[nodiscard]] inline kernel_set choose_kernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    return avx512_kernels(std::make_integer_sequence<int, 8>());
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return avx2_kernels(std::make_integer_sequence<int, 3>());
  }
#endif
  return portable_kernels(std::make_integer_sequence<int, 4>());
}

}  // namespace rankcast::transformer::detail
