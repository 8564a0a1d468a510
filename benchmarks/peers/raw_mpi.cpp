// The collectives of an MPI library itself, called with plain pointers. Built once for each MPI
// found. Takes the drivers' command line (support/command.hpp).
#include <mpi.h>

#include <span>

#include "support/idle.hpp"
#include "support/tensors.hpp"

namespace {

// Errors end the job: the default error handler of MPI_COMM_WORLD.
struct raw_mpi {
  static int count(std::span<float> values) { return static_cast<int>(values.size()); }

  void broadcast(std::span<float> values, int root = 0) {
    MPI_Bcast(values.data(), count(values), MPI_FLOAT, root, MPI_COMM_WORLD);
  }
  void scatter(std::span<float> all, std::span<float> share) {
    MPI_Scatter(all.data(), count(share), MPI_FLOAT, share.data(), count(share), MPI_FLOAT, 0,
                MPI_COMM_WORLD);
  }
  void gather(std::span<float> share, std::span<float> all) {
    MPI_Gather(share.data(), count(share), MPI_FLOAT, all.data(), count(share), MPI_FLOAT, 0,
               MPI_COMM_WORLD);
  }
  void all_gather(std::span<float> share, std::span<float> all) {
    MPI_Allgather(share.data(), count(share), MPI_FLOAT, all.data(), count(share), MPI_FLOAT,
                  MPI_COMM_WORLD);
  }
  void all_reduce(std::span<float> values) {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), count(values), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int status = bench::guarded([&] {
    const bench::command given(argc, argv);
    int rank = 0, ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    bench::stage here(given.stage, rank, ranks, bench::waiting::spinning);
    raw_mpi peer;
    bench::for_each_point(here, given, [&](const bench::point& p) {
      if (!bench::measure_tensors(here, given, p, peer)) bench::measure_idle(here, given, p, peer);
    });
  });
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
}
