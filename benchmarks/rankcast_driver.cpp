// rankcast with threads as ranks, or, built with BENCH_MPI, with MPI processes. Takes the drivers'
// command line (support/command.hpp).
#include "support/rankcast_peer.hpp"
#ifdef BENCH_MPI
#include <rankcast/mpi.hpp>
#endif

int main(int argc, char** argv) {
#ifdef BENCH_MPI
  rankcast::mpi::environment mpi(argc, argv);
#endif
  return bench::guarded([&] {
    const bench::command given(argc, argv);
#ifdef BENCH_MPI
    rankcast::communicator world = rankcast::mpi::world();
    bench::measure_rankcast(world, given);
#else
    rankcast::run(given.ranks,
                  [&](rankcast::communicator& world) { bench::measure_rankcast(world, given); });
#endif
  });
}
