/// Options that collectives share, and how they reach the waist.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rankcast/core/communicator.hpp"

namespace rankcast::inline v0 {

/// Of calls with a root. `root` is a rank of the group.
struct rooted_options {
  int root = 0;
  rankcast::timeout timeout{};
  rankcast::completion completion = completion::group_default;
};

/// Of calls that cut a root's data into one share per rank, or join them there.
/// `counts`: elements per rank, only the root's matter; empty means equal shares.
struct rooted_share_options {
  int root = 0;
  std::span<const std::int64_t> counts{};
  rankcast::timeout timeout{};
  rankcast::completion completion = completion::group_default;
};

/// The same without a root: every rank gives the same `counts`.
struct share_options {
  std::span<const std::int64_t> counts{};
  rankcast::timeout timeout{};
  rankcast::completion completion = completion::group_default;
};

namespace detail {

template <class Options>
call_options common(const Options& o) {
  return {.timeout = o.timeout, .completion = o.completion};
}

// Opaque values travel as bytes, so shares that the caller counts in values are scaled.
template <class T>
consteval std::int64_t count_scale() {
  using U = std::remove_cvref_t<T>;
  if constexpr (std::ranges::range<U>) {
    using V = std::ranges::range_value_t<U>;
    if constexpr (opaque<V>) return sizeof(V);
  } else if constexpr (opaque<U> && single_value<U>) {
    return sizeof(U);
  }
  return 1;
}

inline std::vector<std::int64_t> scaled(std::span<const std::int64_t> counts, std::int64_t by) {
  std::vector<std::int64_t> result(counts.begin(), counts.end());
  for (auto& c : result) c *= by;
  return result;
}

}  // namespace detail

}  // namespace rankcast::inline v0
