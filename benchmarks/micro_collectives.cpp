// What one call costs on thread ranks: small collectives one after the other without a pause, and
// what the started form adds. Time is per call, at rank 0.
//
//   micro_collectives [--benchmark_filter=all_reduce]
#include <benchmark/benchmark.h>

#include <rankcast/rankcast.hpp>
#include <vector>

#include "support/stage_memory.hpp"

namespace {

/// Times calls of `call(world, values)` with range(0) ranks and range(1) bytes. Rank 0 is the
/// thread that Google Benchmark counts on; the other ranks make as many calls.
template <class Call>
void run_calls(benchmark::State& state, Call call, const rankcast::run_options& options = {}) {
  const auto ranks = static_cast<int>(state.range(0));
  const auto elements = static_cast<std::size_t>(state.range(1)) / sizeof(float);
  const std::vector<int> cpus = bench::usable_cpus();
  rankcast::run(
      ranks,
      [&](rankcast::communicator& world) {
        const auto rank = static_cast<std::size_t>(world.rank());
        if (rank < cpus.size()) bench::run_on({cpus[rank]});
        std::vector<float> values(elements, 1.0F);
        rankcast::barrier(world);
        if (world.rank() == 0) {
          for (auto turn : state) {
            static_cast<void>(turn);
            call(world, values);
          }
        } else {
          for (benchmark::IterationCount i = 0; i < state.max_iterations; ++i) call(world, values);
        }
        bench::run_on(cpus);  // rank 0's thread lives on
      },
      options);
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
// What deadline, comparison of calls, flight record and the look at the group's state cost
// together.
void broadcast_unchecked(benchmark::State& state) {
  rankcast::run_options options;
  options.sizes.check = rankcast::local::checks::off;
  run_calls(
      state, [](auto& world, auto& values) { rankcast::broadcast(world, values); }, options);
}
void all_reduce_unchecked(benchmark::State& state) {
  rankcast::run_options options;
  options.sizes.check = rankcast::local::checks::off;
  run_calls(
      state,
      [](auto& world, auto& values) { rankcast::all_reduce(world, values, rankcast::maximum); },
      options);
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
  b->UseRealTime()->ArgNames({"ranks", "bytes"})->ArgsProduct({{2}, {8, 256, 4096}});
}
BENCHMARK(broadcast)->Apply(sizes);
BENCHMARK(broadcast_unchecked)->Apply(sizes);
BENCHMARK(start_broadcast_and_wait)->Apply(sizes);
BENCHMARK(all_reduce)->Apply(sizes);
BENCHMARK(all_reduce_unchecked)->Apply(sizes);
BENCHMARK(start_all_reduce_and_wait)->Apply(sizes);
BENCHMARK(barrier)->UseRealTime()->ArgNames({"ranks", "bytes"})->Args({2, 0});

}  // namespace
