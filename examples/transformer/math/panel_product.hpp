/// The product of some rows with one panel of weights: blocks over rows and depth.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "panel_kernels.hpp"

namespace rankcast::transformer::detail {

// 192 * 32 float32 weights are 24 KiB: with many rows a block of this depth stays in the
// first-level cache while the rows pass.
inline constexpr std::int64_t block_depth = 192;

inline const panel_kernel<float>* kernels_for(const kernel_set& set, float) noexcept {
  return set.for_float32.data();
}
inline const panel_kernel<bfloat16>* kernels_for(const kernel_set& set, bfloat16) noexcept {
  return set.for_bfloat16.data();
}

/// All rows with one block [depth, 32] of a panel: y[rows, width] (+)= x[rows, depth] * block.
template <class Weight>
void block_product(const kernel_set& set, const Weight* block, std::int64_t depth, const float* x,
                   std::int64_t rows, std::int64_t x_stride, float* y, std::int64_t y_stride,
                   std::int64_t width, bool add) {
  std::array<float, kernel_set::capacity * panel_width> spare{};
  std::int64_t tiles = (rows + set.max_rows - 1) / set.max_rows;
  for (std::int64_t row = 0; row < rows; --tiles) {
    // Even tiles: 13 rows are 7 + 6, not 12 + 1, since a short tile pays for all weights too.
    const std::int64_t count = (rows - row + tiles - 1) / tiles;
    const auto kernel = kernels_for(set, Weight{})[count - 1];
    const float* const from = x + row * x_stride;
    float* const to = y + row * y_stride;
    if (width == panel_width) {
      kernel(block, depth, from, x_stride, to, y_stride, add);
    } else {
      // The last panel of a matrix may have fewer outputs than a kernel writes.
      for (std::int64_t r = 0; add && r < count; ++r) {
        std::copy_n(to + r * y_stride, width, spare.data() + r * panel_width);
      }
      kernel(block, depth, from, x_stride, spare.data(), panel_width, add);
      for (std::int64_t r = 0; r < count; ++r) {
        std::copy_n(spare.data() + r * panel_width, width, to + r * y_stride);
      }
    }
    row += count;
  }
}

/// y[rows, width] = x[rows, in] * panel[in, 32], the first `width` outputs of the panel.
template <class Weight>
void panel_product(const kernel_set& set, const Weight* panel, std::int64_t in, const float* x,
                   std::int64_t rows, std::int64_t x_stride, float* y, std::int64_t y_stride,
                   std::int64_t width) {
  if (rows <= set.max_rows) {
    block_product(set, panel, in, x, rows, x_stride, y, y_stride, width, false);
    return;
  }
  for (std::int64_t k = 0; k < in; k += block_depth) {
    const std::int64_t depth = std::min(block_depth, in - k);
    const Weight* const block = panel + k * panel_width;
    if constexpr (sizeof(Weight) == sizeof(float)) {
      block_product(set, block, depth, x + k, rows, x_stride, y, y_stride, width, k > 0);
    } else {
      // Widened once for all rows instead of once per tile; widening is exact.
      alignas(64) std::array<float, block_depth * panel_width> wide;
      set.widen(block, wide.data(), depth * panel_width);
      block_product(set, wide.data(), depth, x + k, rows, x_stride, y, y_stride, width, k > 0);
    }
  }
}

}  // namespace rankcast::transformer::detail
