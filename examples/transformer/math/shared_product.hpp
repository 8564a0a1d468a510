/// One product with the weights of a matrix, cut by outputs and shared by the threads of a team.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "library_product.hpp"
#include "rankcast/core/dtype.hpp"
#include "threads.hpp"
#include "vector.hpp"

namespace rankcast::transformer::detail {

/// Consecutive outputs of a matrix, computed by one call of the library.
struct output_range {
  std::int64_t first = 0;
  std::int64_t count = 0;
  const std::byte* weights = nullptr;  // of output `first`
};

/// split_range for bodies that may throw: what the first one threw is thrown on the caller.
template <class Body>
void split_range_throwing(std::int64_t count, Body&& body) {
  std::atomic<bool> failed{false};
  std::exception_ptr failure;
  split_range(count, [&](std::int64_t first, std::int64_t last) {
    try {
      for (std::int64_t i = first; i < last; ++i) body(i);
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

/// to[i] = from[i] for `count` elements, widened exactly.
inline void widen(const bfloat16* from, std::int64_t count, float* to) noexcept {
  // Blocks of a fixed size, which compilers turn into vector instructions without being asked.
  constexpr std::int64_t block = 32;
  std::int64_t i = 0;
  for (; i + block <= count; i += block) {
    for (std::int64_t k = 0; k < block; ++k) to[i + k] = static_cast<float>(from[i + k]);
  }
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

/// The rows of x [rows, in] one after the other in `to`, each element as Element.
template <class Element>
const Element* dense_rows(const float* x, std::int64_t rows, std::int64_t x_stride, std::int64_t in,
                          std::vector<Element>& to) {
  to.resize(static_cast<std::size_t>(rows * in));
  Element* at = to.data();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < in; ++k) *at++ = Element(x[row * x_stride + k]);
  }
  return to.data();
}

/// One product: x[rows, in] with weights, to y[rows, outputs]; strides in elements.
///
/// Few rows are computed by the parts of the matrix; many, with weights that lie in rows, in blocks
/// of about a megabyte, which stay in the second-level cache. bfloat16 weights and few rows, where
/// the time goes into reading the weights: oneDNN, with x rounded to bfloat16, where the processor
/// has bfloat16 instructions, and row_dots() elsewhere, for there oneDNN reads a quarter slower.
/// For many rows they are widened block by block and multiplied in float32: that is up to three
/// times faster than oneDNN's emulation, and works on all processors.
struct shared_product {
  dtype type;
  block_layout layout;
  std::int64_t in;
  const float* x;
  std::int64_t rows;
  std::int64_t x_stride;
  float* y;
  std::int64_t y_stride;

  /// Up to here, one pass over large pieces of the weights is fastest.
  static constexpr std::int64_t few_rows = 4;

  /// Runs on the caller's team. Throws transport_error when the library fails, std::bad_alloc.
  void run(std::span<const output_range> parts) const {
    static const bool has_bfloat16 = multiplies_bfloat16();
    const bool many = rows > few_rows;
    if (type == dtype::bfloat16 && !many && !has_bfloat16) {
      split_range_throwing(std::ssize(parts),
                           [&](std::int64_t i) { dots(parts[static_cast<std::size_t>(i)]); });
      return;
    }
    library_thread& caller = library_thread::mine();
    const bool widened = type == dtype::bfloat16 && many;
    const void* dense = x;
    if (type == dtype::bfloat16 && !widened) {
      dense = dense_rows(x, rows, x_stride, in, caller.narrow_x);
    } else if (rows > 1 && x_stride != in) {
      dense = dense_rows(x, rows, x_stride, in, caller.dense_x);
    }
    std::vector<output_range> blocks;
    if (widened || (many && layout == block_layout::rows)) {
      blocks = cut(parts);
      parts = blocks;
    }
    split_range_throwing(std::ssize(parts), [&](std::int64_t i) {
      compute(dense, widened, parts[static_cast<std::size_t>(i)]);
    });
  }

 private:
  [[nodiscard]] std::vector<output_range> cut(std::span<const output_range> parts) const {
    constexpr std::int64_t elements = std::int64_t{256} << 10;  // as float32, a megabyte
    const std::int64_t row_bytes = in * static_cast<std::int64_t>(size_of(type));
    const std::int64_t most = std::max<std::int64_t>(128, elements / in / 64 * 64);
    std::vector<output_range> blocks;
    for (const output_range& part : parts) {
      for (std::int64_t done = 0; done < part.count; done += most) {
        blocks.push_back({part.first + done, std::min(most, part.count - done),
                          part.weights + done * row_bytes});
      }
    }
    return blocks;
  }

  void dots(const output_range& range) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      row_dots(reinterpret_cast<const bfloat16*>(range.weights), range.count, in,
               x + row * x_stride, 1.0F, y + row * y_stride + range.first);
    }
  }

  void compute(const void* dense, bool widened, const output_range& range) const {
    library_thread& mine = library_thread::mine();
    const void* weights = range.weights;
    if (widened) {
      mine.wide_weights.resize(static_cast<std::size_t>(range.count * in));
      widen(reinterpret_cast<const bfloat16*>(range.weights), range.count * in,
            mine.wide_weights.data());
      weights = mine.wide_weights.data();
    }
    const block_product what{widened ? dtype::float32 : type, layout, rows, range.count, in};
    if (rows == 1 || y_stride == range.count) {
      mine.multiply(what, dense, weights, y + range.first);
      return;
    }
    // oneDNN's fast products write contiguous results only.
    mine.dense_y.resize(static_cast<std::size_t>(rows * range.count));
    mine.multiply(what, dense, weights, mine.dense_y.data());
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(mine.dense_y.data() + row * range.count, range.count,
                  y + row * y_stride + range.first);
    }
  }
};

}  // namespace rankcast::transformer::detail
