// shut_down after 2 s with a send pending: are its buffers kept?
#include <cstdio>
#include <thread>
#include <vector>
#include "rankcast/mpi.hpp"
#include "rankcast/rankcast.hpp"
using namespace std::chrono_literals;
namespace mpi = rankcast::mpi;
int main(int argc, char** argv) {
  mpi::environment env(argc, argv);
  int rank; MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm lent; MPI_Comm_dup(MPI_COMM_WORLD, &lent);
  {
    mpi::group_options o; o.sizes.eager_bytes = 64u << 20; o.sizes.chunk_bytes = 8u << 20;
    auto w = mpi::adopt(lent, o);
    MPI_Comm_free(&lent);
    rankcast::barrier(w, {.completion = rankcast::completion::everyone});
    std::vector<int> data(4u << 20, rank == 0 ? 42 : 0);
    if (rank == 1) std::this_thread::sleep_for(5s);
    try {
      auto x = rankcast::start_broadcast(w, data, {.timeout = rank == 0 ? rankcast::timeout(300ms) : rankcast::timeout(10s)});
      x.wait();
      std::size_t wrong = 0; for (int v : data) wrong += v != 42;
      std::printf("rank %d: done, %zu wrong\n", rank, wrong);
    } catch (const rankcast::error& e) { std::printf("rank %d: %s\n", rank, e.what()); }
    std::fflush(stdout);
  }
}
