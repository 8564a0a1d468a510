// An MPI that its program began with MPI_THREAD_FUNNELED: calls of other threads that would need
// MPI are refused, and those of the main thread go on meanwhile. Groups within a host need none.
//   mpiexec -n 2 transports_mpi_funneled_test
#include <optional>
#include <thread>

#include "rankcast/mpi.hpp"
#include "support/ranks.hpp"

namespace {

namespace mpi = rankcast::mpi;
using namespace std::chrono_literals;
using rankcast::communicator;

communicator world() {
  mpi::group_options options;
  options.default_timeout = 20s;
  return mpi::world(options);
}

bool any_thread_may_call() {
  int level = 0;
  mpi::check(MPI_Query_thread(&level), "MPI_Query_thread");
  return level == MPI_THREAD_MULTIPLE;
}

// The two processes share memory, and MPI carries nothing of their groups.
bool on_one_host() {
  MPI_Comm together = MPI_COMM_NULL;
  int size = 0;
  mpi::check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &together),
             "MPI_Comm_split_type");
  mpi::check(MPI_Comm_size(together, &size), "MPI_Comm_size");
  mpi::check(MPI_Comm_free(&together), "MPI_Comm_free");
  return size == 2;
}

template <class F>
void is_refused(F&& call) {
  const auto e = support::error_of<rankcast::usage_error>(std::forward<F>(call));
  if (e) {
    EXPECT_CONTAINS(e->what(), "MPI_THREAD_MULTIPLE");
  }
}

TEST(funneled, a_second_environment_tells_the_level) {
  const mpi::environment second;
  EXPECT_FALSE(second.owner());
  EXPECT_GE(second.thread_level(), MPI_THREAD_FUNNELED);
}

TEST(funneled, calls_of_a_second_thread_are_refused_while_the_main_one_works) {
  if (any_thread_may_call()) GTEST_SKIP() << "this MPI gives MPI_THREAD_MULTIPLE to all";
  const bool within_a_host = on_one_host();
  const communicator working = world();
  const communicator other = working.duplicate();
  std::atomic<bool> refused{false};
  std::thread second([&] {
    for (int i = 0; i < 50; ++i) {
      int x = 0;
      if (within_a_host) {
        rankcast::all_reduce(other, x);
        rankcast::send(other, x, 1 - other.rank());
        rankcast::receive(other, x, 1 - other.rank());
      } else {
        is_refused([&] { rankcast::barrier(other); });
        is_refused([&] { rankcast::all_reduce(other, x); });
        is_refused([&] { (void)rankcast::start_broadcast(other, x); });
        is_refused([&] { rankcast::send(other, x, 1 - other.rank()); });
        is_refused([&] { (void)other.split(0); });
      }
      is_refused([&] { (void)world(); });
    }
    refused = true;
  });
  int rounds = 0;
  for (int all_refused = 0; all_refused < 2; ++rounds) {
    std::vector<int> values(10'000, 1);
    rankcast::all_reduce(working, values);
    EXPECT_EQ(values, std::vector<int>(10'000, 2));
    all_refused = refused ? 1 : 0;
    rankcast::all_reduce(working, all_refused);
  }
  second.join();
  EXPECT_GT(rounds, 0);
  int sum = 1;
  rankcast::all_reduce(other, sum);  // the refused calls have left no trace
  EXPECT_EQ(sum, 2);
}

// Groups of threads are no matter of MPI's, and a group may be given back by any thread.
TEST(funneled, what_a_second_thread_may_do) {
  const communicator working = world();
  std::optional<communicator> given_away = working.duplicate();
  std::thread([&] {
    rankcast::run(2, [](communicator& threads) {
      int sum = 1;
      rankcast::all_reduce(threads, sum);
      EXPECT_EQ(sum, 2);
    });
    given_away.reset();
  }).join();
  rankcast::barrier(working, {.completion = rankcast::completion::everyone});
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  MPI_Finalize();
  return result;
}
