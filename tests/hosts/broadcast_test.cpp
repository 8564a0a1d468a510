// What a broadcast sends from host to host: each byte once for each host, whoever the root is; and
// that no slot is held when all have what they wanted.
//   tests/hosts/mpi.sh 2 2 hosts_broadcast_test
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "rankcast/mpi.hpp"
#include "support/ranks.hpp"

namespace {

namespace mpi = rankcast::mpi;
using rankcast::completion;

std::vector<int> numbers(int root, std::size_t n) {
  std::vector<int> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<int>(i * 2654435761u) ^ (root << 20);
  return v;
}

class host_broadcast : public testing::Test {
 protected:
  void SetUp() override {
    const char* count = std::getenv("RANKCAST_HOSTS");
    if (count == nullptr) GTEST_SKIP() << "skipped: not started by tests/hosts/mpi.sh";
    hosts = std::atoi(count);
  }

  // What all ranks have sent to other hosts until now.
  [[nodiscard]] std::uint64_t sent() {
    rankcast::barrier(world, {.completion = completion::everyone});
    std::uint64_t bytes = link->bytes_between_hosts();
    rankcast::all_reduce(world, bytes);
    return bytes;
  }
  template <class F>
  [[nodiscard]] double bytes_of(F&& call) {
    const std::uint64_t before = sent();
    call();
    return static_cast<double>(sent() - before);
  }

  void expect_once_per_host(double bytes, double payload) const {
    const double others = hosts - 1;
    EXPECT_GE(bytes, payload * others);
    EXPECT_LE(bytes, 1.02 * payload * others + 20'000);
  }

  int hosts = 0;
  const rankcast::communicator world = mpi::world();
  const std::shared_ptr<mpi::host_link> link =
      mpi::detail::link_of(MPI_COMM_WORLD, {}, rankcast::deadline::after(std::chrono::seconds(30)));
};

TEST_F(host_broadcast, a_tensor_goes_once_to_each_host) {
  constexpr std::size_t n = 1'500'007;
  for (int root = 0; root < world.size(); ++root) {
    auto v = numbers(world.rank() == root ? root : -1, n);
    const double bytes = bytes_of([&] { rankcast::broadcast(world, v, {.root = root}); });
    EXPECT_EQ(v, numbers(root, n)) << "root " << root;
    expect_once_per_host(bytes, n * sizeof(int));
  }
}

TEST_F(host_broadcast, a_message_goes_once_to_each_host) {
  constexpr std::int64_t n = 1'500'007;
  for (int root = 0; root < world.size(); ++root) {
    rankcast::tensor t;
    const auto wanted = numbers(root, n);
    if (world.rank() == root) {
      t = rankcast::tensor(rankcast::dtype::int32, {n});
      std::memcpy(t.view().address(), wanted.data(), n * sizeof(int));
    }
    const double bytes = bytes_of([&] { rankcast::broadcast_tensor(world, t, {.root = root}); });
    ASSERT_EQ(t.elements(), n);
    EXPECT_EQ(std::memcmp(t.view().address(), wanted.data(), n * sizeof(int)), 0);
    expect_once_per_host(bytes, n * sizeof(int));
  }
}

// Sizes around those at which data take another way, roots by chance, many at once.
TEST_F(host_broadcast, of_any_size_from_any_root) {
  std::mt19937 random(4);
  for (int round = 0; round < 8; ++round) {
    std::vector<std::vector<int>> data;
    std::vector<int> roots;
    std::vector<rankcast::work> works;
    for (int i = 0; i < 12; ++i) {
      const std::size_t sizes[] = {0, 1, 767, 769, 3000, 32'768, 32'769, 300'001};
      const std::size_t n = sizes[random() % std::size(sizes)];
      roots.push_back(static_cast<int>(random() % static_cast<unsigned>(world.size())));
      data.push_back(numbers(world.rank() == roots.back() ? roots.back() : -1, n));
    }
    for (std::size_t i = 0; i < data.size(); ++i) {
      works.push_back(rankcast::start_broadcast(world, data[i], {.root = roots[i]}));
    }
    for (auto& w : works) w.wait();
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_EQ(data[i], numbers(roots[i], data[i].size())) << "root " << roots[i];
    }
  }
}

// The last test: what the others used is free.
TEST_F(host_broadcast, no_slot_is_held_in_the_end) {
  rankcast::barrier(world, {.completion = completion::everyone});
  if (!link->hosts().shares_memory()) return;
  auto& slots = link->hosts().job().chunk_slots();
  EXPECT_GT(slots.used(), 0u);  // every rank was a root, and so the reader of others, too
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (slots.free() < slots.sizes().count() && std::chrono::steady_clock::now() < until) {
    world.flush();
  }
  EXPECT_EQ(slots.free(), slots.sizes().count());
  rankcast::barrier(world, {.completion = completion::everyone});  // until then all read
}

}  // namespace
