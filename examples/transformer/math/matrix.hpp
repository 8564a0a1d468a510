/// The weights of one matrix product, as oneDNN takes them; as rows, also an embedding table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "library_product.hpp"
#include "pages.hpp"
#include "rankcast/core/dtype.hpp"
#include "rankcast/core/error.hpp"
#include "rankcast/core/tensor.hpp"
#include "shared_product.hpp"
#include "threads.hpp"

namespace rankcast::transformer {

/// How the weights of a matrix lie once it is finished.
enum class storage : std::uint8_t {
  packed,  ///< as products with them are fastest
  rows,    ///< [out, in]: read_row() works; float32 products take longer, of 4 to 8 rows twice as
           ///< long
};

/// Weights [out, in] in float32 or bfloat16, for y = x * transposed(weights), computed by oneDNN.
///
/// Filled row by row through row(), then finished by finish() and constant from there on. With
/// storage::packed, finish() holds the weights of this one matrix twice; at any other time they
/// exist once. bfloat16 weights stay in rows either way: that is what oneDNN reads fastest.
/// After finish() any number of threads may call the const functions at once.
class matrix {
 public:
  /// Zero weights, to be written through row(). `type` is dtype::float32 or dtype::bfloat16.
  /// Throws usage_error for other types, out < 1 or in < 1; std::bad_alloc.
  matrix(std::int64_t out, std::int64_t in, dtype type, storage kept = storage::packed)
      : out_(out), in_(in), type_(type), storage_(kept) {
    if (type != dtype::float32 && type != dtype::bfloat16) {
      throw usage_error("matrix: weights are float32 or bfloat16, not " + std::string(name(type)));
    }
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 8;
    if (out < 1 || in < 1 || in > most / out) {
      throw usage_error("matrix: no weights of shape [" + std::to_string(out) + ", " +
                        std::to_string(in) + "]");
    }
    weights_ = pages(static_cast<std::size_t>(out_) * row_bytes());
  }

  /// A finished copy of contiguous weights [out, in]; Weight is float or bfloat16.
  /// Throws like the constructor, and usage_error when weights.size() is not out * in.
  template <class Weight>
  [[nodiscard]] static matrix copy_of(std::int64_t out, std::int64_t in,
                                      std::span<const Weight> weights,
                                      storage kept = storage::packed) {
    matrix result(out, in, dtype_of<Weight>(), kept);
    if (weights.size() != static_cast<std::size_t>(out * in)) {
      throw usage_error("matrix::copy_of: " + std::to_string(weights.size()) +
                        " weights for shape [" + std::to_string(out) + ", " + std::to_string(in) +
                        "]");
    }
    std::memcpy(result.weights_.data(), weights.data(), weights.size_bytes());
    result.finish();
    return result;
  }

  [[nodiscard]] std::int64_t out() const noexcept { return out_; }
  [[nodiscard]] std::int64_t in() const noexcept { return in_; }
  [[nodiscard]] dtype type() const noexcept { return type_; }
  [[nodiscard]] bool finished() const noexcept { return !parts_.empty(); }

  /// Bytes of weights one product reads: out * in elements, and some padding when packed.
  [[nodiscard]] std::size_t bytes() const noexcept { return weights_.size(); }

  /// The writable bytes of the `in` weights of output `index`, before finish(). Rows are
  /// contiguous: row(i + 1) begins where row(i) ends, so several rows may be written at once.
  /// Throws usage_error after finish() or for an index outside [0, out).
  [[nodiscard]] std::span<std::byte> row(std::int64_t index) {
    if (finished()) throw usage_error("matrix::row: the weights are already finished");
    check_index(index, "matrix::row");
    return {weights_.data() + static_cast<std::size_t>(index) * row_bytes(), row_bytes()};
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

  /// Prepares the weights for product(), on the caller's team, and cuts them for as many threads as
  /// that team has: products run best on a team of the same size. Packing costs about half a second
  /// per gigabyte and thread. A second call does nothing.
  /// Throws transport_error when oneDNN fails, std::bad_alloc (the weights once more, if packed).
  void finish() {
    if (finished()) return;
    const std::int64_t count = part_outputs();
    std::vector<detail::output_range> parts;
    for (std::int64_t first = 0; first < out_; first += count) {
      parts.push_back({first, std::min(count, out_ - first),
                       weights_.data() + static_cast<std::size_t>(first) * row_bytes()});
    }
    if (lies_packed()) pack(parts);
    parts_ = std::move(parts);
  }

  /// y[rows, out] = x[rows, in] * transposed(weights), in float32; with bfloat16 weights and up to
  /// four rows, x is rounded to bfloat16 first where the processor multiplies bfloat16.
  ///
  /// Row r of x begins at x + r * x_stride, of y at y + r * y_stride (elements); x and y do not
  /// overlap. The same call gives the same bits each time; another number of rows, or weights
  /// finished by a team of another size, may add in another order. Runs on the caller's team
  /// (scoped_threads). With few rows it costs one read of bytes() from memory; from about 16 rows
  /// on, the arithmetic: 2 * rows * out * in operations. The first product of each number of rows
  /// costs half a millisecond more.
  /// Throws usage_error before finish(), for rows < 0, or strides below the row length;
  /// transport_error when oneDNN fails; std::bad_alloc.
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
    const auto layout = lies_packed() ? detail::block_layout::packed : detail::block_layout::rows;
    detail::shared_product{type_, layout, in_, x, rows, x_stride, y, y_stride}.run(parts_);
  }

  /// to[in] = the weights of output `index`, as float32: the embedding of one token.
  /// Throws usage_error before finish(), without storage::rows, or for an index outside [0, out).
  void read_row(std::int64_t index, float* to) const {
    check_finished("matrix::read_row");
    check_index(index, "matrix::read_row");
    if (storage_ != storage::rows) throw usage_error("matrix::read_row: needs storage::rows");
    copy_rows(weights_.data() + static_cast<std::size_t>(index) * row_bytes(), 1, to);
  }

  /// to[out, in] = all weights, as float32, whatever the storage.
  /// Throws usage_error before finish(); transport_error when oneDNN fails; std::bad_alloc.
  void to_rows(float* to) const {
    check_finished("matrix::to_rows");
    for (const detail::output_range& part : parts_) {
      float* const rows = to + part.first * in_;
      if (lies_packed()) {
        detail::library_thread::mine().unpack(part.weights, rows, part.count, in_);
      } else {
        copy_rows(part.weights, part.count, rows);
      }
    }
  }

 private:
  [[nodiscard]] std::size_t row_bytes() const noexcept {
    return static_cast<std::size_t>(in_) * size_of(type_);
  }

  [[nodiscard]] bool lies_packed() const noexcept {
    return storage_ == storage::packed && type_ == dtype::float32;
  }

  // Outputs of each part: one part per thread, in whole blocks of oneDNN's layout. Below 128 KiB a
  // part takes no longer than it takes to wake a thread for it.
  [[nodiscard]] std::int64_t part_outputs() const noexcept {
    constexpr std::int64_t block = 64;
    constexpr std::int64_t least_bytes = std::int64_t{128} << 10;
    const thread_team* const team = scoped_threads::current();
    const std::int64_t threads = team == nullptr ? 1 : team->size();
    const std::int64_t least = least_bytes / static_cast<std::int64_t>(row_bytes());
    const std::int64_t count = std::max(least, (out_ + threads - 1) / threads);
    return (count / block + (count % block == 0 ? 0 : 1)) * block;
  }

  void pack(std::vector<detail::output_range>& parts) {
    constexpr std::size_t alignment = 64;
    std::size_t bytes = 0;
    std::vector<std::size_t> begins;
    for (const detail::output_range& part : parts) {
      begins.push_back(bytes);
      bytes += detail::library_thread::mine().packed_bytes(part.count, in_);
      bytes = (bytes + alignment - 1) / alignment * alignment;
    }
    pages packed(bytes);
    detail::split_range_throwing(std::ssize(parts), [&](std::int64_t i) {
      detail::output_range& part = parts[static_cast<std::size_t>(i)];
      std::byte* const to = packed.data() + begins[static_cast<std::size_t>(i)];
      detail::library_thread::mine().pack(reinterpret_cast<const float*>(part.weights), to,
                                          part.count, in_);
      part.weights = to;
    });
    weights_ = std::move(packed);
  }

  void copy_rows(const std::byte* from, std::int64_t rows, float* to) const {
    if (type_ == dtype::float32) {
      std::memcpy(to, from, static_cast<std::size_t>(rows) * row_bytes());
    } else {
      detail::widen(reinterpret_cast<const bfloat16*>(from), rows * in_, to);
    }
  }

  void check_index(std::int64_t index, const char* where) const {
    if (index >= 0 && index < out_) return;
    throw usage_error(std::string(where) + ": row " + std::to_string(index) + " of " +
                      std::to_string(out_));
  }
  void check_finished(const char* where) const {
    if (!finished()) throw usage_error(std::string(where) + ": call finish() first");
  }

  std::int64_t out_;
  std::int64_t in_;
  dtype type_;
  storage storage_;
  pages weights_;
  std::vector<detail::output_range> parts_{};  // none before finish()
};

}  // namespace rankcast::transformer
