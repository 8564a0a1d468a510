/// Ranks as processes in a stranger's program.
#include <cstdio>
#include <rankcast/mpi.hpp>

int main() {
  const rankcast::mpi::environment mpi;
  const rankcast::communicator world = rankcast::mpi::world();
  int sum = world.rank() + 1;
  rankcast::all_reduce(world, sum);
  if (world.rank() == 0) std::printf("the sum is %d\n", sum);
  return sum == world.size() * (world.size() + 1) / 2 ? 0 : 1;
}
