// What one call costs on thread ranks: small collectives one after the other without a pause, and
// what the started form adds. Time is per call, as rank 0 sees it.
//
//   micro_collectives [--benchmark_filter=all_reduce]
#include <benchmark/benchmark.h>

#include <rankcast/rankcast.hpp>
#include <vector>

namespace {

constexpr int calls = 1000;  // for each turn of the benchmark, so that making ranks does not count

/// Times `calls` calls of `call(world, values)` with range(0) ranks and range(1) bytes.
template <class Call>
void run_calls(benchmark::State& state, Call call) {
  const auto ranks = static_cast<int>(state.range(0));
  const auto elements = static_cast<std::size_t>(state.range(1)) / sizeof(float);
  for (auto turn : state) {
    static_cast<void>(turn);
    rankcast::run(ranks, [&](rankcast::communicator& world) {
      std::vector<float> values(elements, 1.0F);
      rankcast::barrier(world);
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) call(world, values);
      rankcast::barrier(world);
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      if (world.rank() == 0) state.SetIterationTime(spent.count() / calls);
    });
  }
}

void broadcast(benchmark::State& state) {
  run_calls(state, [](auto& world, auto& values) { rankcast::broadcast(world, values); });
}
void start_broadcast_and_wait(benchmark::State& state) {
  run_calls(state, [](auto& world, auto& values) {
    rankcast::work started = rankcast::start_broadcast(world, values);
    started.wait();
  });
}
void all_reduce(benchmark::State& state) {
  run_calls(state, [](auto& world, auto& values) {
    rankcast::all_reduce(world, values, rankcast::maximum);
  });
}
void start_all_reduce_and_wait(benchmark::State& state) {
  run_calls(state, [](auto& world, auto& values) {
    rankcast::work started = rankcast::start_all_reduce(world, values, rankcast::maximum);
    started.wait();
  });
}
void barrier(benchmark::State& state) {
  run_calls(state, [](auto& world, auto&) { rankcast::barrier(world); });
}

void sizes(benchmark::internal::Benchmark* b) {
  b->UseManualTime()->ArgNames({"ranks", "bytes"})->ArgsProduct({{2}, {8, 256, 4096}});
}
BENCHMARK(broadcast)->Apply(sizes);
BENCHMARK(start_broadcast_and_wait)->Apply(sizes);
BENCHMARK(all_reduce)->Apply(sizes);
BENCHMARK(start_all_reduce_and_wait)->Apply(sizes);
BENCHMARK(barrier)->UseManualTime()->ArgNames({"ranks", "bytes"})->Args({2, 0});

}  // namespace
