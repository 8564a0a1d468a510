/// In which order the bytes of a stream come.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rankcast/transports/local/group.hpp"

namespace rankcast::inline v0::local {

/// How many bytes of a stream each reader gets, and in which order they come: in rounds of one
/// piece for each reader that has not got all of its own, beginning with the owner's neighbour. A
/// stream that is the same for all readers is one without rounds. Owner and readers compute the
/// same from the same numbers.
class stream_plan {
 public:
  stream_plan() = default;
  /// The same `bytes` for all readers, or for one.
  stream_plan(std::uint64_t bytes, int owner, int size, std::size_t piece) noexcept
      : owner_(owner), size_(size), piece_(piece), common_(true), most_(bytes) {}
  /// `share(r)`: bytes of each reader. The pieces of a round fit the ring several times.
  template <class Share>
  stream_plan(int owner, int size, std::size_t piece, Share&& share) noexcept
      : owner_(owner), size_(size), piece_(piece) {
    shares_.resize(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      shares_[static_cast<std::size_t>(r)] = r == owner ? 0 : share(r);
      most_ = std::max(most_, shares_[static_cast<std::size_t>(r)]);
    }
  }

  [[nodiscard]] bool common() const noexcept { return common_; }
  [[nodiscard]] std::uint64_t share(int r) const noexcept {
    return common_ ? most_ : shares_[static_cast<std::size_t>(r)];
  }
  [[nodiscard]] std::size_t piece() const noexcept { return piece_; }
  /// Rounds until every share is through.
  [[nodiscard]] std::uint64_t rounds() const noexcept { return (most_ + piece_ - 1) / piece_; }
  /// Bytes of a round in the ring.
  [[nodiscard]] std::uint64_t round_bytes(std::uint64_t round) const noexcept {
    if (common_) return spaced(piece_of(most_, round));
    std::uint64_t n = 0;
    for (const std::uint64_t s : shares_) n += spaced(piece_of(s, round));
    return n;
  }
  /// Where in its round the piece of `reader` begins.
  [[nodiscard]] std::uint64_t offset_of(int reader, std::uint64_t round) const noexcept {
    if (common_) return 0;
    std::uint64_t n = 0;
    for (int i = 1; i < size_; ++i) {
      const int r = (owner_ + i) % size_;
      if (r == reader) break;
      n += spaced(piece_of(shares_[static_cast<std::size_t>(r)], round));
    }
    return n;
  }
  [[nodiscard]] std::uint64_t bytes_of(int reader, std::uint64_t round) const noexcept {
    return piece_of(share(reader), round);
  }

 private:
  // Pieces begin on cache lines, so that no element lies across the end of the ring.
  [[nodiscard]] static std::uint64_t spaced(std::uint64_t n) noexcept { return (n + 63) / 64 * 64; }
  [[nodiscard]] std::uint64_t piece_of(std::uint64_t share, std::uint64_t round) const noexcept {
    const std::uint64_t done = round * piece_;
    return done >= share ? 0 : std::min<std::uint64_t>(piece_, share - done);
  }

  int owner_ = 0;
  int size_ = 0;
  std::uint64_t piece_ = 1;
  bool common_ = false;
  std::uint64_t most_ = 0;
  std::vector<std::uint64_t> shares_;
};

/// Bytes of a piece, so that `readers` of them fit a ring four times: while one is read the next
/// ones are written.
[[nodiscard]] inline std::size_t piece_bytes(const group& g, int readers,
                                             std::uint64_t total) noexcept {
  const std::size_t most =
      std::max<std::size_t>(g.ring_bytes / 4 / static_cast<std::size_t>(std::max(readers, 1)), 64);
  // A stream of few bytes is cut finer, so that its reader need not wait for all of it.
  const std::uint64_t fine =
      std::max(total / 8, std::clamp<std::uint64_t>(total / 4, 8 * 1024, 16 * 1024));
  const std::size_t n = std::min({most, g.sizes.chunk_bytes, static_cast<std::size_t>(fine)});
  return std::max<std::size_t>(n / 64 * 64, 64);
}

}  // namespace rankcast::inline v0::local
