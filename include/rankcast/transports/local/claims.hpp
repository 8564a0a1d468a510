/// Work of known size that two ranks share: chunks are claimed one at a time from the same word,
/// which also says what they belong to. A claim made late, for work that is over, cannot succeed.
#pragma once

#include <atomic>
#include <cstdint>

#include "rankcast/core/config.hpp"

namespace rankcast::inline v0::local {

/// The word: the number of the work above, the chunks left below.
template <template <class> class Atomic = std::atomic>
struct basic_claims {
  static constexpr std::uint64_t chunk_bits = 24;
  static constexpr std::uint64_t most_chunks = (std::uint64_t{1} << chunk_bits) - 1;

  /// By the reader, when the last work is over: everything about the new one has been written.
  static void post(Atomic<std::uint64_t>& word, std::uint32_t chunks) noexcept {
    const std::uint64_t number = (word.load(std::memory_order_relaxed) >> chunk_bits) + 1;
    word.store((number << chunk_bits) | chunks, std::memory_order_seq_cst);
  }

  /// The index of a chunk that is the caller's now, counted from the end; 0 when none is left.
  [[nodiscard]] static std::uint32_t take(Atomic<std::uint64_t>& word) noexcept {
    std::uint64_t seen = word.load(std::memory_order_acquire);
    while ((seen & most_chunks) != 0) {
      if (word.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
        return static_cast<std::uint32_t>(seen & most_chunks);
      }
    }
    return 0;
  }
};
using claims = basic_claims<>;

}  // namespace rankcast::inline v0::local
