/// Ranks as processes of this host: a program forks itself, and what goes wrong in one of them is
/// an error that names it.
///   build/release/examples/quickstart/processes
#include <rankcast/processes.hpp>

#include <cstdio>
#include <stdexcept>
#include <vector>

int main() {
  rankcast::fork_ranks(3, [](rankcast::communicator& world) {
    std::vector<float> values(1'000'000, 0.5f);
    rankcast::all_reduce(world, values);  // through memory that the processes share
    if (world.rank() == 0) std::printf("%d processes, %g\n", world.size(), values[7]);
  });
  try {
    rankcast::fork_ranks(3, [](rankcast::communicator& world) {
      if (world.rank() == 2) throw std::runtime_error("no more data");
      rankcast::barrier(world);
    });
  } catch (const rankcast::remote_error& e) {
    std::printf("%s\n", e.what());
  }
}
