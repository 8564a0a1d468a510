/// The serial oracle: what every collective means, on one vector per rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rankcast/core/reduction.hpp"

namespace support::oracle {

/// The values of all ranks, by rank.
template <class T>
using by_rank = std::vector<std::vector<T>>;

using counts = std::vector<std::int64_t>;

inline std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

template <class T>
by_rank<T> broadcast(const by_rank<T>& in, int root) {
  return by_rank<T>(in.size(), in[index(root)]);
}

/// Cuts one rank's values by counts.
template <class T>
by_rank<T> scatter(const std::vector<T>& all, const counts& per_rank) {
  by_rank<T> out;
  std::size_t at = 0;
  for (const std::int64_t n : per_rank) {
    out.emplace_back();
    for (std::int64_t i = 0; i < n; ++i) out.back().push_back(all[at++]);
  }
  return out;
}

/// Joins all ranks' values in rank order.
template <class T>
std::vector<T> gather(const by_rank<T>& in) {
  std::vector<T> out;
  for (const auto& values : in) out.insert(out.end(), values.begin(), values.end());
  return out;
}

/// f(... f(f(x0, x1), x2) ...) for each element, in the accumulator's type, rounded once.
template <class T, class F>
std::vector<T> reduce(const by_rank<T>& in, const F& f) {
  using A = rankcast::detail::accumulator_of<T>;
  std::vector<T> out(in[0].size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    A a = static_cast<A>(in[0][i]);
    for (std::size_t r = 1; r < in.size(); ++r) {
      a = static_cast<A>(f(a, static_cast<A>(in[r][i])));
    }
    out[i] = static_cast<T>(a);
  }
  return out;
}

template <class T, class F>
by_rank<T> reduce_scatter(const by_rank<T>& in, const counts& per_rank, const F& f) {
  return scatter(reduce(in, f), per_rank);
}

/// shares[s][r] elements go from rank s to rank r.
template <class T>
by_rank<T> all_to_all(const by_rank<T>& in, const std::vector<counts>& shares) {
  by_rank<T> out(in.size());
  for (std::size_t s = 0; s < in.size(); ++s) {
    const by_rank<T> cut = scatter(in[s], shares[s]);
    for (std::size_t r = 0; r < in.size(); ++r) {
      out[r].insert(out[r].end(), cut[r].begin(), cut[r].end());
    }
  }
  return out;
}

}  // namespace support::oracle
