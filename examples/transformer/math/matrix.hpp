/// The weights of one matrix product, packed in place for it, which also serve as embedding rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "pages.hpp"
#include "panel_product.hpp"
#include "rankcast/core/dtype.hpp"
#include "rankcast/core/error.hpp"
#include "rankcast/core/tensor.hpp"
#include "threads.hpp"

namespace rankcast::transformer {

/// Weights [out, in] in float32 or bfloat16, for y = x * transposed(weights).
///
/// Filled row by row through row(), then packed by finish() and constant from there on. Packing
/// happens within the same memory: 32 rows take the same bytes in both layouts, so no second copy
/// exists at any time. After finish() any number of threads may call the const functions at once.
class matrix {
 public:
  /// Zero weights, to be written through row(). `type` is dtype::float32 or dtype::bfloat16.
  /// Throws usage_error for other types, out < 1 or in < 1; std::bad_alloc.
  matrix(std::int64_t out, std::int64_t in, dtype type) : out_(out), in_(in), type_(type) {
    if (type != dtype::float32 && type != dtype::bfloat16) {
      throw usage_error("matrix: weights are float32 or bfloat16, not " + std::string(name(type)));
    }
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 8;
    if (out < 1 || in < 1 || out > most - width || in > most / (out + width)) {
      throw usage_error("matrix: no weights of shape [" + std::to_string(out) + ", " +
                        std::to_string(in) + "]");
    }
    storage_ = pages(static_cast<std::size_t>(panels() * width) * row_bytes());
  }

  /// A finished copy of contiguous weights [out, in]; Weight is float or bfloat16.
  /// Throws like the constructor, and usage_error when weights.size() is not out * in.
  template <class Weight>
  [[nodiscard]] static matrix copy_of(std::int64_t out, std::int64_t in,
                                      std::span<const Weight> weights) {
    matrix result(out, in, dtype_of<Weight>());
    if (weights.size() != static_cast<std::size_t>(out * in)) {
      throw usage_error("matrix::copy_of: " + std::to_string(weights.size()) +
                        " weights for shape [" + std::to_string(out) + ", " + std::to_string(in) +
                        "]");
    }
    std::memcpy(result.storage_.data(), weights.data(), weights.size_bytes());
    result.finish();
    return result;
  }

  [[nodiscard]] std::int64_t out() const noexcept { return out_; }
  [[nodiscard]] std::int64_t in() const noexcept { return in_; }
  [[nodiscard]] dtype type() const noexcept { return type_; }
  [[nodiscard]] bool finished() const noexcept { return finished_; }

  /// Bytes of weights one product reads: out * in elements, with out rounded up to 32.
  [[nodiscard]] std::size_t bytes() const noexcept { return storage_.size(); }

  /// The writable bytes of the `in` weights of output `index`, before finish(). Rows are
  /// contiguous: row(i + 1) begins where row(i) ends, so several rows may be written at once.
  /// Throws usage_error after finish() or for an index outside [0, out).
  [[nodiscard]] std::span<std::byte> row(std::int64_t index) {
    if (finished_) throw usage_error("matrix::row: the weights are already packed by finish()");
    check_index(index, "matrix::row");
    return {storage_.data() + static_cast<std::size_t>(index) * row_bytes(), row_bytes()};
  }

  /// Writable weights [count, in] of outputs [first, first + count), before finish().
  /// Throws usage_error after finish() or for outputs outside [0, out).
  [[nodiscard]] tensor_view rows(std::int64_t first, std::int64_t count) {
    if (first < 0 || count < 0 || first > out_ - count) {
      throw usage_error("matrix::rows: [" + std::to_string(first) + ", +" + std::to_string(count) +
                        ") of " + std::to_string(out_) + " outputs");
    }
    std::byte* const address = count == 0 ? nullptr : row(first).data();
    return {address, type_, layout::contiguous({count, in_})};
  }

  /// Packs the weights for product() and read_row(), on the calling thread alone: one to two
  /// seconds per gigabyte. A second call does nothing. Throws std::bad_alloc (32 rows of scratch).
  void finish() {
    if (finished_) return;
    if (type_ == dtype::float32)
      pack<float>();
    else
      pack<bfloat16>();
    finished_ = true;
  }

  /// y[rows, out] = x[rows, in] * transposed(weights), in float32.
  ///
  /// Row r of x begins at x + r * x_stride, of y at y + r * y_stride (elements); x and y do not
  /// overlap. Every sum is one float32 chain in the order of the inputs: the bits of a row depend
  /// neither on the other rows nor on the number of threads. Runs on the caller's team
  /// (scoped_threads). With few rows it costs one read of bytes() from memory; from about 16 rows
  /// on, the arithmetic: 2 * rows * out * in operations.
  /// Throws usage_error before finish(), for rows < 0, or strides below the row length.
  void product(const float* x, std::int64_t rows, std::int64_t x_stride, float* y,
               std::int64_t y_stride) const {
    check_finished("matrix::product");
    if (rows < 0) throw usage_error("matrix::product: " + std::to_string(rows) + " rows");
    if (rows > 1 && (x_stride < in_ || y_stride < out_)) {
      throw usage_error("matrix::product: strides " + std::to_string(x_stride) + " and " +
                        std::to_string(y_stride) + " for rows of " + std::to_string(in_) + " and " +
                        std::to_string(out_) + " elements");
    }
    if (rows == 0) return;
    if (type_ == dtype::float32)
      multiply<float>(x, rows, x_stride, y, y_stride);
    else
      multiply<bfloat16>(x, rows, x_stride, y, y_stride);
  }

  /// to[in] = the weights of output `index`, as float32: the embedding of one token. Costs `in`
  /// reads 32 elements apart. Throws usage_error before finish() or for an index outside [0, out).
  void read_row(std::int64_t index, float* to) const {
    check_finished("matrix::read_row");
    check_index(index, "matrix::read_row");
    if (type_ == dtype::float32)
      gather<float>(index, to);
    else
      gather<bfloat16>(index, to);
  }

 private:
  static constexpr std::int64_t width = detail::panel_width;

  [[nodiscard]] std::int64_t panels() const noexcept { return (out_ + width - 1) / width; }
  [[nodiscard]] std::size_t row_bytes() const noexcept {
    return static_cast<std::size_t>(in_) * size_of(type_);
  }

  /// Panel `index`: 32 outputs, [32, in] before finish() and [in, 32] after it.
  template <class Weight>
  [[nodiscard]] const Weight* panel(std::int64_t index) const noexcept {
    return reinterpret_cast<const Weight*>(storage_.data()) + index * width * in_;
  }

  template <class Weight>
  void pack() {
    std::vector<Weight> rows(static_cast<std::size_t>(width * in_));
    for (std::int64_t p = 0; p < panels(); ++p) {
      const auto from = panel<Weight>(p);
      std::copy_n(from, rows.size(), rows.data());
      auto to = const_cast<Weight*>(from);
      for (std::int64_t k = 0; k < in_; ++k) {
        for (std::int64_t o = 0; o < width; ++o) {
          *to++ = rows[static_cast<std::size_t>(o * in_ + k)];
        }
      }
    }
  }

  template <class Weight>
  void multiply(const float* x, std::int64_t rows, std::int64_t x_stride, float* y,
                std::int64_t y_stride) const {
    static const detail::kernel_set kernels = detail::choose_kernels();
    split_range(panels(), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t p = first; p < last; ++p) {
        detail::panel_product(kernels, panel<Weight>(p), in_, x, rows, x_stride, y + p * width,
                              y_stride, std::min(width, out_ - p * width));
      }
    });
  }

  template <class Weight>
  void gather(std::int64_t index, float* to) const {
    const Weight* from = panel<Weight>(index / width) + index % width;
    for (std::int64_t k = 0; k < in_; ++k) to[k] = from[k * width];
  }

  void check_index(std::int64_t index, const char* where) const {
    if (index >= 0 && index < out_) return;
    throw usage_error(std::string(where) + ": row " + std::to_string(index) + " of " +
                      std::to_string(out_));
  }
  void check_finished(const char* where) const {
    if (!finished_) throw usage_error(std::string(where) + ": call finish() first");
  }

  std::int64_t out_;
  std::int64_t in_;
  dtype type_;
  bool finished_ = false;
  pages storage_;
};

}  // namespace rankcast::transformer
