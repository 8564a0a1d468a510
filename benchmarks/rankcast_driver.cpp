// rankcast with the ranks of one host, threads or processes, or, built with BENCH_MPI, with MPI's.
// Takes the drivers' command line (support/command.hpp).
#include "support/rankcast_peer.hpp"
#ifdef BENCH_MPI
#include <rankcast/mpi.hpp>
#else
#include <rankcast/processes.hpp>
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
    const auto rank = [&](rankcast::communicator& world) { bench::measure_rankcast(world, given); };
    if (given.transport == "processes") rankcast::fork_ranks(given.ranks, rank);
    else rankcast::run(given.ranks, rank);
#endif
  });
}
