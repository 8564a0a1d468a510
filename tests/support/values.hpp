/// Values that differ by rank and position, and the sizes, roots and dtypes that tests go through.
#pragma once

#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "oracle.hpp"
#include "rankcast/core/tensor.hpp"
#include "ranks.hpp"

namespace support {

using rankcast::dtype;
using rankcast::tensor;

/// Those that the transport can make.
inline std::vector<int> rank_counts() {
  std::vector<int> counts;
  for (const int n : {1, 2, 3, 4, 7, 8}) {
    if (n <= most_ranks()) counts.push_back(n);
  }
  return counts;
}

/// First, last and middle.
inline std::set<int> roots(int ranks) {
  return {0, ranks - 1, ranks / 2};
}

/// Zero, one, a prime, around a chunk, and above the eager limit (where senders' own memory is
/// read).
inline std::set<std::int64_t> sizes(std::size_t element_bytes, const world_options& options = {}) {
  const auto chunk = static_cast<std::int64_t>(options.chunk_bytes / element_bytes);
  const auto eager = static_cast<std::int64_t>(options.eager_bytes / element_bytes);
  return {0, 1, 13, chunk - 1, chunk, chunk + 1, eager, eager + 3};
}

inline std::vector<dtype> all_dtypes() {
  std::vector<dtype> types;
  for (int t = 0; t < rankcast::dtype_count; ++t) types.push_back(static_cast<dtype>(t));
  return types;
}

/// A small number that every numeric dtype holds exactly, negative ones where `is_signed`.
inline std::int64_t pattern(int rank, std::int64_t i, std::int64_t salt = 0) {
  return (rank * 37 + i * 11 + salt * 5 + (i * i) % 7) % 101;
}

inline std::vector<std::int64_t> pattern_values(int rank, std::int64_t n, std::int64_t salt = 0) {
  std::vector<std::int64_t> v;
  for (std::int64_t i = 0; i < n; ++i) v.push_back(pattern(rank, i, salt));
  return v;
}

inline oracle::by_rank<std::int64_t> pattern_by_rank(int ranks, std::int64_t n,
                                                     std::int64_t salt = 0) {
  oracle::by_rank<std::int64_t> all;
  for (int r = 0; r < ranks; ++r) all.push_back(pattern_values(r, n, salt));
  return all;
}

/// Writes values into elements of any dtype; bool keeps their parity, bytes their low byte.
inline void write_values(rankcast::tensor_view t, const std::vector<std::int64_t>& values) {
  ASSERT_EQ(t.elements(), static_cast<std::int64_t>(values.size()));
  ASSERT_TRUE(t.is_contiguous());
  if (t.dtype() == dtype::bytes) {
    for (std::size_t i = 0; i < values.size(); ++i)
      t.address()[i] = static_cast<std::byte>(values[i]);
    return;
  }
  rankcast::visit(t.dtype(), "test", [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = t.data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_same_v<T, bool>) out[i] = values[i] % 2 != 0;
      else if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) {
        out[i] = T(static_cast<float>(values[i]));
      } else out[i] = static_cast<T>(values[i]);
    }
  });
}

inline tensor tensor_of(dtype type, const std::vector<std::int64_t>& values) {
  tensor t(type, {static_cast<std::int64_t>(values.size())});
  write_values(t, values);
  return t;
}

/// Room for n elements, filled with a byte that no test value has.
inline tensor room(dtype type, std::int64_t n) {
  tensor t(type, {n});
  if (t.bytes() != 0) std::memset(t.view().address(), 0xa5, t.bytes());
  return t;
}

/// Bit for bit the same elements.
inline testing::AssertionResult same(const tensor& got, const std::vector<std::int64_t>& values) {
  const tensor wanted = tensor_of(got.dtype(), values);
  if (got.elements() != wanted.elements()) {
    return testing::AssertionFailure()
           << got.elements() << " elements, wanted " << wanted.elements();
  }
  const std::size_t size = rankcast::size_of(got.dtype());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::byte* g = got.view().address() + i * size;
    const std::byte* w = wanted.view().address() + i * size;
    if (std::memcmp(g, w, size) != 0) {
      return testing::AssertionFailure() << rankcast::name(got.dtype()) << " element " << i
                                         << " of " << values.size() << " is not " << values[i];
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace support
