/// The one rule by which rankcast cuts a dimension over ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "rankcast/core/error.hpp"

namespace rankcast::inline v0 {

/// Elements [first, first + count) of a dimension.
struct slice {
  std::int64_t first = 0;
  std::int64_t count = 0;

  [[nodiscard]] constexpr std::int64_t end() const noexcept { return first + count; }
  friend constexpr bool operator==(const slice&, const slice&) noexcept = default;
};

/// The share of `rank` when `total` elements are cut near-evenly over `ranks`, in whole `unit`s,
/// larger shares first. Shares tile the total exactly; a share may be empty; a tail smaller than a
/// unit stays with the last unit.
///
///   partition(10, 4, 2) == {6, 2}          // 3, 3, 2, 2
///
/// Throws usage_error on a negative total, a unit below one or a rank outside [0, ranks).
[[nodiscard]] inline slice partition(std::int64_t total, int ranks, int rank,
                                     std::int64_t unit = 1) {
  if (total < 0 || unit < 1 || ranks < 1 || rank < 0 || rank >= ranks) {
    throw usage_error("partition: cannot cut " + std::to_string(total) + " elements in units of " +
                      std::to_string(unit) + " for rank " + std::to_string(rank) + " of " +
                      std::to_string(ranks));
  }
  const std::int64_t units = total / unit + (total % unit != 0 ? 1 : 0);
  const std::int64_t base = units / ranks;
  const std::int64_t longer = units % ranks;  // this many ranks get one unit more
  const std::int64_t first =
      std::min((rank * base + std::min<std::int64_t>(rank, longer)) * unit, total);
  const std::int64_t count = std::min((base + (rank < longer ? 1 : 0)) * unit, total - first);
  return {first, count};
}

/// The shares of all ranks.
[[nodiscard]] inline std::vector<std::int64_t> partition_counts(std::int64_t total, int ranks,
                                                                std::int64_t unit = 1) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(partition(total, ranks, r, unit).count);
  return counts;
}

}  // namespace rankcast::inline v0
