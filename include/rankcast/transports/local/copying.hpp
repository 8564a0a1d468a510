/// Copies into memory that another CPU reads next: through the caches, or past them.
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

/// Copies past the caches where the processor can.
inline void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__SSE2__)
  const std::size_t head = std::min(bytes, (16 - reinterpret_cast<std::uintptr_t>(to) % 16) % 16);
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
    const auto* in = reinterpret_cast<const __m128i*>(from);
    auto* out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in);
    const __m128i b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2);
    const __m128i d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();  // streamed bytes are seen before whatever is said of them
#endif
  std::memcpy(to, from, bytes);
}

/// Fills a ring whose lines its readers still have in their caches. To take a line back from the
/// cache of another CPU is quick for some pairs of CPUs and takes longer than a write to memory for
/// others: now and then a copy is timed, and where it is slow, copies go past the caches. Where it
/// is neither, what is in the cache is dear to write and cheap to read, what is past it the other
/// way round, and who is ahead of its readers takes the dear way.
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
