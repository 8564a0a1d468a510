/// Where a tensor lies on the ranks of a tensor-parallel group.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/error.hpp"
#include "rankcast/core/partition.hpp"

namespace rankcast::transformer {

/// A weight or activation over a group: the same on all ranks, cut along one dimension, or a term
/// of a sum on each. Layers check the placement of what they are given when they are built, so that
/// a shard is never taken for the whole.
class placement {
 public:
  enum class kind : std::uint8_t { replicated, sharded, partial };

  [[nodiscard]] static placement replicated() { return placement(kind::replicated, 0, {}); }
  /// Each rank holds a term; their sum is the tensor.
  [[nodiscard]] static placement partial() { return placement(kind::partial, 0, {}); }
  /// Rank r holds `widths[r]` of dimension `dimension`, in rank order; widths may be uneven or
  /// zero.
  [[nodiscard]] static placement sharded(int dimension, std::vector<std::int64_t> widths) {
    return placement(kind::sharded, dimension, std::move(widths));
  }

  [[nodiscard]] kind what() const noexcept { return kind_; }
  [[nodiscard]] int dimension() const noexcept { return dimension_; }
  [[nodiscard]] const std::vector<std::int64_t>& widths() const noexcept { return widths_; }

  /// The whole extent of the cut dimension.
  [[nodiscard]] std::int64_t total() const noexcept {
    std::int64_t sum = 0;
    for (const std::int64_t w : widths_) sum += w;
    return sum;
  }
  /// The part that `rank` holds.
  [[nodiscard]] slice share(int rank) const {
    slice s;
    for (int r = 0; r < rank; ++r) s.first += widths_.at(static_cast<std::size_t>(r));
    s.count = widths_.at(static_cast<std::size_t>(rank));
    return s;
  }

  /// "sharded(1: 5,4)"
  [[nodiscard]] std::string text() const {
    if (kind_ == kind::replicated) return "replicated";
    if (kind_ == kind::partial) return "partial";
    std::string s = "sharded(" + std::to_string(dimension_) + ": ";
    for (std::size_t r = 0; r < widths_.size(); ++r) {
      s += (r == 0 ? "" : ",") + std::to_string(widths_[r]);
    }
    return s + ")";
  }

  friend bool operator==(const placement&, const placement&) = default;

 private:
  placement(kind k, int dimension, std::vector<std::int64_t> widths)
      : kind_(k), dimension_(dimension), widths_(std::move(widths)) {}

  kind kind_;
  int dimension_;
  std::vector<std::int64_t> widths_;
};

}  // namespace rankcast::transformer
