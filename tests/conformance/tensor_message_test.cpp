// Tensors whose type and shape the receivers do not know, alone and as named sets.
#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using rankcast::dtype;
using rankcast::tensor;
using rankcast::tensor_map;
using support::run_ranks;
using support::same;
using support::tensor_of;

std::vector<std::int64_t> shape_of(const tensor& t) {
  return {t.shape().begin(), t.shape().end()};
}

tensor shaped(dtype type, std::initializer_list<std::int64_t> shape, int rank) {
  tensor t(type, shape);
  const auto flat = tensor_of(type, support::pattern_values(rank, t.elements()));
  if (t.bytes() != 0) std::memcpy(t.view().address(), flat.view().address(), t.bytes());
  return t;
}

bool equal(const tensor& a, const tensor& b) {
  return a.dtype() == b.dtype() && shape_of(a) == shape_of(b) &&
         (a.bytes() == 0 || std::memcmp(a.view().address(), b.view().address(), a.bytes()) == 0);
}

TEST(tensor_messages, of_unknown_type_and_shape) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      tensor t(dtype::int8, {3});
      for (const dtype type : support::all_dtypes()) {
        for (const int root : support::roots(ranks)) {
          for (const std::int64_t n : support::sizes(rankcast::size_of(type))) {
            support::step("broadcast_tensor");
            const auto wanted = shaped(type, {n, 1, 2}, root);
            if (world.rank() == root) t = wanted.clone();
            rankcast::broadcast_tensor(world, t, {.root = root});
            EXPECT_TRUE(equal(t, wanted)) << t.view().text();
          }
          const auto scalar = shaped(type, {}, root);
          if (world.rank() == root) t = scalar.clone();
          rankcast::broadcast_tensor(world, t, {.root = root});
          EXPECT_TRUE(equal(t, scalar));
          EXPECT_EQ(t.dimensions(), 0);
        }
      }
      tensor never_made;
      auto w = rankcast::start_broadcast_tensor(world, never_made, {.root = 0});
      w.wait();
      EXPECT_EQ(never_made.elements(), 0);
    });
  }
}

TEST(tensor_messages, keep_the_memory_of_the_receiver) {
  run_ranks(3, [](rankcast::communicator& world) {
    tensor t(dtype::float64, {1000});
    const auto* address = t.view().address();
    const auto capacity = t.capacity();
    for (const std::int64_t n : {1000, 1, 0, 500, 1000}) {
      if (world.rank() == 2) t = shaped(dtype::float64, {n}, 2);
      rankcast::broadcast_tensor(world, t, {.root = 2});
      if (world.rank() != 2) {
        EXPECT_EQ(t.view().address(), address);
        EXPECT_EQ(t.capacity(), capacity);
      }
    }
  });
}

TEST(tensor_messages, sets_become_the_roots) {
  for (const int ranks : {1, 2, 4}) {
    for (const std::int64_t n : {2, 500}) {  // in the slot, and read from the root's memory
      run_ranks(ranks, [&](rankcast::communicator& world) {
        const int root = ranks - 1;
        tensor_map set;
        if (world.rank() == root) {
          set.emplace("bias", shaped(dtype::bfloat16, {n}, root));
          set.emplace("empty", shaped(dtype::int64, {0, 3}, root));
          set.emplace("weight", shaped(dtype::float32, {n, 2}, root));
        } else {
          set.emplace("weight", tensor(dtype::float64, {4 * n}));
          set.emplace("old", tensor(dtype::int8, {7}));
        }
        const auto* kept = world.rank() != root ? set.at("weight").view().address() : nullptr;
        rankcast::broadcast_tensors(world, set, {.root = root});
        ASSERT_EQ(set.size(), 3u);
        EXPECT_EQ(set.count("old"), 0u);
        EXPECT_TRUE(equal(set.at("bias"), shaped(dtype::bfloat16, {n}, root)));
        EXPECT_TRUE(equal(set.at("empty"), shaped(dtype::int64, {0, 3}, root)));
        EXPECT_TRUE(equal(set.at("weight"), shaped(dtype::float32, {n, 2}, root)));
        if (world.rank() != root) {
          EXPECT_EQ(set.at("weight").view().address(), kept);
        }
        set.erase("bias");
        auto w = rankcast::start_broadcast_tensors(world, set, {.root = 0});
        w.wait();
        EXPECT_EQ(set.size(), 2u);
        if (world.rank() == 0) set.clear();
        rankcast::broadcast_tensors(world, set);
        EXPECT_TRUE(set.empty());
      });
    }
  }
}

TEST(tensor_messages, a_set_is_not_one_tensor) {
  run_ranks(2, [](rankcast::communicator& world) {
    const rankcast::rooted_options all{.completion = rankcast::completion::everyone};
    tensor_map set;
    set.emplace("a", tensor(dtype::int8, {1}));
    tensor t(dtype::float32, {2});
    const auto e = support::error_of<rankcast::mismatch_error>([&] {
      if (world.rank() == 0) rankcast::broadcast_tensors(world, set, all);
      else rankcast::broadcast_tensor(world, t, all);
    });
    if (e) {
      EXPECT_EQ(e->argument(), "type");
      EXPECT_CONTAINS(e->what(), "rank 0 gave a set of tensors, rank 1 gave a tensor");
    }
    EXPECT_EQ(t.elements(), 2);
  });
}

TEST(tensor_messages, meet_a_plain_broadcast_as_a_mismatch) {
  run_ranks(2, [](rankcast::communicator& world) {
    tensor t(dtype::float32, {2});
    const auto e = support::error_of<rankcast::mismatch_error>([&] {
      const rankcast::rooted_options all{.completion = rankcast::completion::everyone};
      if (world.rank() == 0) rankcast::broadcast_tensor(world, t, all);
      else rankcast::broadcast(world, t, all);
    });
    if (e) {
      EXPECT_EQ(e->argument(), "form");
    }
  });
}

}  // namespace
