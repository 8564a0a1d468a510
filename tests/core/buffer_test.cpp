// What may be sent and received into, decided at compile time, both ways.
#include "rankcast/core/buffer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace {

using rankcast::const_tensor_view;
using rankcast::dtype;
using rankcast::nothing_t;
using rankcast::opaque;
using rankcast::readable_data;
using rankcast::tensor;
using rankcast::tensor_view;
using rankcast::writable_data;

struct plain {
  int a;
  double b;
};
struct with_text {
  std::string text;
};
struct empty {};

static_assert(readable_data<int> && readable_data<const double&> && readable_data<bool>);
static_assert(readable_data<std::vector<float>> && readable_data<const std::array<int, 3>&>);
static_assert(readable_data<std::span<const short>> && readable_data<std::string>);
static_assert(readable_data<int[4]>);
static_assert(readable_data<tensor> && readable_data<tensor_view> &&
              readable_data<const_tensor_view>);
static_assert(readable_data<plain> && readable_data<std::vector<plain>> &&
              readable_data<nothing_t>);

static_assert(!readable_data<std::vector<std::string>> && !readable_data<with_text>);
static_assert(!readable_data<std::vector<bool>> && !readable_data<std::list<int>>);
static_assert(!readable_data<int*> && !readable_data<std::vector<int*>>);
static_assert(!readable_data<std::vector<std::vector<int>>> && !readable_data<empty>);
static_assert(!readable_data<std::unique_ptr<int>>);

static_assert(writable_data<int&> && writable_data<std::vector<float>&>);
static_assert(writable_data<std::span<int>> && writable_data<const std::span<int>&>);
static_assert(writable_data<tensor&> && writable_data<tensor_view> &&
              writable_data<const tensor_view&>);
static_assert(writable_data<plain&> && writable_data<nothing_t> && writable_data<int (&)[3]>);

static_assert(!writable_data<const int&> && !writable_data<int>);
static_assert(!writable_data<const std::vector<float>&> && !writable_data<std::vector<float>>);
static_assert(!writable_data<std::span<const int>> && !writable_data<const_tensor_view>);
static_assert(!writable_data<tensor> && !writable_data<const tensor&>);
static_assert(!writable_data<std::vector<bool>&> && !writable_data<with_text&>);

static_assert(opaque<plain> && !opaque<int> && !opaque<int*> && !opaque<with_text>);

TEST(buffers, describe_their_data) {
  std::vector<float> v(5);
  const auto b = rankcast::read_buffer(v);
  EXPECT_TRUE(b.given);
  EXPECT_EQ(b.elements(), 5);
  EXPECT_EQ(b.bytes(), 20u);
  EXPECT_EQ(b.type, dtype::float32);
  EXPECT_EQ(b.address, reinterpret_cast<std::byte*>(v.data()));
  std::vector<plain> p(3);
  EXPECT_EQ(rankcast::write_buffer(p).type, dtype::bytes);
  EXPECT_EQ(rankcast::write_buffer(p).bytes(), 3 * sizeof(plain));
  EXPECT_FALSE(rankcast::read_buffer(rankcast::nothing).given);
  EXPECT_EQ(rankcast::read_buffer(7).elements(), 1);
  EXPECT_TRUE(rankcast::read_buffer(std::vector<int>()).given);
  tensor t(dtype::int16, {2, 3});
  const auto column = rankcast::write_buffer(t.view().slice(1, 1, 1));
  EXPECT_EQ(column.elements(), 2);
  EXPECT_EQ(column.elements_layout.stride(0), 3);
}

}  // namespace
