/// A message whose size its receivers do not know (an object, a tensor of unknown shape): a header
/// that describes it, and segments of bulk bytes that travel out of band.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rankcast/core/config.hpp"
#include "rankcast/core/error.hpp"

namespace rankcast::inline v0 {

/// What a source hands to the transport. The header is the message's own; segments are borrowed
/// until the call has completed.
struct message {
  std::vector<std::byte> header;
  std::vector<std::span<const std::byte>> segments;
  /// Room that the transport offers for the header, from where it need not be copied any more.
  std::span<std::byte> place{};
  /// Bytes of the header when it stands there; `header` is not used then.
  std::size_t placed = 0;

  /// Empties it and keeps its memory.
  void clear() noexcept {
    header.clear();
    segments.clear();
    place = {};
    placed = 0;
  }
  /// Puts bytes at the end of the header.
  void append(std::span<const std::byte> bytes) {
    if (placed != 0 && bytes.size() <= place.size() - placed) {
      std::copy(bytes.begin(), bytes.end(), place.begin() + static_cast<std::ptrdiff_t>(placed));
      placed += bytes.size();
      return;
    }
    if (placed != 0)
      header.assign(place.begin(), place.begin() + static_cast<std::ptrdiff_t>(placed));
    placed = 0;
    header.insert(header.end(), bytes.begin(), bytes.end());
  }
  /// The header, wherever it stands.
  [[nodiscard]] std::span<const std::byte> head() const noexcept {
    return placed != 0 ? std::span<const std::byte>(place).first(placed) : header;
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    std::size_t n = head().size();
    for (const auto& s : segments) n += s.size();
    return n;
  }
};

/// The segments of a message at its receiver, in their order. Reading may wait for the sender, and
/// throws when the call it belongs to has failed meanwhile.
class RANKCAST_API segment_reader {
 public:
  virtual ~segment_reader() = default;
  /// Bytes of each segment, as the sender announced them: not to be trusted.
  [[nodiscard]] virtual std::span<const std::uint64_t> sizes() const noexcept = 0;
  /// Fills `to` with the next segment, whose size it must have.
  virtual void read(std::span<std::byte> to) = 0;
};

/// For readers: throws decode_error unless segment `next` exists and has `bytes` bytes.
inline void require_segment(std::span<const std::uint64_t> sizes, std::size_t next,
                            std::size_t bytes) {
  if (next < sizes.size() && sizes[next] == bytes) return;
  throw decode_error("message: a segment of " + std::to_string(bytes) +
                     " bytes is read, there is " +
                     (next < sizes.size() ? "one of " + std::to_string(sizes[next]) + " bytes"
                                          : std::string("none")));
}

/// The sending side. Encodes on the caller's thread, when the call starts.
class RANKCAST_API message_source {
 public:
  virtual ~message_source() = default;
  /// Fills an empty message with what rank `to` is to get. A broadcast, gather or all_gather has
  /// one message for all its readers and asks once, with -1. What it throws reaches the other ranks
  /// as remote_error.
  virtual void encode(int to, message& out) = 0;
};

/// The receiving side. Runs on the thread of the waiting caller; bytes are not to be trusted. A
/// gather calls it once for each rank, its own included, in rank order.
class RANKCAST_API message_sink {
 public:
  virtual ~message_sink() = default;
  /// Reads the header and all segments. Segments it leaves are skipped.
  virtual void decode(int from, std::span<const std::byte> header, segment_reader& segments) = 0;
};

/// What a message holds, for the agreement of ranks: "std::vector<int>".
struct message_type {
  std::uint64_t hash = 0;  // 0: of no particular type
  std::string_view name = "";
};

}  // namespace rankcast::inline v0
