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

/// Where the bytes of a stream come from: elements of a buffer, or a message. Read once, in order.
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

  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }

  /// Appends the next `n` bytes to a frame. Buffers are asked for whole elements.
  void append(frame& to, std::size_t n) {
    const std::size_t begin = to.size();
    if (address_ != nullptr) {
      const auto count = static_cast<std::int64_t>(n / element_bytes_);
      to.resize(begin + n);
      copy_elements(to.data() + begin, layout::flat(count), 0, address_, layout_, next_, count,
                    element_bytes_);
      next_ += count;
      return;
    }
    while (n > 0) {
      const bool in_prefix = at_ < prefix_.size();
      const std::span<const std::byte> piece =
          in_prefix ? std::span<const std::byte>(prefix_) : pieces_[piece_];
      const std::size_t offset = in_prefix ? at_ : piece_at_;
      const std::size_t take = std::min(n, piece.size() - offset);
      detail::byte_writer(to).put_bytes(piece.subspan(offset, take));
      n -= take;
      if (in_prefix) {
        at_ += take;
      } else if ((piece_at_ += take) == piece.size()) {
        ++piece_;
        piece_at_ = 0;
      }
    }
  }

 private:
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
  std::uint64_t available = ~std::uint64_t{0};  // of data passed on: what has come so far
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
    arrived_ += f.size() - sizeof(frame_header);
    chunks_.push_back(std::move(f));
  }
  /// The head frame of a stream holds all of it, from byte `offset` on.
  void push_whole(frame f, std::size_t offset) {
    arrived_ = f.size() - offset;
    front_ = offset;
    granted_ = total_;
    chunks_.push_back(std::move(f));
  }

  [[nodiscard]] bool announced() const noexcept { return announced_; }
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
  [[nodiscard]] std::uint64_t consumed() const noexcept { return consumed_; }
  [[nodiscard]] std::uint64_t granted() const noexcept { return granted_; }
  void note_granted(std::uint64_t up_to) noexcept { granted_ = up_to; }
  [[nodiscard]] bool finished() const noexcept { return announced_ && consumed_ == total_; }

  /// Nothing more has to come from the sender.
  [[nodiscard]] bool all_arrived() const noexcept { return announced_ && arrived_ == total_; }

  /// What can be read in one piece now; empty when nothing has arrived.
  [[nodiscard]] std::span<const std::byte> front() const noexcept {
    if (chunks_.empty()) return {};
    return std::span(chunks_.front()).subspan(front_);
  }
  void pop(std::size_t n, link& l) {
    consumed_ += n;
    front_ += n;
    while (!chunks_.empty() && front_ == chunks_.front().size()) {
      l.recycle(std::move(chunks_.front()));
      chunks_.erase(chunks_.begin());
      front_ = sizeof(frame_header);
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
  std::vector<frame> chunks_;
  std::size_t front_ = sizeof(frame_header);  // in the first chunk
};

}  // namespace rankcast::inline v0::frames
