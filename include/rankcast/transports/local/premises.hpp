/// What differs between ranks that are threads and ranks that are processes: where their common
/// memory comes from, and how one finds out that another has died.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "rankcast/core/error.hpp"
#include "rankcast/core/transport.hpp"
#include "rankcast/transports/local/doorbell.hpp"

namespace rankcast::inline v0::local {

struct group;

class RANKCAST_API premises {
 public:
  virtual ~premises() = default;

  [[nodiscard]] virtual std::byte* address() const noexcept = 0;
  /// True when ranks cannot read each other's memory, only this.
  [[nodiscard]] virtual bool across_processes() const noexcept = 0;
  /// Makes sure that a part of the memory is there. Throws transport_error with bytes needed and
  /// free.
  virtual void reserve(std::size_t, std::size_t) {}
  /// What a rank sleeps on, if not the doorbell of its line on the board.
  [[nodiscard]] virtual doorbell* bell(int /*rank*/) noexcept { return nullptr; }
  /// True when the process of a rank has ended.
  [[nodiscard]] virtual bool dead(int) noexcept { return false; }
  /// The group of some ranks of this one, each of them calling; `rank` is the caller's in it.
  [[nodiscard]] virtual std::shared_ptr<group> found(group& parent, int parent_rank,
                                                     std::span<const int> ranks, int rank,
                                                     std::uint64_t key,
                                                     const std::string& name) = 0;
  /// What carries sends and receives where ranks cannot read each other's memory; else null.
  [[nodiscard]] virtual std::unique_ptr<transport> letters(group&, int /*rank*/) { return nullptr; }
};

/// Zeroed pages, taken from the system when they are touched.
class pages {
 public:
  explicit pages(std::size_t bytes) : bytes_(bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    address_ = static_cast<std::byte*>(p);
  }
  ~pages() { munmap(address_, bytes_); }
  pages(const pages&) = delete;
  pages& operator=(const pages&) = delete;
  [[nodiscard]] std::byte* address() const noexcept { return address_; }

 private:
  std::size_t bytes_;
  std::byte* address_;
};

}  // namespace rankcast::inline v0::local
