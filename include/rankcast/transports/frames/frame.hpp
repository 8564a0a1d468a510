/// What ranks without common memory send each other: a header of fixed size and a body. Frames are
/// held in buffers of the library's own, so that whatever happens to a call, no native library ever
/// touches its caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/agreement.hpp"
#include "rankcast/core/bytes.hpp"
#include "rankcast/core/revocation.hpp"
#include "rankcast/transports/frames/payload.hpp"

namespace rankcast::inline v0::frames {

enum class kind : std::uint8_t {
  call,      // a rank's call of the sequence: its record, and its data when they are small
  slice,     // all_reduce: the sender's slice of the result, or why there is none
  chunk,     // a piece of a stream, at `position`
  grant,     // the receiver has room for the stream up to `position`
  done,      // the sender's part of the call is over, or why it failed
  tick,      // nothing but `released`
  revoke,    // the group has ended, and why
  leave,     // the sender makes no more calls
  letter,    // a send: its record, and its data when they are small
  answer,    // the letter was taken, or why it could not be
  withdraw,  // the sender of a letter gave up
};

namespace flag {
inline constexpr std::uint8_t none = 0;
inline constexpr std::uint8_t complete = 1;  // call, slice, letter: the whole stream is in the body
inline constexpr std::uint8_t notice = 2;    // call: only to be compared, no data follow
inline constexpr std::uint8_t skip = 4;      // grant: the rest is not wanted
inline constexpr std::uint8_t closed = 8;    // leave: after a goodbye
inline constexpr std::uint8_t undecoded = 16;  // answer: the decoder failed
inline constexpr std::uint8_t wants_all = 32;  // call: the sender waits for all, with `everyone`
}  // namespace flag

struct frame_header {
  std::uint32_t magic = 0x31464352;  // "RCF1", and a check of the byte order
  kind what = kind::tick;
  std::uint8_t flags = 0;
  std::uint8_t phase = 0;  // of the stream: 0 data, 1 slices, 2 letter
  std::uint8_t unused = 0;
  std::int32_t source = 0;  // rank in the group
  std::int32_t tag = 0;     // of a letter; of a call that failed elsewhere: the rank where it did
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;  // of the call, or the number of the letter
  std::uint64_t position = 0;  // bytes; of call, slice and letter: the length of the stream
  std::uint64_t released = 0;  // calls of this group that the sender has done with
};
static_assert(std::is_trivially_copyable_v<frame_header> && sizeof(frame_header) == 48);

/// Leaves new bytes as they are: they are about to be written anyway.
template <class T>
struct raw_allocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = raw_allocator<U>;
  };
  template <class U, class... Arguments>
  void construct(U* at, Arguments&&... arguments) {
    if constexpr (sizeof...(Arguments) == 0) ::new (static_cast<void*>(at)) U;
    else ::new (static_cast<void*>(at)) U(std::forward<Arguments>(arguments)...);
  }
};

using raw_bytes = std::vector<std::byte, raw_allocator<std::byte>>;

/// Header and body, in one piece of memory that is used again and again. The body of a chunk may be
/// a payload instead, which other frames hold as well: passing a chunk on takes a new header only.
struct frame : raw_bytes {
  using raw_bytes::raw_bytes;
  payload shared;
};

[[nodiscard]] inline frame_header header_of(const frame& f) noexcept {
  frame_header h;
  std::memcpy(&h, f.data(), sizeof h);
  return h;
}
[[nodiscard]] inline std::span<const std::byte> body_of(const frame& f) noexcept {
  if (!f.shared.empty()) return f.shared.bytes();
  return std::span(f).subspan(sizeof(frame_header));
}

/// A peer's offer, which owns what its record names.
struct arrived_offer : call_offer {
  std::string reduction_name;
  std::string type_name;
  std::string file;
};

inline void write_offer(frame& to, const call_record& r, std::span<const std::int64_t> counts,
                        const std::string& refusal) {
  detail::byte_writer out(to);
  out.put(r.code);
  out.put(r.message);
  out.put(r.uneven);
  out.put(r.type);
  out.put(r.root);
  out.put(r.elements);
  out.put(r.reduction_hash);
  out.put(r.counts_hash);
  out.put(r.message_type.hash);
  out.put(r.where.line);
  out.put(static_cast<std::uint8_t>(r.shape.dimensions));
  for (const std::int64_t extent : r.shape.shape_span()) out.put(extent);
  out.put_text(r.reduction_name);
  out.put_text(r.message_type.name);
  out.put_text(r.where.file == nullptr ? "" : r.where.file);
  out.put_text(refusal);
  out.put(static_cast<std::uint32_t>(counts.size()));
  out.put_bytes(std::as_bytes(counts));
}

/// Throws decode_error. `to` stays where it is as long as its record is in use.
inline void read_offer(detail::byte_reader& in, arrived_offer& to) {
  call_record& r = to.record;
  const auto enumerator = [&](auto last) {
    const auto value = in.get<std::uint8_t>();
    if (value > static_cast<std::uint8_t>(last)) throw decode_error("frame: unknown call or dtype");
    return static_cast<decltype(last)>(value);
  };
  r.code = enumerator(opcode::close);
  r.message = in.get<std::uint8_t>() != 0;
  r.uneven = in.get<std::uint8_t>() != 0;
  r.type = enumerator(static_cast<dtype>(dtype_count - 1));
  r.root = in.get<int>();
  r.elements = in.get<std::int64_t>();
  r.reduction_hash = in.get<std::uint64_t>();
  r.counts_hash = in.get<std::uint64_t>();
  r.message_type.hash = in.get<std::uint64_t>();
  r.where.line = in.get<int>();
  std::array<std::int64_t, 256> shape;
  const auto dimensions = in.get<std::uint8_t>();
  for (std::size_t d = 0; d < dimensions; ++d) shape[d] = in.get<std::int64_t>();
  r.shape = layout::contiguous(std::span(shape).first(dimensions));
  to.reduction_name = in.get_text();
  to.type_name = in.get_text();
  to.file = in.get_text();
  r.reduction_name = to.reduction_name;
  r.message_type.name = to.type_name;
  r.where.file = to.file.c_str();
  to.refusal = in.get_text();
  const auto counts = in.get<std::uint32_t>();
  const auto bytes = in.take(std::size_t{counts} * sizeof(std::int64_t));
  to.counts.resize(counts);
  if (counts != 0) std::memcpy(to.counts.data(), bytes.data(), bytes.size());
}

inline void write_revocation(frame& to, const revocation& r) {
  detail::byte_writer out(to);
  out.put(r.why);
  out.put(r.sequence);
  out.put(r.waited.count());
  out.put_text(r.text);
  out.put_text(r.argument);
  out.put(static_cast<std::uint32_t>(r.ranks.size()));
  for (const int rank : r.ranks) out.put(rank);
}

[[nodiscard]] inline revocation read_revocation(detail::byte_reader& in) {
  revocation r;
  const auto why = in.get<std::uint8_t>();
  if (why > static_cast<std::uint8_t>(revocation::kind::failure)) {
    throw decode_error("frame: unknown cause");
  }
  r.why = static_cast<revocation::kind>(why);
  r.sequence = in.get<std::uint64_t>();
  r.waited = std::chrono::nanoseconds(in.get<std::int64_t>());
  r.text = in.get_text();
  r.argument = in.get_text();
  for (auto n = in.get<std::uint32_t>(); n > 0; --n) r.ranks.push_back(in.get<int>());
  if (r.why == revocation::kind::peer_lost && r.ranks.empty()) {
    throw decode_error("frame: nobody is lost");
  }
  return r;
}

}  // namespace rankcast::inline v0::frames
