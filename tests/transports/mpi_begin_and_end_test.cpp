// Before MPI begins and after it has ended, rankcast says so instead of letting MPI abort.
//   mpiexec -n 2 transports_mpi_begin_and_end_test
#include <optional>

#include "rankcast/mpi.hpp"
#include "support/ranks.hpp"

namespace {

namespace mpi = rankcast::mpi;
using namespace std::chrono_literals;

// One test, for MPI begins once in a process.
TEST(environment, begins_and_ends) {
  auto e = support::error_of<rankcast::usage_error>([] { (void)mpi::world(); });
  if (e) {
    EXPECT_CONTAINS(e->what(), "not initialised");
    EXPECT_CONTAINS(e->what(), "mpi::environment");
  }
  EXPECT_EQ(mpi::launched_processes(), 2);  // needs no MPI

  std::optional<rankcast::communicator> left_over;
  {
    const mpi::environment owner;
    EXPECT_TRUE(owner.owner());
    const mpi::environment second;
    EXPECT_FALSE(second.owner());
    mpi::group_options options;
    options.default_timeout = 20s;
    left_over = mpi::world(options);
    int sum = left_over->rank() + 1;
    rankcast::all_reduce(*left_over, sum);
    EXPECT_EQ(sum, 3);
  }
  int ended = 0;
  MPI_Finalized(&ended);
  EXPECT_NE(ended, 0);
  left_over.reset();  // later than it should be, and no harm

  e = support::error_of<rankcast::usage_error>([] { const mpi::environment again; });
  if (e) {
    EXPECT_CONTAINS(e->what(), "finalised");
  }
  e = support::error_of<rankcast::usage_error>([] { (void)mpi::world(); });
  if (e) {
    EXPECT_CONTAINS(e->what(), "finalised");
  }
}

}  // namespace
