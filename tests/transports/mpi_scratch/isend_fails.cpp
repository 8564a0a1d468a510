// MPI_Isend fails once (MPI_ERRORS_RETURN is set on the duplicate).
#include <cstdio>
#include <thread>
#include <vector>
#include "rankcast/mpi.hpp"
#include "rankcast/rankcast.hpp"
using namespace std::chrono_literals;
namespace mpi = rankcast::mpi;
static int fail_in = 0; static int empties = 0; static bool ending = false;
extern "C" int MPI_Isend(const void* b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request* r) {
  if (fail_in > 0 && --fail_in == 0) return MPI_ERR_OTHER;
  if (n == 0 && !ending) ++empties;
  return PMPI_Isend(b, n, t, to, tag, c, r);
}
int main(int argc, char** argv) {
  mpi::environment env(argc, argv);
  int rank; MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto w = mpi::world();
  rankcast::barrier(w, {.completion = rankcast::completion::everyone});
  if (rank == 0) {
    fail_in = 1;
    int x = 1;
    try { rankcast::broadcast(w, x); } catch (const rankcast::error& e) { std::printf("rank 0: %s\n", e.what()); }
    for (int i = 0; i < 3; ++i) { try { rankcast::broadcast(w, x); } catch (const rankcast::error& e) { std::printf("rank 0: %s\n", e.what()); } }
    std::printf("rank 0 sent %d empty messages (goodbyes) before its end\n", empties);
  } else {
    int x = 0;
    try { rankcast::broadcast(w, x, {.timeout = 1s}); std::printf("rank 1 got %d\n", x); } catch (const rankcast::error& e) { std::printf("rank 1: %s\n", e.what()); }
  }
  std::fflush(stdout);
  ending = true;
}
