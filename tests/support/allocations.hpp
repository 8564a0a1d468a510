/// Counts and limits what a test allocates. Replaces operator new, so it belongs into one source of
/// a program only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace support {

struct allocation_state {
  std::size_t count = 0;    // since the guard
  std::size_t in_all = 0;   // bytes
  std::size_t largest = 0;  // bytes at once
};

inline allocation_state& allocations() {
  static thread_local constinit allocation_state state;
  return state;
}

/// What has been allocated by this thread since it was made.
class allocation_guard {
 public:
  allocation_guard() noexcept { allocations() = {}; }
  [[nodiscard]] std::size_t count() const noexcept { return allocations().count; }
  [[nodiscard]] std::size_t in_all() const noexcept { return allocations().in_all; }
  [[nodiscard]] std::size_t largest() const noexcept { return allocations().largest; }
};

inline void* counted_allocation(std::size_t bytes, std::size_t alignment) {
  allocation_state& state = allocations();
  ++state.count;
  state.in_all += bytes;
  state.largest = std::max(state.largest, bytes);
  const std::size_t whole =
      (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* p = whole < bytes ? nullptr : std::aligned_alloc(alignment, whole);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace support

// Not inlined: g++ 12 takes an inlined pair of these for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return support::counted_allocation(bytes, 16);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return support::counted_allocation(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
