/// The memory read bandwidth of this machine, now: what a decode step is measured against.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "pages.hpp"
#include "rankcast/core/error.hpp"
#include "threads.hpp"

namespace rankcast::transformer {

namespace detail {

/// The sum of `lines` cache lines of 8 integers, read front to back.
[[nodiscard]] inline std::uint64_t sum_lines(const std::uint64_t* from, std::int64_t lines) {
  std::array<std::uint64_t, 8> sums{};
  for (std::int64_t line = 0; line < lines; ++line, from += sums.size()) {
    // A page ahead, past the end of the page where hardware prefetchers stop.
    __builtin_prefetch(from + 512);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += from[i];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace detail

/// Bytes per second that `threads` threads read together from `bytes` bytes of memory: the best of
/// `passes` passes. `bytes` should be several times the caches;
/// the default takes 256 MiB of memory and, at 10 GB/s, a third of a second with its first writes.
/// Throws usage_error for threads, passes or bytes below 1; std::bad_alloc.
[[nodiscard]] inline double read_bandwidth_bytes_per_second(int threads,
                                                            std::size_t bytes = std::size_t{256}
                                                                                << 20,
                                                            int passes = 5) {
  if (threads < 1 || passes < 1 || bytes < 64) {
    throw usage_error(
        "read_bandwidth_bytes_per_second: threads, passes and bytes must be positive");
  }
  const scoped_threads team(threads);
  pages memory(bytes);
  const auto lines = static_cast<std::int64_t>(bytes / 64);
  auto* const words = reinterpret_cast<std::uint64_t*>(memory.data());
  // Written first: unwritten pages all map to one page of zeros, which stays in the cache.
  split_range(lines, [&](std::int64_t first, std::int64_t last) {
    std::fill(words + first * 8, words + last * 8, std::uint64_t{1});
  });
  double best = std::numeric_limits<double>::infinity();
  std::atomic<std::uint64_t> sum{0};
  for (int pass = 0; pass < passes; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    split_range(lines, [&](std::int64_t first, std::int64_t last) {
      sum += detail::sum_lines(words + first * 8, last - first);
    });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  // Written where the compiler must assume a reader, so the reads above stay.
  [[maybe_unused]] const volatile std::uint64_t kept = sum;
  return static_cast<double>(lines) * 64.0 / best;
}

}  // namespace rankcast::transformer
