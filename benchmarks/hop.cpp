// How far two processors are from each other: prints the microseconds in which a cache line crosses
// between the first two that this process may use, one way. Virtual machines may be moved
// meanwhile; tools/bench looks before and after each round. Prints nothing where there is one
// processor.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <limits>
#include <thread>

#include "support/command.hpp"
#include "support/stage_memory.hpp"

namespace {

using clock_type = std::chrono::steady_clock;
constexpr int round_trips = 200;                          // of one look at the clock
constexpr auto duration = std::chrono::milliseconds(30);  // of all of them

/// The shortest look counts: in the others somebody else ran.
double shortest_hop(const std::vector<int>& cpus) {
  alignas(64) std::atomic<int> line = 0;  // even: the caller's turn, odd: the other's, -1: the end
  std::thread other([&] {
    bench::run_on({cpus[1]});
    for (int seen = 0; seen >= 0; seen = line.load()) {
      if (seen % 2 == 1) line.store(seen + 1);
    }
  });
  bench::run_on({cpus[0]});
  double best = std::numeric_limits<double>::max();
  for (const auto end = clock_type::now() + duration; clock_type::now() < end;) {
    line.store(0);
    const auto begin = clock_type::now();
    for (int turn = 0; turn < 2 * round_trips; turn += 2) {
      line.store(turn + 1);
      while (line.load() != turn + 2) {
      }
    }
    const std::chrono::duration<double, std::micro> took = clock_type::now() - begin;
    best = std::min(best, took.count() / (2 * round_trips));
  }
  line.store(-1);
  other.join();
  return best;
}

}  // namespace

int main() {
  return bench::guarded([] {
    const std::vector<int> cpus = bench::usable_cpus();
    if (cpus.size() > 1) std::printf("%.4f\n", shortest_hop(cpus));
  });
}
