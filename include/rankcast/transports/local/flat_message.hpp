/// A message as one row of bytes: bytes of the header, number of segments, bytes of each, the
/// header, the segments. So it lies on the board when it is small, and goes through a stream when
/// it is not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "rankcast/core/bytes.hpp"
#include "rankcast/core/message.hpp"

namespace rankcast::inline v0::local {

[[nodiscard]] inline std::size_t flat_bytes(const message& m) noexcept {
  return (2 + m.segments.size()) * sizeof(std::uint64_t) + m.bytes();
}

/// Returns where the next one begins.
inline std::byte* write_flat(const message& m, std::byte* to) noexcept {
  const auto put = [&](const void* data, std::size_t n) {
    if (n != 0) std::memcpy(to, data, n);
    to += n;
  };
  const auto put_number = [&](std::uint64_t n) { put(&n, sizeof n); };
  put_number(m.head().size());
  put_number(m.segments.size());
  for (const auto& s : m.segments) put_number(s.size());
  put(m.head().data(), m.head().size());
  for (const auto& s : m.segments) put(s.data(), s.size());
  return to;
}

/// Small messages that lie one after the other; `skip` of them are passed over.
struct flat_view {
  std::span<const std::byte> header;
  std::vector<std::uint64_t> sizes;
  std::span<const std::byte> segments;

  flat_view(std::span<const std::byte> bytes, int skip) {
    detail::byte_reader in(bytes, "message");
    for (;; --skip) {
      const auto header_bytes = in.get<std::uint64_t>();
      const auto count = in.get<std::uint64_t>();
      const auto table = in.take(checked(count, sizeof(std::uint64_t)));
      sizes.resize(static_cast<std::size_t>(count));
      if (!table.empty()) std::memcpy(sizes.data(), table.data(), table.size());
      header = in.take(header_bytes);
      std::uint64_t total = 0;
      for (const std::uint64_t s : sizes) total += checked(s, 1);
      segments = in.take(total);
      if (skip == 0) return;
    }
  }

 private:
  // Numbers of a peer: not so large that a sum of them could wrap.
  static std::size_t checked(std::uint64_t n, std::size_t each) {
    if (n > (std::uint64_t{1} << 40)) throw decode_error("message: its table makes no sense");
    return static_cast<std::size_t>(n) * each;
  }
};

/// The segments of a message that lies on the board.
class flat_segments final : public segment_reader {
 public:
  explicit flat_segments(const flat_view& m) noexcept : message_(m), rest_(m.segments) {}
  [[nodiscard]] std::span<const std::uint64_t> sizes() const noexcept override {
    return message_.sizes;
  }
  void read(std::span<std::byte> to) override {
    require_segment(message_.sizes, next_++, to.size());
    if (!to.empty()) std::memcpy(to.data(), rest_.data(), to.size());
    rest_ = rest_.subspan(to.size());
  }

 private:
  const flat_view& message_;
  std::span<const std::byte> rest_;
  std::size_t next_ = 0;
};

/// Reads a message from front to back as its row of bytes, without making one.
class message_reader {
 public:
  explicit message_reader(const message& m) : message_(&m) {
    const auto put = [&](std::uint64_t n) {
      const auto* p = reinterpret_cast<const std::byte*>(&n);
      prefix_.insert(prefix_.end(), p, p + sizeof n);
    };
    put(m.head().size());
    put(m.segments.size());
    for (const auto& s : m.segments) put(s.size());
  }

  /// Fills `to` with the next bytes.
  void read(std::span<std::byte> to) {
    while (!to.empty()) {
      const std::span<const std::byte> piece = this->piece();
      const std::size_t n = std::min(to.size(), piece.size() - at_);
      if (n != 0) std::memcpy(to.data(), piece.data() + at_, n);
      to = to.subspan(n);
      at_ += n;
      if (at_ == piece.size()) {
        ++piece_;
        at_ = 0;
      }
    }
  }

 private:
  [[nodiscard]] std::span<const std::byte> piece() const noexcept {
    if (piece_ == 0) return prefix_;
    return piece_ == 1 ? message_->head() : message_->segments[piece_ - 2];
  }

  const message* message_;
  std::vector<std::byte> prefix_;
  std::size_t piece_ = 0;
  std::size_t at_ = 0;
};

/// Takes the first part of a message in as it comes: all but the segments.
class flat_reader {
 public:
  void clear() noexcept {
    bytes_.clear();
    need_ = 2 * sizeof(std::uint64_t);
    step_ = 0;
  }
  /// Bytes that have to come before it goes on; 0 when the header is complete.
  [[nodiscard]] std::size_t missing() const noexcept { return need_ - bytes_.size(); }
  /// Adds at most `missing()` bytes. `limit`: bytes of the whole message.
  void add(std::span<const std::byte> piece, std::uint64_t limit) {
    bytes_.insert(bytes_.end(), piece.begin(), piece.end());
    while (missing() == 0 && step_ < 2) {
      if (step_++ == 0) {
        need_ += bounded(number(1), limit / sizeof(std::uint64_t)) * sizeof(std::uint64_t);
      } else {
        sizes_.resize(number(1));
        for (std::size_t i = 0; i < sizes_.size(); ++i) sizes_[i] = number(2 + i);
        header_begin_ = need_;
        need_ += bounded(number(0), limit);
      }
    }
  }
  [[nodiscard]] bool complete() const noexcept { return step_ == 2 && missing() == 0; }
  [[nodiscard]] std::span<const std::byte> header() const noexcept {
    return std::span(bytes_).subspan(header_begin_);
  }
  [[nodiscard]] std::span<const std::uint64_t> sizes() const noexcept { return sizes_; }

 private:
  [[nodiscard]] std::uint64_t number(std::size_t i) const noexcept {
    std::uint64_t n = 0;
    std::memcpy(&n, bytes_.data() + i * sizeof n, sizeof n);
    return n;
  }
  static std::size_t bounded(std::uint64_t n, std::uint64_t limit) {
    if (n > limit) throw decode_error("message: its table makes no sense");
    return static_cast<std::size_t>(n);
  }

  std::vector<std::byte> bytes_;
  std::vector<std::uint64_t> sizes_;
  std::size_t need_ = 2 * sizeof(std::uint64_t);
  std::size_t header_begin_ = 0;
  int step_ = 0;
};

}  // namespace rankcast::inline v0::local
