/// resize() of a vector whose new elements will be overwritten at once. The standard's writes zeros
/// first, which is a quarter of the time of reading a large array.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include "rankcast/core/config.hpp"

namespace rankcast::inline v0::detail {

// Reserved memory becomes elements by moving the end of the vector, where the standard library is
// known to keep one and nobody checks accesses against it; elsewhere it is a plain resize().
#if defined(__GLIBCXX__) && !defined(_GLIBCXX_DEBUG) && !defined(_GLIBCXX_SANITIZE_VECTOR)

template <class T, class Allocator>
struct vector_end : std::vector<T, Allocator> {
  static void move_to(std::vector<T, Allocator>& v, std::size_t n) noexcept {
    auto& parts = v.*(&vector_end::_M_impl);
    parts._M_finish = parts._M_start + n;
  }
};

template <class T, class Allocator>
void resize_for_overwrite(std::vector<T, Allocator>& v, std::size_t n) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  if (n > v.capacity()) {
    v.clear();  // nothing to move
    v.reserve(n);
  }
  vector_end<T, Allocator>::move_to(v, n);
}

#else

template <class T, class Allocator>
void resize_for_overwrite(std::vector<T, Allocator>& v, std::size_t n) {
  if (n > v.capacity()) v.clear();  // nothing to move
  v.resize(n);
}

#endif

}  // namespace rankcast::inline v0::detail
