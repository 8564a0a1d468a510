/// Bytes that several frames and streams hold together, until the last of them lets go: memory of
/// this process, or memory that it shares with others.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "rankcast/core/config.hpp"

namespace rankcast::inline v0::frames {

class payload {
 public:
  payload() = default;
  /// `owner` keeps the bytes where they are; they do not change any more.
  payload(std::shared_ptr<const void> owner, std::span<const std::byte> bytes) noexcept
      : owner_(std::move(owner)), bytes_(bytes) {}
  payload(const payload&) = default;
  payload& operator=(const payload&) = default;
  payload(payload&& other) noexcept { swap(other); }
  payload& operator=(payload&& other) noexcept {
    payload(std::move(other)).swap(*this);
    return *this;
  }
  ~payload() = default;

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
  [[nodiscard]] payload part(std::size_t offset, std::size_t n) const noexcept {
    return {owner_, bytes_.subspan(offset, n)};
  }

 private:
  void swap(payload& other) noexcept {
    owner_.swap(other.owner_);
    std::swap(bytes_, other.bytes_);
  }

  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

/// A payload to be: written by the one who took it, then handed on as `whole`.
struct room {
  payload whole;
  std::byte* data = nullptr;  // of whole.size() bytes; null: there is no room

  explicit operator bool() const noexcept { return data != nullptr; }
};

}  // namespace rankcast::inline v0::frames
