#include <cstdio>
#include <cstring>
#include "rankcast/mpi.hpp"
#include "rankcast/rankcast.hpp"
namespace mpi = rankcast::mpi;
int main(int argc, char** argv) {
  int rank;
  {
    mpi::environment env(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (std::strcmp(argv[1], "inter") == 0) {
      MPI_Comm local, inter;
      MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : 1, 0, &local);
      MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 5, &inter);
      try { auto w = mpi::adopt(inter); std::printf("rank %d: group of %d\n", rank, w.size()); } catch (const rankcast::error& e) { std::printf("rank %d: %s\n", rank, e.what()); }
      std::fflush(stdout);
    }
    if (std::strcmp(argv[1], "null") == 0) {
      try { auto w = mpi::adopt(MPI_COMM_NULL); } catch (const rankcast::error& e) { std::printf("rank %d: %s\n", rank, e.what()); }
    }
  }
  if (std::strcmp(argv[1], "ended") == 0) {
    try { auto w = mpi::world(); } catch (const rankcast::error& e) { std::printf("rank %d: %s\n", rank, e.what()); }
  }
}
