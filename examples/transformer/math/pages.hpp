/// Anonymous memory for weights: page aligned, zero filled, huge pages advised when large.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace rankcast::transformer {

/// An owned block of anonymous memory. Zero filled, aligned to a page (64 bytes and more), never
/// resident before it is first written. Movable, not copyable.
class pages {
 public:
  pages() = default;

  /// Maps `bytes` bytes; 0 maps nothing.
  ///
  /// Blocks of 4 MiB and more advise huge pages: a decode step reads every weight once, and with
  /// 4 KiB pages the page walks alone cost a visible share of the read bandwidth.
  /// Throws std::bad_alloc when the system refuses the mapping.
  explicit pages(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* const address =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == failed()) throw std::bad_alloc();
    // Advice only: without huge pages the memory works the same, a little slower.
    if (bytes >= huge_page_threshold) static_cast<void>(::madvise(address, bytes, MADV_HUGEPAGE));
    data_ = static_cast<std::byte*>(address);
  }

  pages(pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

  pages& operator=(pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  ~pages() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }

  /// The first byte; null when size() is 0.
  [[nodiscard]] std::byte* data() noexcept { return data_; }
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }

  /// The size in bytes, as asked for.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 private:
  static constexpr std::size_t huge_page_threshold = std::size_t{4} << 20;

  // MAP_FAILED is an old-style cast in the system's header, so it is compared by value here.
  static void* failed() noexcept { return reinterpret_cast<void*>(~std::uintptr_t{0}); }

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace rankcast::transformer
