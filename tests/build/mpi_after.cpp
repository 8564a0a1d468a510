/// C55: a unit that includes rankcast's header before MPI's. C58: and one that makes every template
/// of rankcast/mpi.hpp.
#include <rankcast/mpi.hpp>

#include <mpi.h>

#include <cstdio>

int sum_of_ranks(const rankcast::communicator& group);

namespace {

// Handles are numbers in one MPI and pointers in another: null ones, split ones with an undefined
// colour, and those that MPI defines, as a program has them.
int use_handles() {
  MPI_Comm none = MPI_COMM_NULL;
  int rank = 0;
  rankcast::mpi::check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  rankcast::mpi::check(MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : MPI_UNDEFINED, 0, &none),
                       "MPI_Comm_split");
  if (none == MPI_COMM_NULL) return 1;
  const rankcast::communicator alone = rankcast::mpi::adopt(none);
  const rankcast::communicator self = rankcast::mpi::adopt(MPI_COMM_SELF, {.name = "self"});
  rankcast::mpi::check(MPI_Comm_free(&none), "MPI_Comm_free");
  return alone.size() * self.size();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const rankcast::mpi::environment mpi(argc, argv);
    const rankcast::communicator world = rankcast::mpi::world();
    const int sum = sum_of_ranks(world);
    const int wanted = world.size() * (world.size() - 1) / 2;
    if (world.rank() == 0) std::printf("the sum is %d\n", sum);
    return sum == wanted && use_handles() == 1 && mpi.owner() ? 0 : 1;
  } catch (const rankcast::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
