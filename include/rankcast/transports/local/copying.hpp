/// Copies through memory that CPUs share: whose the lines are, and when copies go past the caches.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "rankcast/core/timeout.hpp"

namespace rankcast::inline v0::local {

/// As memcpy; up to 16 bytes without a call.
inline void copy_short(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const auto ends = [&]<class T>(T first, T last) {  // which may overlap
    std::memcpy(&first, from, sizeof first);
    std::memcpy(&last, from + bytes - sizeof last, sizeof last);
    std::memcpy(to, &first, sizeof first);
    std::memcpy(to + bytes - sizeof last, &last, sizeof last);
  };
  if (bytes > 16) std::memcpy(to, from, bytes);
  else if (bytes >= 8) ends(std::uint64_t{}, std::uint64_t{});
  else if (bytes >= 4) ends(std::uint32_t{}, std::uint32_t{});
  else if (bytes >= 2) ends(std::uint16_t{}, std::uint16_t{});
  else if (bytes == 1) *to = *from;
}

inline constexpr std::size_t line_bytes = 64;
/// From `at` to the next multiple.
[[nodiscard]] inline std::size_t bytes_to(std::size_t multiple, const std::byte* at) noexcept {
  return (multiple - reinterpret_cast<std::uintptr_t>(at) % multiple) % multiple;
}

/// Where a copy goes: through the caches, or past them where the processor can. What has gone past
/// them is seen before what is said of it after `end_of_copy`.
enum class way { cached, past };

/// One line's bytes, which need not begin on a line; past the caches, `to` at a multiple of 16.
template <way Way>
inline void copy_line(std::byte* to, const std::byte* from) noexcept {
#if defined(__SSE2__)
  const auto* in = reinterpret_cast<const __m128i*>(from);
  auto* out = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(in);
  const __m128i b = _mm_loadu_si128(in + 1);
  const __m128i c = _mm_loadu_si128(in + 2);
  const __m128i d = _mm_loadu_si128(in + 3);
  if constexpr (Way == way::past) {
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  } else {
    _mm_storeu_si128(out, a);
    _mm_storeu_si128(out + 1, b);
    _mm_storeu_si128(out + 2, c);
    _mm_storeu_si128(out + 3, d);
  }
#else
  std::memcpy(to, from, line_bytes);
#endif
}
template <way Way>
inline void end_of_copy() noexcept {
#if defined(__SSE2__)
  if constexpr (Way == way::past) _mm_sfence();
#endif
}

/// As memcpy, past the caches.
inline void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const std::size_t head = std::min(bytes, bytes_to(16, to));
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= line_bytes; bytes -= line_bytes, to += line_bytes, from += line_bytes) {
    copy_line<way::past>(to, from);
  }
  end_of_copy<way::past>();
  std::memcpy(to, from, bytes);
}

// Rings with one reader. What another CPU has only read is still in its cache, as a second copy of
// the line, and to write such a line again takes three to six times as long as to write one that
// the other CPU has written to (near or far; measured on an EPYC (Zen 5): 1 MiB through a ring of
// 256 KiB 130 and 38 us, 510 and 80 us). So the only reader of a line writes to it once it has what
// stood there: the line is then its own, and goes back as a whole. (`prefetchw` does not do it.)

/// Into lines that come back from a reader who takes them. Plain stores: the processor's own string
/// copy, which memcpy may choose, is a third slower where lines come from afar.
inline void copy_to_taker(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  for (; bytes >= line_bytes; bytes -= line_bytes, to += line_bytes, from += line_bytes) {
    copy_line<way::cached>(to, from);
  }
  copy_short(to, from, bytes);
}
/// The line is free, whatever stood there.
inline void take_line(std::byte* line) noexcept {
  *const_cast<volatile std::byte*>(line) = std::byte{};
}
/// Takes the lines that lie within, whose bytes nobody needs any more.
inline void take_lines(std::byte* at, std::size_t bytes) noexcept {
  std::byte* const end = at + bytes;
  for (at += bytes_to(line_bytes, at); at + line_bytes <= end; at += line_bytes) take_line(at);
}
/// Copies out of lines, which begin here, and takes them, each at once: the two are then one
/// request.
template <way Way>
inline void copy_and_take_lines(std::byte* to, std::byte* from, std::size_t lines) noexcept {
  for (; lines > 0; --lines, to += line_bytes, from += line_bytes) {
    copy_line<Way>(to, from);
    take_line(from);
  }
  end_of_copy<Way>();
}
/// Likewise, from wherever; only whole lines are taken. Past the caches where `to` lies well.
inline void copy_and_take(std::byte* to, std::byte* from, std::size_t bytes,
                          way preferred = way::cached) noexcept {
  const std::size_t head = std::min(bytes, bytes_to(line_bytes, from));
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  const std::size_t whole = bytes / line_bytes * line_bytes;
  if (preferred == way::past && bytes_to(16, to) == 0) {
    copy_and_take_lines<way::past>(to, from, whole / line_bytes);
  } else {
    copy_and_take_lines<way::cached>(to, from, whole / line_bytes);
  }
  copy_short(to + whole, from + whole, bytes - whole);
}

/// Fills a ring whose lines several readers still have in their caches. To take a line back from
/// the cache of another CPU is quick for some pairs of CPUs and takes longer than a write to memory
/// for others: now and then a copy is timed, and where it is slow, copies go past the caches. Where
/// it is neither, what is in the cache is dear to write and cheap to read, what is past it the
/// other way round, and who is ahead of its readers takes the dear way.
class ring_filler {
 public:
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, bool ahead) noexcept {
    if (bytes >= least_bytes && ++copies_ % timed_every == 0) {
      const auto begin = steady_clock::now();
      std::memcpy(to, from, bytes);
      const std::chrono::duration<double, std::nano> took = steady_clock::now() - begin;
      note(took.count() / static_cast<double>(bytes));
    } else if (bytes >= least_bytes && (cost_ > slow || (cost_ > quick && !ahead))) {
      copy_streaming(to, from, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  }

 private:
  static constexpr std::size_t least_bytes = 2048;
  static constexpr unsigned timed_every = 16;
  // Nanoseconds per byte. Measured on an EPYC (Zen 5): 0.02 where the lines are in the writer's
  // first cache, 0.1 within a complex of cores, 0.3 to 0.4 between two.
  static constexpr double quick = 0.06;
  static constexpr double slow = 0.2;

  // One long copy may have been interrupted: the lower of the last two counts.
  void note(double cost) noexcept {
    cost_ = std::min(cost, last_);
    last_ = cost;
  }

  unsigned copies_ = 0;
  double last_ = 0;
  double cost_ = 0;
};

}  // namespace rankcast::inline v0::local
