/// The bytes that one rank has for another in one call: cut into chunks, which are sent as far as
/// the receiver has granted room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/buffer.hpp"
#include "rankcast/core/bytes.hpp"
#include "rankcast/core/layout.hpp"
#include "rankcast/core/message.hpp"
#include "rankcast/transports/frames/link.hpp"

namespace rankcast::inline v0::frames {

/// Where the bytes of a stream come from: elements of a buffer, a message, or what another rank
/// sends. Read once, in order.
class supply {
 public:
  supply() = default;
  /// `count` elements of `b`, from `first`.
  supply(const buffer& b, std::int64_t first, std::int64_t count)
      : address_(b.address),
        layout_(b.elements_layout),
        next_(first),
        element_bytes_(size_of(b.type)),
        total_(static_cast<std::uint64_t>(count) * element_bytes_) {}
  /// A message as a stream: bytes of the header, segments, bytes of each, the header, the segments.
  explicit supply(const message& m) {
    detail::byte_writer out(prefix_);
    out.put(static_cast<std::uint64_t>(m.head().size()));
    out.put(static_cast<std::uint64_t>(m.segments.size()));
    for (const auto& s : m.segments) out.put(static_cast<std::uint64_t>(s.size()));
    total_ = prefix_.size() + m.bytes();
    pieces_.push_back(m.head());
    pieces_.insert(pieces_.end(), m.segments.begin(), m.segments.end());
  }

  /// Bytes that lie in one piece and stay there until they are read.
  explicit supply(std::span<const std::byte> bytes) : total_(bytes.size()) {
    if (!bytes.empty()) pieces_.push_back(bytes);
  }
  /// What is passed on as it comes: there is nothing to read.
  [[nodiscard]] static supply passed_on(std::uint64_t total) {
    supply s;
    s.total_ = total;
    return s;
  }

  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }

  /// The next bytes, to `to`. Buffers are asked for whole elements.
  void read(std::span<std::byte> to) {
    if (address_ != nullptr) {
      const auto count = static_cast<std::int64_t>(to.size() / element_bytes_);
      copy_elements(to.data(), layout::flat(count), 0, address_, layout_, next_, count,
                    element_bytes_);
      next_ += count;
      return;
    }
    while (!to.empty()) {
      const auto piece = next_piece(to.size());
      std::copy(piece.begin(), piece.end(), to.begin());
      to = to.subspan(piece.size());
    }
  }
  /// As if `n` bytes had been read.
  void skip(std::size_t n) noexcept {
    next_ += static_cast<std::int64_t>(n / element_bytes_);
    while (n > 0 && (at_ < prefix_.size() || piece_ < pieces_.size())) n -= next_piece(n).size();
  }
  void append(frame& to, std::size_t n) {
    const std::size_t begin = to.size();
    to.resize(begin + n);
    read(std::span(to).subspan(begin));
  }

 private:
  // Goes on within a message, `most` bytes at most.
  [[nodiscard]] std::span<const std::byte> next_piece(std::size_t most) noexcept {
    if (at_ < prefix_.size()) {
      const std::size_t n = std::min(most, prefix_.size() - at_);
      at_ += n;
      return std::span(prefix_).subspan(at_ - n, n);
    }
    const std::span<const std::byte> piece = pieces_[piece_];
    const std::size_t n = std::min(most, piece.size() - piece_at_);
    const auto found = piece.subspan(piece_at_, n);
    piece_at_ += n;
    if (piece_at_ == piece.size()) {
      ++piece_;
      piece_at_ = 0;
    }
    return found;
  }

  const std::byte* address_ = nullptr;
  layout layout_ = layout::flat(0);
  std::int64_t next_ = 0;
  std::size_t element_bytes_ = 1;

  std::vector<std::byte> prefix_;
  std::size_t at_ = 0;  // in the prefix
  std::vector<std::span<const std::byte>> pieces_;
  std::size_t piece_ = 0;
  std::size_t piece_at_ = 0;

  std::uint64_t total_ = 0;
};

/// Puts all of a small stream at the end of the frame that announces it, aligned for any element:
/// what stands before it has no round size.
inline void append_whole(frame& to, supply& bytes) {
  constexpr std::size_t alignment = 16;
  if (bytes.total() == 0) return;
  to.resize((to.size() + alignment - 1) / alignment * alignment, std::byte{0});
  bytes.append(to, static_cast<std::size_t>(bytes.total()));
}

/// The sending end of a stream that was announced and not sent at once.
struct outgoing {
  int to = 0;
  std::uint8_t phase = 0;
  supply bytes;
  std::uint64_t sent = 0;
  std::uint64_t granted = 0;
  std::uint64_t available = ~std::uint64_t{0};  // of `bytes`: what can be read so far
  bool skipped = false;

  [[nodiscard]] bool finished() const noexcept { return skipped || sent == bytes.total(); }
};

/// The receiving end: chunks that have arrived, and how far room was granted.
class incoming {
 public:
  /// A stream of `total` bytes has been announced.
  void announce(std::uint64_t total) noexcept {
    announced_ = true;
    total_ = total;
  }
  void push(frame f) {
    arrived_ += body_of(f).size();
    chunks_.push_back(std::move(f));
  }
  /// The head frame of a stream holds all of it, at the end of its body.
  void push_whole(frame f) {
    arrived_ = total_;
    front_ = body_of(f).size() - static_cast<std::size_t>(total_);
    granted_ = total_;
    chunks_.push_back(std::move(f));
  }

  [[nodiscard]] bool announced() const noexcept { return announced_; }
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
  [[nodiscard]] std::uint64_t arrived() const noexcept { return arrived_; }
  [[nodiscard]] std::uint64_t consumed() const noexcept { return consumed_; }
  [[nodiscard]] std::uint64_t granted() const noexcept { return granted_; }
  /// Up to where all who are to have had the stream have had it.
  [[nodiscard]] std::uint64_t settled() const noexcept { return std::min(consumed_, passed_on_); }
  /// Other ranks have had it up to here.
  void note_passed_on(std::uint64_t up_to) noexcept { passed_on_ = up_to; }
  void note_granted(std::uint64_t up_to) noexcept { granted_ = up_to; }
  [[nodiscard]] bool finished() const noexcept { return announced_ && consumed_ == total_; }

  /// Nothing more has to come from the sender.
  [[nodiscard]] bool all_arrived() const noexcept { return announced_ && arrived_ == total_; }

  /// What can be read in one piece now; empty when nothing has arrived.
  [[nodiscard]] std::span<const std::byte> front() const noexcept {
    if (chunks_.empty()) return {};
    return body_of(chunks_.front()).subspan(front_);
  }
  void pop(std::size_t n, link& l) {
    consumed_ += n;
    front_ += n;
    while (!chunks_.empty() && front_ == body_of(chunks_.front()).size()) {
      l.recycle(std::move(chunks_.front()));
      chunks_.erase(chunks_.begin());
      front_ = 0;
    }
  }
  /// More came than was announced or granted.
  [[nodiscard]] bool overrun() const noexcept { return arrived_ > granted_; }

  void clear(link& l) {
    for (frame& f : chunks_) l.recycle(std::move(f));
    chunks_.clear();
    *this = incoming{};
  }

 private:
  bool announced_ = false;
  std::uint64_t total_ = 0;
  std::uint64_t arrived_ = 0;
  std::uint64_t granted_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t passed_on_ = ~std::uint64_t{0};  // to no one, unless noted
  std::vector<frame> chunks_;
  std::size_t front_ = 0;  // in the body of the first chunk
};

}  // namespace rankcast::inline v0::frames
