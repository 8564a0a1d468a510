/// C55: a unit that includes MPI's header before rankcast's.
#include <mpi.h>

#include <rankcast/mpi.hpp>

int sum_of_ranks(const rankcast::communicator& group) {
  int sum = group.rank();
  rankcast::all_reduce(group, sum);
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size == group.size() ? sum : -1;
}
