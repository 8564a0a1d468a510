// Tensors and views: slices, indices, memory that is kept, and what is refused.
#include "rankcast/core/tensor.hpp"

#include <gtest/gtest.h>

#include <new>

#include "support/ranks.hpp"

namespace {

using rankcast::const_tensor_view;
using rankcast::dtype;
using rankcast::tensor;
using rankcast::tensor_view;
using rankcast::usage_error;

tensor counting(std::int64_t rows, std::int64_t columns) {
  tensor t(dtype::int32, {rows, columns});
  int i = 0;
  for (int& v : t.values<int>()) v = i++;
  return t;
}

TEST(tensors, slices_and_indices) {
  tensor t = counting(4, 5);
  EXPECT_EQ((t.at<int>(2, 3)), 13);
  const tensor_view column = t.view().slice(1, 3, 1);
  EXPECT_EQ(column.elements(), 4);
  EXPECT_FALSE(column.is_contiguous());
  EXPECT_EQ((column.at<int>(2, 0)), 13);
  const tensor_view block = t.view().slice(0, 1, 2).slice(1, 2, 2).transpose(0, 1);
  EXPECT_EQ((block.at<int>(0, 1)), 12);
  EXPECT_EQ((block.at<int>(1, 0)), 8);
  block.at<int>(1, 1) = -1;
  EXPECT_EQ((t.at<int>(2, 3)), -1);
  EXPECT_EQ(t.view().slice(0, 4, 0).elements(), 0);
  const const_tensor_view read = t;
  EXPECT_EQ((read.slice(0, 2, 1).at<int>(0, 0)), 10);
  EXPECT_EQ(t.view().text(), "int32 (4,5)");
}

TEST(tensors, refuse_what_is_outside) {
  tensor t = counting(4, 5);
  EXPECT_THROW((void)t.at<float>(0, 0), usage_error);
  EXPECT_THROW((void)t.at<int>(0), usage_error);
  EXPECT_THROW((void)t.at<int>(4, 0), usage_error);
  EXPECT_THROW((void)t.at<int>(0, -1), usage_error);
  EXPECT_THROW((void)t.view().slice(2, 0, 1), usage_error);
  EXPECT_THROW((void)t.view().slice(0, 3, 2), usage_error);
  EXPECT_THROW((void)t.view().slice(0, -1, 2), usage_error);
  EXPECT_THROW((void)t.view().slice(0, 1, -1), usage_error);
  EXPECT_THROW((void)t.view().slice(0, std::numeric_limits<std::int64_t>::max(), 1), usage_error);
  EXPECT_THROW((void)t.view().transpose(0, 2), usage_error);
  EXPECT_THROW((void)t.extent(2), usage_error);
  EXPECT_THROW(tensor(dtype::int8, {-1}), usage_error);
  EXPECT_THROW(tensor(dtype::float64, {std::int64_t{1} << 60, 2}), usage_error);
  int values[6] = {};
  EXPECT_THROW(tensor_view(std::span<int>(values), {2, 2}), usage_error);
  EXPECT_EQ(tensor_view(std::span<int>(values), {2, 3}).elements(), 6);
}

TEST(tensors, keep_their_memory) {
  tensor t(dtype::float64, {100});
  const auto* address = t.view().address();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % 64, 0u);
  t.resize(dtype::int8, {30, 20});
  EXPECT_EQ(t.view().address(), address);
  EXPECT_EQ(t.bytes(), 600u);
  EXPECT_EQ(t.capacity(), 800u);
  t.resize(dtype::float32, {0});
  t.resize(dtype::float32, {200});
  EXPECT_EQ(t.view().address(), address);
  t.resize(t.dtype(), t.shape());
  EXPECT_EQ(t.elements(), 200);
  t.resize(dtype::float64, {101});
  EXPECT_EQ(t.capacity(), 808u);
}

TEST(tensors, move_and_clone) {
  tensor a = counting(2, 3);
  const auto* address = a.view().address();
  tensor b = std::move(a);
  EXPECT_EQ(b.view().address(), address);
  EXPECT_EQ(a.elements(), 0);  // NOLINT: a moved-from tensor is empty
  tensor c = b.clone();
  EXPECT_NE(c.view().address(), address);
  c.at<int>(1, 2) = 50;
  EXPECT_EQ((b.at<int>(1, 2)), 5);
  b = std::move(c);
  EXPECT_EQ((b.at<int>(1, 2)), 50);
  EXPECT_EQ(tensor().clone().elements(), 0);
  EXPECT_EQ(tensor(dtype::int8, {}).elements(), 1);
}

// Sanitizers end the program instead of refusing memory.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(tensors, without_memory_are_empty_not_dangling) {
  tensor t = counting(2, 3);
  EXPECT_THROW(t.resize(dtype::int8, {std::int64_t{1} << 62}), std::bad_alloc);
  EXPECT_EQ(t.elements(), 0);
  EXPECT_EQ(t.bytes(), 0u);
  EXPECT_EQ(t.capacity(), 0u);
  t.resize(dtype::int32, {4});
  t.at<int>(3) = 1;
}
#endif

}  // namespace
