/// How attention heads are spread over a tensor-parallel group.
#pragma once

#include <cstdint>
#include <string>

#include "rankcast/core/error.hpp"
#include "rankcast/core/partition.hpp"

namespace rankcast::transformer {

/// The heads of one rank: whole query heads, near-even, and every KV head that they read. Query
/// head h reads KV head h / (heads / kv_heads), so neighbours share a KV head, and ranks that do
/// each hold a copy.
struct head_share {
  slice query;
  slice kv;
  std::int64_t group = 1;  // query heads per KV head

  /// KV head, counted within this rank's, that local query head `local` reads.
  [[nodiscard]] std::int64_t kv_of(std::int64_t local) const noexcept {
    return (query.first + local) / group - kv.first;
  }
};

/// Throws usage_error when there are more ranks than query heads (a head is not cut), or when the
/// KV heads do not divide the query heads.
[[nodiscard]] inline head_share share_heads(std::int64_t heads, std::int64_t kv_heads, int ranks,
                                            int rank) {
  if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0) {
    throw usage_error("attention: " + std::to_string(heads) + " query heads do not divide over " +
                      std::to_string(kv_heads) + " KV heads");
  }
  if (ranks > heads) {
    throw usage_error("attention: " + std::to_string(heads) + " query heads (" +
                      std::to_string(kv_heads) + " KV heads) cannot be spread over " +
                      std::to_string(ranks) + " tensor-parallel ranks; 1 to " +
                      std::to_string(heads) + " ranks work");
  }
  head_share share;
  share.group = heads / kv_heads;
  share.query = partition(heads, ranks, rank);
  share.kv.first = share.query.first / share.group;
  share.kv.count = (share.query.end() - 1) / share.group + 1 - share.kv.first;
  return share;
}

}  // namespace rankcast::transformer
