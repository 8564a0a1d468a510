/// The wire format of one object: what `message::header` holds.
///
///     frame_header   48 bytes: what is in the message, and of what type
///     metadata       what the archive wrote; bulk data are not in here but in the segments
///     segment table  8 bytes for each segment: its size. Last, for it is known when all is written
///
/// All numbers are 64-bit where they count bytes, and in the byte order of the ranks, which is the
/// same for all: they run one build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "rankcast/core/error.hpp"
#include "rankcast/core/message.hpp"
#include "rankcast/object/codecs.hpp"
#include "rankcast/object/type_name.hpp"

namespace rankcast::inline v0 {

enum class frame_kind : std::uint8_t { object = 1 };

/// Has no padding: its bytes are what travels.
struct frame_header {
  static constexpr std::uint32_t right_magic = 0x424f4352;  // "RCOB", which also tells byte orders
  static constexpr std::uint8_t right_version = 1;

  std::uint32_t magic = right_magic;
  std::uint8_t version = right_version;
  frame_kind kind = frame_kind::object;
  std::uint16_t flags = 0;  // none yet
  std::uint64_t type = 0;   // message_type::hash
  std::uint64_t metadata_bytes = 0;
  std::uint64_t segments = 0;
  std::uint64_t segment_bytes = 0;  // all of them
  std::uint64_t checksum = 0;       // of the above and the segment table
};
static_assert(sizeof(frame_header) == 48);

namespace detail {

/// Tells damage, not malice.
inline std::uint64_t frame_checksum(const frame_header& header,
                                    std::span<const std::byte> table) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&hash](const void* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 8) {  // both are whole numbers of 8 bytes
      std::uint64_t word = 0;
      std::memcpy(&word, static_cast<const std::byte*>(data) + i, 8);
      hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
  };
  mix(&header, offsetof(frame_header, checksum));
  mix(table.data(), table.size());
  return hash;
}

}  // namespace detail

/// A frame taken apart: its parts lie in the bytes it was read from.
struct frame_parts {
  frame_header header;
  std::span<const std::byte> metadata;
  std::span<const std::byte> table;

  [[nodiscard]] std::uint64_t segment_bytes(std::size_t i) const noexcept {
    std::uint64_t size = 0;
    std::memcpy(&size, table.data() + i * sizeof size, sizeof size);
    return size;
  }
};

/// Takes `bytes` apart. Throws decode_error when they are not a whole, undamaged frame of this
/// version of rankcast. No allocation.
[[nodiscard]] inline frame_parts parse_frame(std::span<const std::byte> bytes) {
  const auto refuse = [](const std::string& why) { throw decode_error("object frame: " + why); };
  frame_parts f;
  frame_header& h = f.header;
  if (bytes.size() < sizeof h) {
    refuse(std::to_string(bytes.size()) + " bytes, where its header alone has " +
           std::to_string(sizeof h));
  }
  std::memcpy(&h, bytes.data(), sizeof h);
  if (h.magic != frame_header::right_magic) {
    refuse("these bytes are not one: they begin with " + std::to_string(h.magic));
  }
  if (h.version != frame_header::right_version) {
    refuse("of version " + std::to_string(h.version) + ", where this build of rankcast has " +
           std::to_string(frame_header::right_version));
  }
  if (h.flags != 0) refuse("with flags " + std::to_string(h.flags) + ", of which none are known");
  const std::uint64_t rest = bytes.size() - sizeof h;
  if (h.metadata_bytes > rest || (rest - h.metadata_bytes) % 8 != 0 ||
      (rest - h.metadata_bytes) / 8 != h.segments) {
    refuse(std::to_string(h.metadata_bytes) + " bytes of metadata and " +
           std::to_string(h.segments) + " segments announced, in " + std::to_string(bytes.size()) +
           " bytes");
  }
  f.metadata = bytes.subspan(sizeof h, static_cast<std::size_t>(h.metadata_bytes));
  f.table = bytes.subspan(sizeof h + f.metadata.size());
  if (detail::frame_checksum(h, f.table) != h.checksum) refuse("damaged: its checksum is wrong");
  std::uint64_t left = h.segment_bytes;
  for (std::size_t i = 0; i < h.segments; ++i) {
    if (f.segment_bytes(i) > left) refuse("its segments are larger than their announced sum");
    left -= f.segment_bytes(i);
  }
  if (left != 0) refuse("its segments are smaller than their announced sum");
  return f;
}

/// Makes `out` the message of an object: bulk data that the object owns stay where they are and
/// become segments. The object must stay as it is until the message has been sent. Throws
/// usage_error if it nests too deep or is of a derived class; `out` is then of no use. The frame
/// is written where `out` has a place for it, if that is large enough. Allocates only
/// when `out` has less room than the message needs.
template <class T>
void encode_frame(const T& object, message& out, frame_kind kind = frame_kind::object) {
  out.header.clear();
  out.segments.clear();
  oarchive archive(out.place, out.header);
  frame_header h;
  archive.save_binary(&h, sizeof h);
  archive.collect(&out.segments);
  archive.root(object);

  h.kind = kind;
  h.type = message_type_of<T>().hash;
  h.metadata_bytes = archive.size() - sizeof h;
  h.segments = out.segments.size();
  for (const auto& segment : out.segments) {
    h.segment_bytes += segment.size();
    archive.count(segment.size());
  }
  archive.finish();
  out.placed = archive.spilled() ? 0 : archive.size();
  h.checksum = detail::frame_checksum(h, archive.bytes().last(8 * out.segments.size()));
  std::memcpy(archive.begin(), &h, sizeof h);
}

/// Reads the message over `object`, reusing its memory; bulk data go from `segments` (null: there
/// are none) to their place. Throws decode_error when the bytes are no frame, of another type or
/// kind, or not exactly one T, and when the segments are not those the frame tells of; the object
/// is then valid but of no particular value, and segments may be left unread.
template <class T>
void decode_frame(T& object, std::span<const std::byte> header, segment_reader* segments,
                  frame_kind kind = frame_kind::object) {
  const frame_parts f = parse_frame(header);
  constexpr message_type wanted = message_type_of<T>();
  if (f.header.kind != kind) {
    throw decode_error("object frame: of kind " + std::to_string(static_cast<int>(f.header.kind)) +
                       " where kind " + std::to_string(static_cast<int>(kind)) + " is expected");
  }
  if (f.header.type != wanted.hash) {
    throw decode_error("object frame: it holds another type than " + std::string(wanted.name) +
                       ", or that type as another build has it");
  }
  const auto sizes = segments != nullptr ? segments->sizes() : std::span<const std::uint64_t>();
  bool as_told = sizes.size() == f.header.segments;
  for (std::size_t i = 0; as_told && i < sizes.size(); ++i)
    as_told = sizes[i] == f.segment_bytes(i);
  if (!as_told) {
    throw decode_error("object frame: it tells of " + std::to_string(f.header.segments) +
                       " segments, but those that come with it are " +
                       std::to_string(sizes.size()) + " or of other sizes");
  }
  iarchive archive(f.metadata, segments);
  archive.root(object);
}

}  // namespace rankcast::inline v0
