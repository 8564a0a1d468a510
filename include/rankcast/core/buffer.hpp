/// What a collective reads from or writes to, with the C++ type erased; and the concepts that say
/// what may become one: tensors and views, contiguous ranges of elements or of trivially copyable
/// values, single values, and `nothing` where a rank has no part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <type_traits>

#include "rankcast/core/dtype.hpp"
#include "rankcast/core/layout.hpp"
#include "rankcast/core/tensor.hpp"

namespace rankcast::inline v0 {

/// Borrowed elements below the waist. A buffer that is not `given` stands for no argument at all
/// (a non-root of a gather has nowhere to receive), which is not the same as zero elements.
struct buffer {
  std::byte* address = nullptr;
  layout elements_layout = layout::flat(0);
  rankcast::dtype type = dtype::bytes;
  memory_kind memory = memory_kind::host;
  bool given = false;

  [[nodiscard]] std::int64_t elements() const noexcept { return elements_layout.elements(); }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(elements()) * size_of(type);
  }
};

/// Pass it where a rank gives or takes no data: `gather(comm, mine, nothing)` on a non-root.
struct nothing_t {};
inline constexpr nothing_t nothing{};

namespace detail {

template <class T>
inline constexpr bool is_tensor_like =
    std::is_same_v<T, tensor> || std::is_same_v<T, tensor_view> ||
    std::is_same_v<T, const_tensor_view>;

template <class T>
concept transferable = element<T> || opaque<T>;

// Conditions that name the range's element type only once it is known to be a range.
template <class R>
concept transferable_range =
    !is_tensor_like<std::remove_cvref_t<R>> && std::ranges::contiguous_range<R> &&
    std::ranges::sized_range<R> && transferable<std::ranges::range_value_t<R>>;

template <class T>
concept single_value = !is_tensor_like<T> && !std::is_same_v<T, nothing_t> &&
                       !std::ranges::range<T> && transferable<T>;

template <class T>
buffer make_buffer(const T* data, std::size_t count) {
  buffer b;
  b.address = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(data));
  b.type = dtype_of<T>();
  const std::size_t scale = opaque<T> ? sizeof(T) : 1;
  b.elements_layout = layout::flat(static_cast<std::int64_t>(count * scale));
  b.given = true;
  return b;
}

inline buffer make_buffer(const const_tensor_view& v) {
  buffer b;
  b.address = const_cast<std::byte*>(v.address());
  b.elements_layout = v.layout();
  b.type = v.dtype();
  b.memory = v.memory();
  b.given = true;
  return b;
}

}  // namespace detail

/// May be sent: a tensor or view, a contiguous range or a single value of a type that has a dtype
/// or is trivially copyable, or `nothing`.
template <class T>
concept readable_data = std::is_same_v<std::remove_cvref_t<T>, nothing_t> ||
    detail::is_tensor_like<std::remove_cvref_t<T>> || detail::transferable_range<const T&> ||
    detail::transferable_range<T> || detail::single_value<std::remove_cvref_t<T>>;

/// May be received into: as `readable_data`, and writable: a tensor, a `tensor_view`, a range or
/// value that is not const. Temporaries only where they borrow (views, spans).
template <class T>
concept writable_data =
    std::is_same_v<std::remove_cvref_t<T>, nothing_t> ||
    std::is_same_v<std::remove_cvref_t<T>, tensor_view> ||
    (std::is_same_v<std::remove_reference_t<T>, tensor>&& std::is_lvalue_reference_v<T>) ||
    (detail::transferable_range<T> && std::ranges::borrowed_range<T> &&
     !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<T>>>) ||
    (detail::single_value<std::remove_reference_t<T>> && std::is_lvalue_reference_v<T> &&
     !std::is_const_v<std::remove_reference_t<T>>);

/// The buffer of what is sent.
template <readable_data T>
[[nodiscard]] buffer read_buffer(const T& data) {
  using U = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<U, nothing_t>) return {};
  else if constexpr (std::is_same_v<U, tensor>) return detail::make_buffer(data.view());
  else if constexpr (detail::is_tensor_like<U>) return detail::make_buffer(data);
  else if constexpr (std::ranges::range<const U&>) {
    return detail::make_buffer(std::ranges::data(data), std::ranges::size(data));
  } else return detail::make_buffer(&data, 1);
}

/// The buffer of what is received into.
template <class T>
  requires writable_data<T>
[[nodiscard]] buffer write_buffer(T&& data) {
  using U = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<U, nothing_t>) return {};
  else if constexpr (std::is_same_v<U, tensor>) return detail::make_buffer(data.view());
  else if constexpr (detail::is_tensor_like<U>) return detail::make_buffer(data);
  else if constexpr (std::ranges::range<U&>) {
    return detail::make_buffer(std::ranges::data(data), std::ranges::size(data));
  } else return detail::make_buffer(&data, 1);
}

}  // namespace rankcast::inline v0
