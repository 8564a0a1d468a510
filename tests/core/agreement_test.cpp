// Comparing calls: who is odd, what each gave, ties, and ranks that have not arrived.
#include "rankcast/core/agreement.hpp"

#include <gtest/gtest.h>

#include "support/ranks.hpp"

namespace {

using rankcast::call_record;
using rankcast::compare_calls;
using rankcast::dtype;
using rankcast::opcode;

call_record record(opcode code, std::int64_t elements, dtype type = dtype::float32, int root = -1) {
  call_record r;
  r.code = code;
  r.elements = elements;
  r.type = type;
  r.root = root;
  r.shape = rankcast::layout::contiguous({elements});
  return r;
}

std::optional<rankcast::disagreement> compare(
    const std::vector<std::optional<call_record>>& calls) {
  std::vector<const call_record*> pointers;
  for (const auto& c : calls) pointers.push_back(c ? &*c : nullptr);
  return compare_calls(pointers);
}

TEST(agreement, of_equal_calls) {
  const auto same = record(opcode::all_reduce, 8);
  EXPECT_FALSE(compare({same}));
  EXPECT_FALSE(compare({same, same, same}));
  EXPECT_FALSE(compare({std::nullopt, same, std::nullopt, same}));
  EXPECT_FALSE(compare({std::nullopt, std::nullopt}));
  auto shaped = same;
  shaped.shape = rankcast::layout::contiguous({2, 4});
  EXPECT_FALSE(compare({same, shaped}));  // the same number of elements
}

TEST(agreement, names_the_minority) {
  const auto eight = record(opcode::all_reduce, 8);
  const auto sixteen = record(opcode::all_reduce, 16);
  const auto d = compare({sixteen, std::nullopt, eight, sixteen, std::nullopt, sixteen});
  ASSERT_TRUE(d);
  EXPECT_EQ(d->argument, "elements");
  EXPECT_EQ(d->odd_ranks, std::vector<int>{2});
  EXPECT_CONTAINS(d->text, "ranks 0, 3, 5 gave 16 elements (float32 (16))");
  EXPECT_CONTAINS(d->text, "rank 2 gave 8 elements (float32 (8))");
  EXPECT_CONTAINS(d->text, "odd: rank 2");
}

TEST(agreement, on_a_tie_all_are_named) {
  const auto a = record(opcode::all_reduce, 8);
  const auto b = record(opcode::all_reduce, 9);
  const auto d = compare({a, b, std::nullopt, a, b});
  ASSERT_TRUE(d);
  EXPECT_EQ(d->odd_ranks, (std::vector<int>{0, 1, 3, 4}));
  EXPECT_FALSE(support::contains(d->text, "odd:"));
  const auto three = compare({a, b, record(opcode::all_reduce, 10)});
  ASSERT_TRUE(three);
  EXPECT_EQ(three->odd_ranks, (std::vector<int>{0, 1, 2}));
}

TEST(agreement, every_argument) {
  const auto base = record(opcode::broadcast, 8, dtype::float32, 0);
  const auto argument = [&](auto&& change) {
    auto other = base;
    change(other);
    const auto d = compare({base, base, other});
    if (!d) return std::string("none");
    EXPECT_EQ(d->odd_ranks, std::vector<int>{2});
    return d->argument;
  };
  EXPECT_EQ(argument([](auto& r) { r.code = opcode::reduce; }), "call");
  EXPECT_EQ(argument([](auto& r) { r.message = true; }), "form");
  EXPECT_EQ(argument([](auto& r) { r.root = 1; }), "root");
  EXPECT_EQ(argument([](auto& r) { r.reduction_hash = 5; }), "reduction");
  EXPECT_EQ(argument([](auto& r) { r.type = dtype::float64; }), "dtype");
  EXPECT_EQ(argument([](auto& r) { r.elements = 9; }), "elements");
  EXPECT_EQ(argument([](auto& r) { r.where = {"x.cpp", 3}; }), "none");
  // The first difference is the one that is told: a call of another kind explains the rest.
  EXPECT_EQ(argument([](auto& r) {
              r.code = opcode::barrier;
              r.root = -1;
              r.elements = 0;
            }),
            "call");
}

TEST(agreement, tells_where_the_calls_stand) {
  auto a = record(opcode::barrier, 0);
  auto b = record(opcode::broadcast, 0);
  a.where = {"train.cpp", 31};
  b.where = {"eval.cpp", 40};
  const auto d = compare({a, a, b});
  ASSERT_TRUE(d);
  EXPECT_CONTAINS(d->text, "rank 0 at train.cpp:31");
  EXPECT_CONTAINS(d->text, "rank 2 at eval.cpp:40");
}

// Non-roots of a scatter or gather cannot know whether the root gives counts before it has come.
TEST(agreement, of_uneven_shares) {
  const auto one = record(opcode::gather, 1, dtype::float32, 0);
  const auto two = record(opcode::gather, 2, dtype::float32, 0);
  auto counting = record(opcode::gather, 3, dtype::float32, 0);
  EXPECT_TRUE(compare({counting, one, two}));
  EXPECT_FALSE(compare({std::nullopt, one, two}));
  counting.uneven = true;
  EXPECT_FALSE(compare({counting, one, two}));
  EXPECT_TRUE(rankcast::detail::check_share(1, 4, 0, 5));
  EXPECT_FALSE(rankcast::detail::check_share(1, 5, 0, 5));
  auto all = record(opcode::all_gather, 3);
  all.uneven = true;
  all.counts_hash = 1;
  auto others = all;
  others.counts_hash = 2;
  const auto d = compare({all, all, others});
  ASSERT_TRUE(d);
  EXPECT_EQ(d->argument, "counts");
}

}  // namespace
