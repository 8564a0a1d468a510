/// Tensors: `tensor` owns its elements, `tensor_view` borrows them, `const_tensor_view` only reads.
/// All carry dtype, shape, strides and the kind of memory; any strides are legal in any collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "rankcast/core/dtype.hpp"
#include "rankcast/core/host_memory.hpp"
#include "rankcast/core/layout.hpp"

namespace rankcast::inline v0 {

enum class memory_kind : std::uint8_t { host, device };

/// Borrowed elements, read only.
class const_tensor_view {
 public:
  const_tensor_view() = default;
  const_tensor_view(const void* data, rankcast::dtype type, rankcast::layout l,
                    memory_kind memory = memory_kind::host) noexcept
      : data_(const_cast<std::byte*>(static_cast<const std::byte*>(data))),
        layout_(l),
        dtype_(type),
        memory_(memory) {}

  [[nodiscard]] rankcast::dtype dtype() const noexcept { return dtype_; }
  [[nodiscard]] const rankcast::layout& layout() const noexcept { return layout_; }
  [[nodiscard]] memory_kind memory() const noexcept { return memory_; }
  [[nodiscard]] std::span<const std::int64_t> shape() const noexcept {
    return layout_.shape_span();
  }
  [[nodiscard]] int dimensions() const noexcept { return layout_.dimensions; }
  [[nodiscard]] std::int64_t extent(int d) const { return layout_.extent(check_dimension(d)); }
  [[nodiscard]] std::int64_t elements() const noexcept { return layout_.elements(); }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(elements()) * size_of(dtype_);
  }
  [[nodiscard]] bool is_contiguous() const noexcept { return layout_.is_contiguous(); }
  [[nodiscard]] const std::byte* address() const noexcept { return data_; }

  /// First element as T. Throws usage_error when T is not the tensor's type.
  template <element T>
  [[nodiscard]] const T* data() const {
    return reinterpret_cast<const T*>(checked<T>());
  }

  /// One element by its index. Throws usage_error when T is not the tensor's type or the index
  /// has not one entry per dimension, each inside the shape.
  template <element T, std::integral... Index>
  [[nodiscard]] const T& at(Index... index) const {
    return data<T>()[offset({static_cast<std::int64_t>(index)...})];
  }

  /// Elements [first, first + count) of dimension `d`.
  [[nodiscard]] const_tensor_view slice(int d, std::int64_t first, std::int64_t count) const {
    const_tensor_view v = *this;
    v.cut(d, first, count);
    return v;
  }
  /// The same elements with two dimensions exchanged.
  [[nodiscard]] const_tensor_view transpose(int a, int b) const {
    const_tensor_view v = *this;
    v.exchange(a, b);
    return v;
  }

  /// "float32 (2,3)"
  [[nodiscard]] std::string text() const {
    return std::string(name(dtype_)) + " " + layout_.text();
  }

 protected:
  template <element T>
  [[nodiscard]] std::byte* checked() const {
    if (dtype_of<T>() != dtype_) {
      throw usage_error("tensor of " + text() + " was asked for as " +
                        std::string(name(dtype_of<T>())));
    }
    return data_;
  }

  [[nodiscard]] std::int64_t offset(std::initializer_list<std::int64_t> index) const {
    if (static_cast<int>(index.size()) != layout_.dimensions) {
      throw usage_error("tensor of " + text() + " was indexed with " +
                        std::to_string(index.size()) + " numbers");
    }
    std::int64_t at = 0;
    int d = 0;
    for (const std::int64_t i : index) {
      if (i < 0 || i >= layout_.extent(d)) {
        throw usage_error("index " + std::to_string(i) + " in dimension " + std::to_string(d) +
                          " is outside of " + text());
      }
      at += i * layout_.stride(d++);
    }
    return at;
  }

  void cut(int d, std::int64_t first, std::int64_t count) {
    check_dimension(d);
    if (first < 0 || count < 0 || first > layout_.extent(d) - count) {
      throw usage_error("slice [" + std::to_string(first) + ", +" + std::to_string(count) +
                        ") of dimension " + std::to_string(d) + " is outside of " + text());
    }
    if (data_ != nullptr) {
      data_ += first * layout_.stride(d) * static_cast<std::int64_t>(size_of(dtype_));
    }
    layout_.shape[static_cast<std::size_t>(d)] = count;
  }

  void exchange(int a, int b) {
    const auto i = static_cast<std::size_t>(check_dimension(a));
    const auto j = static_cast<std::size_t>(check_dimension(b));
    std::swap(layout_.shape[i], layout_.shape[j]);
    std::swap(layout_.strides[i], layout_.strides[j]);
  }

  int check_dimension(int d) const {
    if (d < 0 || d >= layout_.dimensions) {
      throw usage_error("dimension " + std::to_string(d) + " of a tensor of " + text());
    }
    return d;
  }

  std::byte* data_ = nullptr;  // const_tensor_view never hands it out as mutable
  rankcast::layout layout_ = rankcast::layout::flat(0);
  rankcast::dtype dtype_ = dtype::float32;
  memory_kind memory_ = memory_kind::host;
};

/// Borrowed elements, read and written. The view is as const as a pointer: a `const tensor_view`
/// still writes its elements.
class tensor_view : public const_tensor_view {
 public:
  tensor_view() = default;
  tensor_view(void* data, rankcast::dtype type, rankcast::layout l,
              memory_kind memory = memory_kind::host) noexcept
      : const_tensor_view(data, type, l, memory) {}

  /// A whole array as a tensor of the given shape.
  template <element T>
  tensor_view(std::span<T> values, std::initializer_list<std::int64_t> shape)
      : tensor_view(values.data(), dtype_of<T>(), rankcast::layout::contiguous(shape)) {
    if (elements() != static_cast<std::int64_t>(values.size())) {
      throw usage_error("tensor_view: " + std::to_string(values.size()) +
                        " values given for a shape of " + text());
    }
  }

  [[nodiscard]] std::byte* address() const noexcept { return data_; }
  template <element T>
  [[nodiscard]] T* data() const {
    return reinterpret_cast<T*>(checked<T>());
  }
  template <element T, std::integral... Index>
  [[nodiscard]] T& at(Index... index) const {
    return data<T>()[offset({static_cast<std::int64_t>(index)...})];
  }
  [[nodiscard]] tensor_view slice(int d, std::int64_t first, std::int64_t count) const {
    tensor_view v = *this;
    v.cut(d, first, count);
    return v;
  }
  [[nodiscard]] tensor_view transpose(int a, int b) const {
    tensor_view v = *this;
    v.exchange(a, b);
    return v;
  }
};

/// Owning, row-major, 64-byte aligned host memory, from 4 MiB on in huge pages. Move only: a copy
/// of gigabytes is asked for by name, with `clone()`. Elements of a new tensor are not initialised.
class tensor {
 public:
  tensor() = default;
  /// Throws usage_error for a shape that is negative or too large, std::bad_alloc without memory.
  tensor(rankcast::dtype type, std::span<const std::int64_t> shape) { resize(type, shape); }
  tensor(rankcast::dtype type, std::initializer_list<std::int64_t> shape)
      : tensor(type, std::span<const std::int64_t>(shape.begin(), shape.size())) {}

  tensor(tensor&& other) noexcept { swap(other); }
  tensor& operator=(tensor&& other) noexcept {
    tensor(std::move(other)).swap(*this);
    return *this;
  }
  ~tensor() = default;

  /// Takes another type and shape; keeps the memory when it is large enough (contents then are
  /// unspecified), else allocates once.
  void resize(rankcast::dtype type, std::span<const std::int64_t> shape) {
    const rankcast::layout l = rankcast::layout::contiguous(shape);
    const auto n = static_cast<std::size_t>(l.elements());
    if (n > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()) / size_of(type)) {
      throw usage_error("a tensor of " + std::string(name(type)) + " " + l.text() +
                        " has more than 2^63 - 1 bytes");
    }
    const std::size_t needed = n * size_of(type);
    if (needed > capacity_) {
      view_ = {};  // of no memory, should there be none
      storage_.reset();
      capacity_ = 0;
      storage_ = detail::allocate_host_memory(needed);
      capacity_ = needed;
    }
    view_ = tensor_view(storage_.get(), type, l);
  }
  void resize(rankcast::dtype type, std::initializer_list<std::int64_t> shape) {
    resize(type, std::span<const std::int64_t>(shape.begin(), shape.size()));
  }

  [[nodiscard]] tensor clone() const {
    tensor copy(dtype(), shape());
    if (bytes() != 0) std::memcpy(copy.storage_.get(), storage_.get(), bytes());
    return copy;
  }

  [[nodiscard]] tensor_view view() noexcept { return view_; }
  [[nodiscard]] const_tensor_view view() const noexcept { return view_; }
  operator tensor_view() noexcept { return view_; }              // NOLINT: a tensor is a view
  operator const_tensor_view() noexcept { return view_; }        // NOLINT: no detour by the former
  operator const_tensor_view() const noexcept { return view_; }  // NOLINT

  [[nodiscard]] rankcast::dtype dtype() const noexcept { return view_.dtype(); }
  [[nodiscard]] const rankcast::layout& layout() const noexcept { return view_.layout(); }
  [[nodiscard]] std::span<const std::int64_t> shape() const noexcept { return view_.shape(); }
  [[nodiscard]] int dimensions() const noexcept { return view_.dimensions(); }
  [[nodiscard]] std::int64_t extent(int d) const { return view_.extent(d); }
  [[nodiscard]] std::int64_t elements() const noexcept { return view_.elements(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return view_.bytes(); }
  /// Bytes of memory held; at least bytes().
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  template <element T>
  [[nodiscard]] T* data() {
    return view_.data<T>();
  }
  template <element T>
  [[nodiscard]] const T* data() const {
    return view().template data<T>();
  }
  template <element T>
  [[nodiscard]] std::span<T> values() {
    return {view_.data<T>(), static_cast<std::size_t>(elements())};
  }
  template <element T>
  [[nodiscard]] std::span<const T> values() const {
    return {view().template data<T>(), static_cast<std::size_t>(elements())};
  }
  template <element T, std::integral... Index>
  [[nodiscard]] T& at(Index... index) {
    return view_.at<T>(index...);
  }
  template <element T, std::integral... Index>
  [[nodiscard]] const T& at(Index... index) const {
    return view().template at<T>(index...);
  }

  void swap(tensor& other) noexcept {
    std::swap(storage_, other.storage_);
    std::swap(capacity_, other.capacity_);
    std::swap(view_, other.view_);
  }

 private:
  detail::host_memory storage_;
  std::size_t capacity_ = 0;
  tensor_view view_;
};

}  // namespace rankcast::inline v0
