/// Memory for the elements of tensors: aligned, and in huge pages where there is much of it. The
/// first touch of a page costs more than copying into it, eight times at 4 KiB a page.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>

#include "rankcast/core/config.hpp"

namespace rankcast::inline v0::detail {

inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

[[nodiscard]] constexpr std::align_val_t host_alignment(std::size_t bytes) noexcept {
  return std::align_val_t{bytes >= 2 * huge_page_bytes ? huge_page_bytes : 64};
}

struct release_host_memory {
  std::size_t bytes = 0;
  void operator()(std::byte* p) const noexcept { ::operator delete(p, host_alignment(bytes)); }
};
using host_memory = std::unique_ptr<std::byte, release_host_memory>;

/// Not initialised. Throws std::bad_alloc.
[[nodiscard]] inline host_memory allocate_host_memory(std::size_t bytes) {
  auto* const p = static_cast<std::byte*>(::operator new(bytes, host_alignment(bytes)));
  // A wish: where the system has none, small pages do.
  if (bytes >= 2 * huge_page_bytes) (void)madvise(p, bytes, MADV_HUGEPAGE);
  return host_memory(p, release_host_memory{bytes});
}

}  // namespace rankcast::inline v0::detail
