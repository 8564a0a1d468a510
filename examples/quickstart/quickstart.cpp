/// The first program: three ranks, a broadcast and a sum. Prints what quickstart.expected holds.
///   cmake --build --preset release --target quickstart &&
///   build/release/examples/quickstart/quickstart
#include <cstdio>
#include <rankcast/rankcast.hpp>

int main() {
  rankcast::run(3, [](rankcast::communicator& world) {
    double share = world.rank() == 2 ? 0.5 : 0;
    rankcast::broadcast(world, share, {.root = 2});  // rank 2's value to all
    double sum = share * world.rank();
    {
      rankcast::scoped_timeout patience(world, std::chrono::minutes(10));  // in this scope only
      rankcast::all_reduce(world, sum);                                    // in place, on all ranks
    }
    if (world.rank() == 0) std::printf("%d ranks, sum %g\n", world.size(), sum);
  });
}
