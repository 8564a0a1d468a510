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

/// Fills a ring whose lines its readers still have in their caches. Between CPUs that share a cache
/// it is quick to take them back; between others it takes longer than to write past the caches.
/// Which of the two it is shows in the time that a copy takes, and may change while a program runs:
/// now and then one is timed.
class ring_filler {
 public:
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    if (bytes < least_bytes) {
      std::memcpy(to, from, bytes);
    } else if (++copies_ % timed_every == 0) {
      const auto begin = steady_clock::now();
      std::memcpy(to, from, bytes);
      const std::chrono::duration<double, std::nano> took = steady_clock::now() - begin;
      const bool slow = took.count() > slow_nanoseconds_per_byte * static_cast<double>(bytes);
      slow_ = std::clamp(slow_ + (slow ? 1 : -1), 0, 3);
    } else if (slow_ >= 2) {
      copy_streaming(to, from, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  }

 private:
  static constexpr std::size_t least_bytes = 2048;
  static constexpr unsigned timed_every = 16;
  // 6 GB/s: memory itself takes more. Measured on an EPYC (Zen 5): 0.08 to 0.1 within a complex of
  // cores, 0.3 to 0.4 between two.
  static constexpr double slow_nanoseconds_per_byte = 0.16;

  unsigned copies_ = 0;
  int slow_ = 0;  // of the last timed ones, counted down by quick ones
};

}  // namespace rankcast::inline v0::local
