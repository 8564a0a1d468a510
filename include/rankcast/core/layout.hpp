/// Shape and strides of a block of elements, and the walk over its contiguous runs. The order of a
/// layout's elements is row-major (last dimension fastest) whatever its strides: this is the order
/// in which every collective counts, cuts and joins them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "rankcast/core/error.hpp"

namespace rankcast::inline v0 {

/// Dimensions a tensor may have.
inline constexpr int max_dimensions = 8;

/// Only the first `dimensions` entries of the two arrays mean anything, and only they are written
/// and copied: calls of a few bytes would notice the rest.
struct layout {
  int dimensions = 0;
  std::array<std::int64_t, max_dimensions> shape;
  std::array<std::int64_t, max_dimensions> strides;  // in elements; may be negative

  layout() noexcept {}  // NOLINT: leaves the arrays as they are
  layout(const layout& other) noexcept { *this = other; }
  layout& operator=(const layout& other) noexcept {
    dimensions = other.dimensions;
    for (int d = 0; d < dimensions; ++d) {
      const auto i = static_cast<std::size_t>(d);
      shape[i] = other.shape[i];
      strides[i] = other.strides[i];
    }
    return *this;
  }
  ~layout() = default;

  /// Row-major layout of a shape. Throws usage_error on a negative extent, on more than
  /// `max_dimensions`, and when the number of elements does not fit in 63 bits.
  [[nodiscard]] static layout contiguous(std::span<const std::int64_t> shape) {
    if (shape.size() > static_cast<std::size_t>(max_dimensions)) {
      throw usage_error("a shape of " + std::to_string(shape.size()) + " dimensions: at most " +
                        std::to_string(max_dimensions) + " are supported");
    }
    layout l;
    l.dimensions = static_cast<int>(shape.size());
    std::int64_t elements = 1;
    bool overflow = false;
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (shape[d] < 0) throw usage_error("negative extent in shape " + text(shape));
      l.shape[d] = shape[d];
      l.strides[d] = elements;
      if (shape[d] != 0 && elements > std::numeric_limits<std::int64_t>::max() / shape[d]) {
        overflow = true;
      } else {
        elements *= std::max<std::int64_t>(shape[d], 1);
      }
    }
    // A zero extent does not excuse the others: their product is still an index that is computed.
    if (overflow) throw usage_error("shape " + text(shape) + " has more elements than 2^63 - 1");
    return l;
  }
  [[nodiscard]] static layout contiguous(std::initializer_list<std::int64_t> shape) {
    return contiguous(std::span<const std::int64_t>(shape.begin(), shape.size()));
  }

  /// One dimension of `elements` >= 0.
  [[nodiscard]] static layout flat(std::int64_t elements) noexcept {
    layout l;
    l.dimensions = 1;
    l.shape[0] = elements;
    l.strides[0] = 1;
    return l;
  }

  [[nodiscard]] std::int64_t elements() const noexcept {
    if (dimensions == 1) [[likely]]
      return shape[0];
    std::int64_t n = 1;
    for (int d = 0; d < dimensions; ++d) n *= extent(d);
    return n;
  }

  [[nodiscard]] std::int64_t extent(int d) const noexcept {
    return shape[static_cast<std::size_t>(d)];
  }
  [[nodiscard]] std::int64_t stride(int d) const noexcept {
    return strides[static_cast<std::size_t>(d)];
  }

  [[nodiscard]] bool is_contiguous() const noexcept {
    if (dimensions == 1) [[likely]]
      return strides[0] == 1 || shape[0] <= 1;
    if (elements() == 0) return true;
    std::int64_t expected = 1;
    for (int d = dimensions; d-- > 0;) {
      if (extent(d) != 1 && stride(d) != expected) return false;
      expected *= extent(d);
    }
    return true;
  }

  /// Offsets (in elements, from the address) of the lowest and one past the highest element.
  [[nodiscard]] std::array<std::int64_t, 2> bounds() const noexcept {
    std::int64_t low = 0;
    std::int64_t high = 1;
    for (int d = 0; d < dimensions; ++d) {
      if (extent(d) == 0) return {0, 0};
      const std::int64_t reach = (extent(d) - 1) * stride(d);
      (reach < 0 ? low : high) += reach;
    }
    return {low, high};
  }

  [[nodiscard]] std::span<const std::int64_t> shape_span() const noexcept {
    return {shape.data(), static_cast<std::size_t>(dimensions)};
  }

  /// "(2,3)"
  [[nodiscard]] static std::string text(std::span<const std::int64_t> shape) {
    std::string s = "(";
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (d != 0) s += ",";
      s += std::to_string(shape[d]);
    }
    return s + ")";
  }
  [[nodiscard]] std::string text() const { return text(shape_span()); }

  friend bool operator==(const layout& a, const layout& b) noexcept {
    const auto used = [&](const std::array<std::int64_t, max_dimensions>& x) {
      return std::span(x).first(static_cast<std::size_t>(a.dimensions));
    };
    return a.dimensions == b.dimensions &&
           std::equal(used(a.shape).begin(), used(a.shape).end(), b.shape.begin()) &&
           std::equal(used(a.strides).begin(), used(a.strides).end(), b.strides.begin());
  }
};

/// Walks the elements [first, first + count) of a layout as runs of consecutive addresses.
class run_walker {
 public:
  run_walker(const layout& l, std::int64_t first) noexcept : layout_(l) {
    // Fold trailing dimensions that lie back to back into one run.
    inner_ = l.dimensions;
    run_ = 1;
    while (inner_ > 0 && (l.extent(inner_ - 1) == 1 || l.stride(inner_ - 1) == run_)) {
      run_ *= l.extent(inner_ - 1);
      --inner_;
    }
    if (run_ == 0) return;
    within_ = first % run_;
    std::int64_t rest = first / run_;
    for (int d = inner_; d-- > 0;) {
      const auto i = static_cast<std::size_t>(d);
      if (l.shape[i] == 0) return;
      index_[i] = rest % l.shape[i];
      rest /= l.shape[i];
      offset_ += index_[i] * l.strides[i];
    }
  }

  /// Offset in elements of the present position.
  [[nodiscard]] std::int64_t offset() const noexcept { return offset_ + within_; }
  /// Elements that follow at consecutive addresses.
  [[nodiscard]] std::int64_t run() const noexcept { return run_ - within_; }

  /// Moves on by `n` <= run() elements.
  void advance(std::int64_t n) noexcept {
    within_ += n;
    if (within_ < run_) return;
    within_ = 0;
    for (int d = inner_; d-- > 0;) {
      const auto i = static_cast<std::size_t>(d);
      offset_ += layout_.strides[i];
      if (++index_[i] < layout_.shape[i]) return;
      offset_ -= layout_.shape[i] * layout_.strides[i];
      index_[i] = 0;
    }
  }

 private:
  layout layout_;
  int inner_ = 0;         // dimensions outside the run
  std::int64_t run_ = 1;  // elements at consecutive addresses
  std::int64_t within_ = 0;
  std::int64_t offset_ = 0;
  std::array<std::int64_t, max_dimensions> index_{};
};

/// f(position from `first`, offset in the layout, length) for each run of [first, first + count),
/// in elements.
template <class F>
void for_each_run(const layout& l, std::int64_t first, std::int64_t count, F&& f) {
  if (l.is_contiguous()) {  // most are; a walker is a copy of the layout
    if (count > 0) f(std::int64_t{0}, first, count);
    return;
  }
  run_walker walker(l, first);
  for (std::int64_t at = 0; at < count;) {
    const std::int64_t n = std::min(walker.run(), count - at);
    f(at, walker.offset(), n);
    walker.advance(n);
    at += n;
  }
}

namespace detail {

// Of layouts that do not lie in one piece.
inline void copy_runs(std::byte* target, const layout& target_layout, std::int64_t target_first,
                      const std::byte* source, const layout& source_layout,
                      std::int64_t source_first, std::int64_t count, std::size_t element_bytes) {
  run_walker to(target_layout, target_first);
  run_walker from(source_layout, source_first);
  const auto size = static_cast<std::int64_t>(element_bytes);
  while (count > 0) {
    const std::int64_t n = std::min({to.run(), from.run(), count});
    std::byte* out = target + to.offset() * size;
    const std::byte* in = source + from.offset() * size;
    if (out != in) std::memcpy(out, in, static_cast<std::size_t>(n * size));
    to.advance(n);
    from.advance(n);
    count -= n;
  }
}

}  // namespace detail

/// Copies `count` elements of `element_bytes` each, from position `source_first` of one layout to
/// position `target_first` of another, both counted in row-major order. No allocation.
inline void copy_elements(std::byte* target, const layout& target_layout, std::int64_t target_first,
                          const std::byte* source, const layout& source_layout,
                          std::int64_t source_first, std::int64_t count,
                          std::size_t element_bytes) {
  if (count <= 0) return;  // there may be no address
  if (target_layout.is_contiguous() && source_layout.is_contiguous()) {
    std::byte* out = target + target_first * static_cast<std::int64_t>(element_bytes);
    const std::byte* in = source + source_first * static_cast<std::int64_t>(element_bytes);
    if (out != in) std::memcpy(out, in, static_cast<std::size_t>(count) * element_bytes);
    return;
  }
  detail::copy_runs(target, target_layout, target_first, source, source_layout, source_first, count,
                    element_bytes);
}

/// True when two positions of the layout are the same address. Exact; allocates one bit per
/// element of the spanned range only for strides that are not plainly nested.
[[nodiscard]] inline bool overlaps_itself(const layout& l) {
  if (l.elements() <= 1 || l.is_contiguous()) return false;
  std::vector<std::array<std::int64_t, 2>> dims;  // {|stride|, extent}
  for (int d = 0; d < l.dimensions; ++d) {
    if (l.extent(d) > 1)
      dims.push_back({l.stride(d) < 0 ? -l.stride(d) : l.stride(d), l.extent(d)});
  }
  std::sort(dims.begin(), dims.end());
  bool nested = true;
  std::int64_t reach = 0;
  for (const auto& [stride, extent] : dims) {
    if (stride <= reach) nested = false;
    reach += stride * (extent - 1);
  }
  if (nested) return false;
  const auto [low, high] = l.bounds();
  if (high - low < l.elements()) return true;
  std::vector<bool> seen(static_cast<std::size_t>(high - low));
  run_walker walker(l, 0);
  for (std::int64_t i = 0; i < l.elements(); ++i) {
    const auto at = static_cast<std::size_t>(walker.offset() - low);
    if (seen[at]) return true;
    seen[at] = true;
    walker.advance(1);
  }
  return false;
}

}  // namespace rankcast::inline v0
