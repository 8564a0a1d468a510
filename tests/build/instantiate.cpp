/// C61: every public template of rankcast, instantiated at least once: each collective on ranges,
/// single values, tensors, strided views and values without a dtype, blocking and started. The
/// build compiles it under every warning; compile.cmake does so again with each compiler.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <rankcast/parallel/logits.hpp>
#include <rankcast/parallel/mesh.hpp>
#include <rankcast/rankcast.hpp>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using rankcast::bfloat16;
using rankcast::communicator;
using rankcast::dtype;
using rankcast::float16;
using rankcast::nothing;
using rankcast::tensor;
using rankcast::tensor_view;

struct point {  // travels as bytes
  float x = 0;
  std::int32_t y = 0;
  friend bool operator==(const point&, const point&) = default;
};

constexpr int ranks = 2;
constexpr std::size_t share = 3;              // elements of one rank
constexpr std::size_t whole = share * ranks;  // elements of all

// What stands for the values of a rank: a vector, a span, an array, a tensor, a strided view.
template <class T>
struct range_data {
  std::vector<T> storage;
  explicit range_data(std::size_t n) : storage(n) {}
  std::vector<T>& get() { return storage; }
};
template <class T>
struct span_data {
  std::vector<T> storage;
  explicit span_data(std::size_t n) : storage(n) {}
  std::span<T> get() { return storage; }
};
template <class T>
struct tensor_data {
  tensor storage;
  explicit tensor_data(std::size_t n)
      : storage(rankcast::dtype_of<T>(), {static_cast<std::int64_t>(n)}) {
    for (auto& v : storage.template values<T>()) v = T();
  }
  tensor& get() { return storage; }
};
template <class T>
struct strided_data {  // every second element
  tensor storage;
  explicit strided_data(std::size_t n)
      : storage(rankcast::dtype_of<T>(), {static_cast<std::int64_t>(n), 2}) {
    for (auto& v : storage.template values<T>()) v = T();
  }
  tensor_view get() { return storage.view().slice(1, 0, 1); }
};

template <class Data>
void move_values(const communicator& world) {
  Data one(share);
  Data all(whole);
  Data other(whole);
  const std::array<std::int64_t, ranks> counts{share, share};

  rankcast::broadcast(world, one.get(), {.root = 1});
  rankcast::start_broadcast(world, one.get()).wait();
  rankcast::scatter(world, all.get(), one.get(), {.counts = counts});
  rankcast::start_scatter(world, all.get(), one.get()).wait();
  rankcast::gather(world, one.get(), all.get(), {.counts = counts});
  rankcast::start_gather(world, one.get(), all.get()).wait();
  rankcast::all_gather(world, one.get(), all.get(), {.counts = counts});
  rankcast::start_all_gather(world, one.get(), all.get()).wait();
  rankcast::all_to_all(world, all.get(), other.get(),
                       {.send_counts = counts, .receive_counts = counts});
  rankcast::start_all_to_all(world, all.get(), other.get()).wait();
}

template <class Data>
void exchange_messages(const communicator& world) {
  Data mine(share);
  Data theirs(share);
  const int peer = 1 - world.rank();
  rankcast::work sent = rankcast::start_send(world, mine.get(), peer, {.tag = 1});
  rankcast::receive(world, theirs.get(), peer, {.tag = 1});
  sent.wait();
  rankcast::work received = rankcast::start_receive(world, theirs.get(), peer);
  rankcast::send(world, mine.get(), peer);
  received.wait();
}

template <class Data, class F = rankcast::sum_t>
void fold_values(const communicator& world, const F& f = {}) {
  Data one(share);
  Data all(whole);
  Data result(whole);
  rankcast::reduce(world, all.get(), result.get(), f, {.root = 1});
  rankcast::start_reduce(world, all.get(), result.get(), f).wait();
  rankcast::all_reduce(world, all.get(), result.get(), f);
  rankcast::all_reduce(world, all.get(), f);
  rankcast::start_all_reduce(world, all.get(), f).wait();
  rankcast::start_all_reduce(world, all.get(), result.get(), f).wait();
  rankcast::reduce_scatter(world, all.get(), one.get(), f);
  rankcast::start_reduce_scatter(world, all.get(), one.get(), f).wait();
}

// One call is enough for each reduction: all of them share what it erases to.
template <class Data>
void every_reduction(const communicator& world) {
  Data data(share);
  rankcast::all_reduce(world, data.get(), rankcast::sum);
  rankcast::all_reduce(world, data.get(), rankcast::product);
  rankcast::all_reduce(world, data.get(), rankcast::minimum);
  rankcast::all_reduce(world, data.get(), rankcast::maximum);
  rankcast::all_reduce(world, data.get(), rankcast::logical_and);
  rankcast::all_reduce(world, data.get(), rankcast::logical_or);
}

template <class T>
void every_call_on_one_value(const communicator& world) {
  T value{};
  std::array<T, ranks> values{};
  rankcast::broadcast(world, value);
  rankcast::gather(world, value, values);
  rankcast::all_gather(world, value, values);
  rankcast::scatter(world, values, value);
  rankcast::all_reduce(world, value);
  rankcast::reduce_scatter(world, values, value);
}

TEST(Instantiate, C61_every_call_on_ranges_and_tensors) {
  rankcast::run(ranks, [](communicator& world) {
    move_values<range_data<float>>(world);
    move_values<span_data<bfloat16>>(world);
    move_values<tensor_data<double>>(world);
    move_values<strided_data<std::int8_t>>(world);
    exchange_messages<range_data<float>>(world);
    exchange_messages<tensor_data<double>>(world);
    exchange_messages<strided_data<std::int8_t>>(world);
    fold_values<range_data<float>>(world);
    fold_values<span_data<bfloat16>>(world);
    fold_values<tensor_data<double>>(world);
    fold_values<strided_data<std::int8_t>>(world);
    every_reduction<range_data<float>>(world);
    every_reduction<tensor_data<float>>(world);  // every dtype: a tensor's is known at run time
  });
}

TEST(Instantiate, C61_values_of_every_dtype) {
  rankcast::run(ranks, [](communicator& world) {
    every_call_on_one_value<double>(world);
    every_call_on_one_value<float>(world);
    every_call_on_one_value<bfloat16>(world);
    every_call_on_one_value<float16>(world);
    every_call_on_one_value<std::int64_t>(world);
    every_call_on_one_value<std::int32_t>(world);
    every_call_on_one_value<std::int16_t>(world);
    every_call_on_one_value<std::int8_t>(world);
    every_call_on_one_value<std::uint64_t>(world);
    every_call_on_one_value<std::uint32_t>(world);
    every_call_on_one_value<std::uint16_t>(world);
    every_call_on_one_value<std::uint8_t>(world);
    every_call_on_one_value<bool>(world);
    every_call_on_one_value<char>(world);  // int8 or uint8, as the platform has it
  });
}

TEST(Instantiate, C61_ranks_without_a_part_pass_nothing) {
  rankcast::run(ranks, [](communicator& world) {
    float value = 1;
    std::array<float, ranks> values{};
    if (world.rank() == 0) {
      rankcast::reduce(world, value, nothing, rankcast::sum, {.root = 1});
      rankcast::gather(world, value, nothing, {.root = 1});
      rankcast::scatter(world, nothing, value, {.root = 1});
    } else {
      rankcast::reduce(world, value, value, rankcast::sum, {.root = 1});
      rankcast::gather(world, value, values, {.root = 1});
      rankcast::scatter(world, values, value, {.root = 1});
    }
    EXPECT_EQ(value, world.rank() == 0 ? 1 : 2);
  });
}

TEST(Instantiate, C61_values_without_a_dtype) {
  rankcast::run(ranks, [](communicator& world) {
    move_values<range_data<point>>(world);
    move_values<span_data<point>>(world);
    exchange_messages<range_data<point>>(world);
    point p{1.0f, world.rank()};
    rankcast::broadcast(world, p, {.root = 1});
    EXPECT_EQ(p, (point{1.0f, 1}));
  });
}

TEST(Instantiate, C61_tensors_of_unknown_shape) {
  rankcast::run(ranks, [](communicator& world) {
    tensor t;
    rankcast::tensor_map set;
    if (world.rank() == 1) {
      t.resize(dtype::float32, {2, 3});
      for (float& v : t.values<float>()) v = 4;
      set.emplace("weight", t.clone());
    }
    rankcast::broadcast_tensor(world, t, {.root = 1});
    rankcast::start_broadcast_tensor(world, t, {.root = 1}).wait();
    rankcast::broadcast_tensors(world, set, {.root = 1});
    rankcast::start_broadcast_tensors(world, set, {.root = 1}).wait();
    EXPECT_EQ(t.at<float>(1, 2), 4);
    EXPECT_EQ(std::as_const(set.at("weight")).at<float>(0, 0), 4);
  });
}

template <class T>
void every_access() {
  tensor t(rankcast::dtype_of<T>(), {2, 2});
  for (T& v : t.values<T>()) v = T();
  const tensor& c = t;
  const rankcast::const_tensor_view cv = c.view();
  const tensor_view v = t.view();
  EXPECT_EQ(c.values<T>().size(), 4u);
  EXPECT_EQ(&t.at<T>(1, 1), &v.at<T>(1, 1));
  EXPECT_EQ(&c.at<T>(0, 1), &cv.at<T>(0, 1));
  EXPECT_EQ(t.data<T>(), v.data<T>());
  EXPECT_EQ(c.data<T>(), cv.data<T>());
  EXPECT_EQ(tensor_view(t.values<T>(), {4}).elements(), 4);
  EXPECT_EQ(v.transpose(0, 1).extent(0), cv.slice(0, 0, 1).transpose(0, 1).extent(0));
  rankcast::visit(t.dtype(), "test",
                  [](auto tag) { EXPECT_TRUE((std::is_same_v<typename decltype(tag)::type, T>)); });
}

TEST(Instantiate, C61_tensors_of_every_dtype) {
  every_access<double>();
  every_access<float>();
  every_access<bfloat16>();
  every_access<float16>();
  every_access<std::int64_t>();
  every_access<std::int32_t>();
  every_access<std::int16_t>();
  every_access<std::int8_t>();
  every_access<std::uint64_t>();
  every_access<std::uint32_t>();
  every_access<std::uint16_t>();
  every_access<std::uint8_t>();
  every_access<bool>();
}

TEST(Instantiate, C61_limits_and_groups) {
  rankcast::run(ranks, [](communicator& world) {
    for (const rankcast::timeout limit :
         {rankcast::timeout(5s), rankcast::timeout(500ms), rankcast::timeout(1min),
          rankcast::timeout(std::chrono::duration<double>(20.5)), rankcast::no_timeout}) {
      const rankcast::scoped_timeout scope(world, limit);
      EXPECT_EQ(world.effective_timeout(), limit);
    }
    rankcast::barrier(world, {.completion = rankcast::completion::everyone});
    rankcast::start_barrier(world).wait();
    rankcast::pending<int> answer(rankcast::start_barrier(world), std::make_shared<int>(42));
    while (!answer.test()) {
    }
    EXPECT_EQ(answer.wait(), 42);
    communicator half = world.split(world.rank());
    communicator pair = world.subgroup(std::array{1, 0}, {.name = "pair"});
    communicator twin = world.duplicate();
    EXPECT_EQ(pair.rank(), 1 - world.rank());
    half.close();
    pair.close();
    twin.close();
  });
}

TEST(Instantiate, C61_mesh_and_logits) {
  rankcast::run(ranks, [](communicator& world) {
    const rankcast::mesh grid(world, {.tensor = rankcast::remaining_ranks});
    const rankcast::sharded_vocabulary vocabulary(grid.tensor(), 7);
    const auto width = rankcast::vocabulary_shard::near_even(7, world).width();
    const std::array<std::int64_t, 2> targets{0, 6};
    const std::vector<std::int32_t> short_targets{0, 6};
    for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16}) {
      tensor logits(type, {2, width});
      rankcast::visit(type, "test", [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (auto& v : logits.values<T>()) v = T();
      });
      tensor out(dtype::float32, {2, 7});
      rankcast::all_gather_logits(vocabulary, logits, out);
      if (world.rank() == 1) rankcast::gather_logits(vocabulary, logits, nothing);
      else rankcast::gather_logits(vocabulary, logits, out);
      EXPECT_EQ(rankcast::argmax(vocabulary, logits).front(), 0);
      EXPECT_EQ(rankcast::top_k(vocabulary, logits, 2).id.size(), 4u);
      EXPECT_EQ(rankcast::sample(vocabulary, logits).size(), 2u);
      const auto a = rankcast::token_log_probabilities(vocabulary, logits, targets);
      const auto b = rankcast::token_log_probabilities(vocabulary, logits, short_targets);
      EXPECT_EQ(a.log_probability, b.log_probability);
    }
  });
}

}  // namespace
