// Layouts against brute force: the walk over runs, bounds, contiguity and self-overlap.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "rankcast/core/layout.hpp"

namespace {

using rankcast::layout;
using rankcast::run_walker;

// The offsets of all elements in row-major order, by counting indices like an odometer.
std::vector<std::int64_t> offsets(const layout& l) {
  std::vector<std::int64_t> result;
  std::vector<std::int64_t> index(static_cast<std::size_t>(l.dimensions));
  for (std::int64_t i = 0; i < l.elements(); ++i) {
    std::int64_t at = 0;
    for (int d = 0; d < l.dimensions; ++d) at += index[static_cast<std::size_t>(d)] * l.stride(d);
    result.push_back(at);
    for (int d = l.dimensions; d-- > 0;) {
      if (++index[static_cast<std::size_t>(d)] < l.extent(d)) break;
      index[static_cast<std::size_t>(d)] = 0;
    }
  }
  return result;
}

layout random_layout(std::mt19937& random) {
  const auto below = [&](int n) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
  };
  std::vector<std::int64_t> shape(static_cast<std::size_t>(below(5)));
  for (auto& extent : shape) extent = below(8) == 0 ? 0 : 1 + below(4);
  layout l = layout::contiguous(shape);
  const auto style = below(4);
  for (int d = 0; d < l.dimensions; ++d) {
    auto& stride = l.strides[static_cast<std::size_t>(d)];
    if (style == 1) stride *= below(2) == 0 ? 2 : -1;  // nested, spread or backwards
    if (style == 2) stride = below(13) - 6;            // anything, zero too
  }
  if (style == 3 && l.dimensions > 1) {
    std::swap(l.strides[0], l.strides[static_cast<std::size_t>(l.dimensions - 1)]);
    std::swap(l.shape[0], l.shape[static_cast<std::size_t>(l.dimensions - 1)]);
  }
  return l;
}

TEST(layouts, walk_visits_every_element_in_order) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 3000; ++trial) {
    const layout l = random_layout(random);
    const auto wanted = offsets(l);
    const auto n = static_cast<std::int64_t>(wanted.size());
    for (const std::int64_t first : {std::int64_t{0}, n / 3, n - 1}) {
      if (first < 0 || first >= n) continue;
      run_walker walker(l, first);
      for (std::int64_t at = first; at < n;) {
        ASSERT_GE(walker.run(), 1);
        // Parts of a run and whole runs.
        const std::int64_t step =
            trial % 2 == 0 ? std::min<std::int64_t>(walker.run(), 2) : walker.run();
        for (std::int64_t i = 0; i < step; ++i) {
          ASSERT_EQ(walker.offset() + i, wanted[static_cast<std::size_t>(at + i)]) << l.text();
        }
        walker.advance(step);
        at += step;
      }
    }
  }
}

TEST(layouts, bounds_contiguity_and_overlap) {
  std::mt19937 random(4);
  int overlapping = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    const layout l = random_layout(random);
    const auto all = offsets(l);
    const std::set<std::int64_t> different(all.begin(), all.end());
    ASSERT_EQ(rankcast::overlaps_itself(l), different.size() != all.size()) << l.text();
    overlapping += different.size() != all.size() ? 1 : 0;
    bool contiguous = true;
    for (std::size_t i = 0; i < all.size(); ++i) {
      contiguous = contiguous && all[i] == static_cast<std::int64_t>(i);
    }
    ASSERT_EQ(l.is_contiguous(), contiguous) << l.text();
    const auto [low, high] = l.bounds();
    if (all.empty()) {
      ASSERT_EQ(low, high);
    } else {
      ASSERT_EQ(low, *different.begin());
      ASSERT_EQ(high, *different.rbegin() + 1);
    }
  }
  EXPECT_GT(overlapping, 200);
}

TEST(layouts, copies_between_any_two) {
  std::mt19937 random(5);
  int copied = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const layout from = random_layout(random);
    const layout to = random_layout(random);
    if (from.elements() != to.elements() || rankcast::overlaps_itself(to)) continue;
    ++copied;
    const std::int64_t n = from.elements();
    const std::int64_t middle = 200;
    std::vector<int> source(400);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<int>(i);
    std::vector<int> target(400, -1);
    std::vector<int> wanted = target;
    const std::int64_t first = n / 4;
    const auto a = offsets(from);
    const auto b = offsets(to);
    for (std::int64_t i = first; i < n; ++i) {
      wanted[static_cast<std::size_t>(middle + b[static_cast<std::size_t>(i)])] =
          source[static_cast<std::size_t>(middle + a[static_cast<std::size_t>(i)])];
    }
    rankcast::copy_elements(reinterpret_cast<std::byte*>(target.data() + middle), to, first,
                            reinterpret_cast<const std::byte*>(source.data() + middle), from, first,
                            n - first, sizeof(int));
    ASSERT_EQ(target, wanted);
  }
  EXPECT_GT(copied, 500);
}

TEST(layouts, refuse_what_cannot_be) {
  EXPECT_THROW((void)layout::contiguous({1, -1}), rankcast::usage_error);
  EXPECT_THROW((void)layout::contiguous({1, 1, 1, 1, 1, 1, 1, 1, 1}), rankcast::usage_error);
  const std::int64_t big = std::int64_t{1} << 32;
  EXPECT_THROW((void)layout::contiguous({big, big}), rankcast::usage_error);
  EXPECT_THROW((void)layout::contiguous({0, big, big}), rankcast::usage_error);
  EXPECT_EQ(layout::contiguous({big, big / 4}).elements(), big * (big / 4));
  EXPECT_EQ(layout::contiguous({}).elements(), 1);
  EXPECT_EQ(layout::contiguous({3, 0, 2}).elements(), 0);
}

}  // namespace
