// Ranks as MPI processes: the job is started once for a whole program, every process runs every
// test, and a world of n ranks is made of the first n processes. With a main of its own.
#include <algorithm>
#include <map>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "rankcast/mpi.hpp"
#include "support/failures_only.hpp"
#include "support/world.hpp"

namespace support {
namespace {

namespace mpi = rankcast::mpi;

int world_size() {
  int n = 0;
  mpi::check(MPI_Comm_size(MPI_COMM_WORLD, &n), "MPI_Comm_size");
  return n;
}
int world_rank() {
  int r = 0;
  mpi::check(MPI_Comm_rank(MPI_COMM_WORLD, &r), "MPI_Comm_rank");
  return r;
}

// The first n processes, lent to rankcast again and again; MPI_COMM_NULL on the others.
MPI_Comm first_processes(int n) {
  static std::map<int, MPI_Comm> known;
  const auto [it, is_new] = known.try_emplace(n, MPI_COMM_NULL);
  if (is_new) {
    mpi::check(MPI_Comm_split(MPI_COMM_WORLD, world_rank() < n ? 0 : MPI_UNDEFINED, 0, &it->second),
               "MPI_Comm_split");
  }
  return it->second;
}

// All processes leave a test together; those that have no part in it do not take the cores away.
void meet() {
  MPI_Request request = MPI_REQUEST_NULL;
  mpi::check(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier");
  for (int done = 0; done == 0;) {
    mpi::check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) std::this_thread::sleep_for(200us);
  }
}

}  // namespace

void run_world(int ranks, const std::function<void(rankcast::communicator&)>& function,
               const world_options& options) {
  const MPI_Comm lent = first_processes(ranks);
  std::exception_ptr thrown;
  if (lent != MPI_COMM_NULL) {
    mpi::group_options group;
    group.default_timeout = options.default_timeout;
    group.completion = options.completion;
    group.sizes = {options.eager_bytes, options.chunk_bytes, 3, options.flat_places};
    group.shared_sizes.eager_bytes = options.eager_bytes;
    group.shared_sizes.slot_bytes = options.eager_bytes / 4;
    group.shared_sizes.chunk_bytes = options.chunk_bytes;
    group.shared_sizes.stage_bytes = 4 * options.eager_bytes;
    group.shared_sizes.ring_bytes = 8 * options.chunk_bytes;
    group.shared_sizes.pipe_bytes = std::max<std::size_t>(512, 4 * options.chunk_bytes);
    rankcast::communicator world = mpi::adopt(lent, group);
    try {
      function(world);
    } catch (...) {
      thrown = std::current_exception();
      world.revoke("a rank of the test threw");
    }
  }
  meet();
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

int most_ranks() {
  return world_size();
}

bool ranks_are_threads() {
  return false;
}

bool ranks_share_memory() {
  return false;
}

}  // namespace support

int main(int argc, char** argv) {
  const rankcast::mpi::environment mpi(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  if (support::world_rank() != 0) support::print_failures_only(support::world_rank());
  return RUN_ALL_TESTS();
}
