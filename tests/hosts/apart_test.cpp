// That tests/hosts/hosts.sh makes hosts: processes share what those of one host share, and nothing
// that would let an MPI go round the network.
//   tests/hosts/mpi.sh 2 2 hosts_apart_test
#include <sys/stat.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "rankcast/mpi.hpp"
#include "support/ranks.hpp"

namespace {

namespace mpi = rankcast::mpi;

int number(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr ? std::atoi(value) : 0;
}

class hosts : public testing::Test {
 protected:
  void SetUp() override {
    if (count == 0) GTEST_SKIP() << "skipped: not started by tests/hosts/mpi.sh";
    ASSERT_EQ(world.size(), count * per_host);
  }
  // Processes are numbered host by host.
  [[nodiscard]] bool on_my_host(int rank) const {
    return rank / per_host == world.rank() / per_host;
  }

  const int count = number("RANKCAST_HOSTS");
  const int per_host = number("RANKCAST_PER_HOST");
  const rankcast::communicator world = mpi::world();
};

TEST_F(hosts, mpi_sees_them) {
  MPI_Comm shared = MPI_COMM_NULL;
  mpi::check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared),
             "MPI_Comm_split_type");
  {
    const rankcast::communicator neighbours = mpi::adopt(shared);
    std::vector<int> ranks(static_cast<std::size_t>(neighbours.size()));
    rankcast::all_gather(neighbours, world.rank(), ranks);
    std::vector<int> wanted;
    for (int r = 0; r < world.size(); ++r) {
      if (on_my_host(r)) wanted.push_back(r);
    }
    EXPECT_EQ(ranks, wanted);
  }
  mpi::check(MPI_Comm_free(&shared), "MPI_Comm_free");
}

TEST_F(hosts, have_names) {
  utsname names{};
  ASSERT_EQ(uname(&names), 0);
  EXPECT_EQ(std::string(names.nodename), "h" + std::to_string(world.rank() / per_host));
}

// What a process sees: its namespace's number in the kernel.
TEST_F(hosts, have_namespaces_of_their_own) {
  for (const char* kind : {"net", "uts", "ipc", "mnt", "pid"}) {
    struct stat found {};
    ASSERT_EQ(stat((std::string("/proc/self/ns/") + kind).c_str(), &found), 0);
    std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
    rankcast::all_gather(world, std::uint64_t{found.st_ino}, all);
    for (int r = 0; r < world.size(); ++r) {
      EXPECT_EQ(all[static_cast<std::size_t>(r)] == found.st_ino, on_my_host(r))
          << kind << " of ranks " << world.rank() << " and " << r;
    }
  }
}

// A file of every rank, and which of them each rank sees.
TEST_F(hosts, have_memory_and_files_of_their_own) {
  const char* temporary = std::getenv("TMPDIR");
  ASSERT_NE(temporary, nullptr);
  for (const std::filesystem::path folder : {"/dev/shm", temporary}) {
    const auto file_of = [&](int rank) {
      return folder / ("rankcast_rank_" + std::to_string(rank));
    };
    ASSERT_TRUE(std::ofstream(file_of(world.rank())) << "here") << file_of(world.rank());
    rankcast::barrier(world);
    for (int r = 0; r < world.size(); ++r) {
      EXPECT_EQ(std::filesystem::exists(file_of(r)), on_my_host(r))
          << "rank " << world.rank() << " looks for " << file_of(r);
    }
    rankcast::barrier(world);
    std::filesystem::remove(file_of(world.rank()));
  }
}

}  // namespace
