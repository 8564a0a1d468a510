/// Small values to bytes and back, for headers. Byte order is the host's: all ranks of a group run
/// the same build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "rankcast/core/error.hpp"

namespace rankcast::inline v0::detail {

/// Appends to a vector of bytes.
template <class Bytes>
class byte_writer {
 public:
  explicit byte_writer(Bytes& out) noexcept : out_(out) {}
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void put(T value) { put_bytes(std::as_bytes(std::span(&value, 1))); }
  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text)));
  }
  void put_bytes(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const std::size_t at = out_.size();
    out_.resize(at + bytes.size());
    std::memcpy(out_.data() + at, bytes.data(), bytes.size());
  }

 private:
  Bytes& out_;
};

/// Reads what a byte_writer wrote. Throws decode_error, which says of `what`, when bytes run out.
class byte_reader {
 public:
  byte_reader(std::span<const std::byte> in, const char* what) noexcept : in_(in), what_(what) {}
  template <class T>
    requires std::is_trivially_copyable_v<T> T get() {
      T value;
      std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
      return value;
    }
  std::string get_text() {
    const auto bytes = take(get<std::uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::span<const std::byte> take(std::size_t n) {
    if (n > in_.size()) throw decode_error(std::string(what_) + ": ends too early");
    const auto bytes = in_.first(n);
    in_ = in_.subspan(n);
    return bytes;
  }
  [[nodiscard]] std::span<const std::byte> rest() const noexcept { return in_; }

 private:
  std::span<const std::byte> in_;
  const char* what_;
};

}  // namespace rankcast::inline v0::detail
