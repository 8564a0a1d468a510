/// C61: reductions by callables of the user, with and without state, on ranges, tensors and single
/// values, compiled under every warning: what a callable does not take must not be converted to it
/// behind the user's back.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <rankcast/rankcast.hpp>
#include <vector>

namespace {

using rankcast::communicator;

constexpr int ranks = 2;

template <class Send, class Receive, class Share, class F>
void every_fold(const communicator& world, Send&& send, Receive&& receive, Share&& share,
                const F& f) {
  rankcast::reduce(world, send, receive, f, {.root = 1});
  rankcast::start_reduce(world, send, receive, f).wait();
  rankcast::all_reduce(world, send, receive, f);
  rankcast::all_reduce(world, receive, f);
  rankcast::start_all_reduce(world, receive, f).wait();
  rankcast::reduce_scatter(world, send, share, f);
  rankcast::start_reduce_scatter(world, send, share, f).wait();
}

// T: the elements; f folds two accumulators (float for 16-bit floats).
template <class T, class F>
void on_ranges_and_tensors(const communicator& world, const F& f) {
  std::vector<T> send(4);
  std::vector<T> receive(4);
  std::vector<T> share(2);
  every_fold(world, send, receive, share, f);
  rankcast::tensor tensor_send(rankcast::dtype_of<T>(), {4});
  rankcast::tensor tensor_receive(rankcast::dtype_of<T>(), {4});
  rankcast::tensor tensor_share(rankcast::dtype_of<T>(), {2});
  for (T& v : tensor_send.values<T>()) v = T();
  every_fold(world, tensor_send, tensor_receive, tensor_share, f);
  T value{};
  rankcast::all_reduce(world, value, f);
  rankcast::start_all_reduce(world, value, f).wait();
}

double larger(double a, double b) {
  return a < b ? b : a;
}

TEST(Callables, C61_without_state) {
  rankcast::run(ranks, [](communicator& world) {
    on_ranges_and_tensors<double>(world, [](double a, double b) { return a + b; });
    on_ranges_and_tensors<std::int32_t>(world,
                                        [](std::int32_t a, std::int32_t b) { return a | b; });
    on_ranges_and_tensors<rankcast::bfloat16>(world,
                                              [](float a, float b) { return a < b ? a : b; });
    on_ranges_and_tensors<double>(world, &larger);
  });
}

TEST(Callables, C61_with_state) {
  rankcast::run(ranks, [](communicator& world) {
    const double limit = 10;
    on_ranges_and_tensors<double>(
        world, [limit](double a, double b) { return a + b < limit ? a + b : limit; });
    auto changeable = [limit](double a, double b) { return a + b < limit ? a + b : limit; };
    double value = 3;
    rankcast::all_reduce(world, value, changeable);  // the callable, not a place to receive into
    EXPECT_EQ(value, 6);
  });
}

}  // namespace
