// Memory settles: what calls of random sizes take is used again by later ones, on threads and on
// processes.
#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "rankcast/object.hpp"
#include "support/children.hpp"
#include "support/ranks.hpp"

namespace {

using rankcast::communicator;
using rankcast::tensor;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool memory_is_counted = false;  // sanitizers keep what was given back
constexpr int calls = 1'000;
#else
constexpr bool memory_is_counted = true;
constexpr int calls = 10'000;
#endif
constexpr int settled_after = calls / 10;

enum class ranks_are { threads, processes };

class settling : public testing::TestWithParam<ranks_are> {
 protected:
  void SetUp() override {
    if (GetParam() == ranks_are::processes && support::process_has_threads()) {
      GTEST_SKIP() << "this build has a thread of its own in every process";
    }
    alarm(110);
  }
  void TearDown() override { alarm(0); }

  static void run(const std::function<void(communicator&)>& function) {
    if (GetParam() == ranks_are::threads) EXPECT_NO_THROW(rankcast::run(3, function));
    else EXPECT_NO_THROW(rankcast::fork_ranks(3, function));
  }
};

// All ranks draw alike: as many sizes of each power of two, and the largest now and then, so that
// what they need shows early.
class script {
 public:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  std::size_t size(std::size_t most) {
    if (below(5) == 0) return most;
    std::size_t bits = 0;
    while ((std::size_t{2} << bits) <= most) ++bits;
    return below(std::min((std::size_t{2} << below(bits + 1)), most + 1));
  }

 private:
  std::mt19937_64 random_{20'240};
};

// Resident bytes of all ranks, which arrive together.
long long resident(const communicator& world) {
  rankcast::barrier(world, {.completion = rankcast::completion::everyone});
  long long bytes = support::kilobytes_line("/proc/self/status", "VmRSS:");
  rankcast::all_reduce(world, bytes);
  return bytes;
}

void require_settled(const communicator& world, const std::function<void(int)>& call) {
  long long settled = 0;
  for (int i = 1; i <= calls; ++i) {
    call(i);
    if (i == settled_after) settled = resident(world);
  }
  const long long end = resident(world);
  if (world.rank() == 0) {
    testing::Test::RecordProperty("settled_bytes", std::to_string(settled));
    testing::Test::RecordProperty("end_bytes", std::to_string(end));
  }
  if (memory_is_counted && static_cast<double>(end) > 1.05 * static_cast<double>(settled)) {
    throw support::failed_check("after " + std::to_string(settled_after) + " calls " +
                                std::to_string(settled) + " bytes were resident, at the end " +
                                std::to_string(end));
  }
}

TEST_P(settling, of_broadcasts_and_scatters) {
  run([](communicator& world) {
    script draw;
    const auto n = static_cast<std::size_t>(world.size());
    std::vector<int> all(n * 60'000);
    std::vector<int> mine(60'000);
    require_settled(world, [&](int i) {
      const std::size_t size = draw.size(60'000);
      const int root = static_cast<int>(draw.below(n));
      const auto first = std::span(all).first(n * size);
      const auto share = std::span(mine).first(size);
      if (world.rank() == root) {
        for (std::size_t r = 0; r < n && size != 0; ++r) {
          first[r * size] = i + static_cast<int>(r);
          first[(r + 1) * size - 1] = i + static_cast<int>(r);
        }
      }
      if (draw.below(2) == 0) {
        rankcast::scatter(world, first, share, {.root = root});
        REQUIRE_HERE(size == 0 ||
                     (share.front() == i + world.rank() && share.back() == i + world.rank()));
      } else {
        rankcast::broadcast(world, first.first(size), {.root = root});
        REQUIRE_HERE(size == 0 || (all[0] == i && all[size - 1] == i));
      }
    });
  });
}

struct batch {
  int number = 0;
  std::string text;
  std::vector<float> bulk;  // out of band when it is large
  std::map<int, std::vector<int>> parts;

  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& number& text& bulk& parts;
  }
  void fill(script& draw, int i) {
    number = i;
    text.assign(draw.size(3'000), 'a');
    bulk.assign(draw.size(60'000), static_cast<float>(i));
    for (int k = 0; k < 4; ++k) parts[k].assign(draw.size(500), k);
  }
  [[nodiscard]] bool is(int i) const {
    return number == i && parts.size() == 4 &&
           (bulk.empty() || (bulk.front() == static_cast<float>(i) && bulk.back() == bulk.front()));
  }
};

TEST_P(settling, of_objects) {
  run([](communicator& world) {
    script draw;
    const auto n = static_cast<std::size_t>(world.size());
    std::vector<batch> all(n);
    batch mine;
    require_settled(world, [&](int i) {
      const int root = static_cast<int>(draw.below(n));
      const bool scattered = draw.below(2) == 0;
      for (std::size_t r = 0; r < n; ++r) {  // all draw, so that all go on alike
        batch& b = all[r];
        b.fill(draw, i + static_cast<int>(r));
      }
      if (scattered) {
        if (world.rank() == root) rankcast::scatter_object(world, all, mine, {.root = root});
        else rankcast::scatter_object(world, rankcast::nothing, mine, {.root = root});
        REQUIRE_HERE(mine.is(i + world.rank()));
      } else {
        rankcast::broadcast_object(world, world.rank() == root ? all[0] : mine, {.root = root});
        REQUIRE_HERE(world.rank() == root || mine.is(i));
      }
    });
  });
}

TEST_P(settling, of_messages_between_two_ranks) {
  run([](communicator& world) {
    script draw;
    const int n = world.size();
    std::vector<int> out(30'000);
    std::vector<int> in(30'000);
    require_settled(world, [&](int i) {
      const std::size_t size = draw.size(30'000);
      std::fill_n(out.begin(), size, i + world.rank());
      const auto sent = std::span(out).first(size);
      const auto got = std::span(in).first(size);
      const int from = (world.rank() + n - 1) % n;
      auto work = rankcast::start_send(world, sent, (world.rank() + 1) % n, {.tag = i % 5});
      rankcast::receive(world, got, from, {.tag = i % 5});
      work.wait();
      REQUIRE_HERE(size == 0 || (got.front() == i + from && got.back() == i + from));
    });
  });
}

TEST_P(settling, of_groups_that_come_and_go) {
  run([](communicator& world) {
    long long settled = 0;
    for (int i = 1; i <= calls / 10; ++i) {
      const auto group = i % 2 == 0 ? world.duplicate() : world.split(0, -world.rank());
      std::vector<int> data(i % 5 == 0 ? 50'000 : 100, i);
      rankcast::broadcast(group, data, {.root = 1});
      REQUIRE_HERE(data.back() == i);
      if (i == calls / 100) settled = resident(world);
    }
    const long long end = resident(world);
    if (memory_is_counted && static_cast<double>(end) > 1.1 * static_cast<double>(settled)) {
      throw support::failed_check(std::to_string(settled) + " bytes became " + std::to_string(end));
    }
  });
}

TEST_P(settling, a_tensor_that_fits_keeps_its_memory) {
  run([](communicator& world) {
    tensor t(rankcast::dtype::float32, {100, 1'000});
    const auto* address = t.view().address();
    for (const std::int64_t rows : {100, 100, 7, 50, 0, 100, 1, 100}) {
      if (world.rank() == 1) {
        t = tensor(rankcast::dtype::float32, {rows, 1'000});
        for (std::int64_t k = 0; k < t.elements(); ++k) t.data<float>()[k] = static_cast<float>(k);
      }
      rankcast::broadcast_tensor(world, t, {.root = 1});
      REQUIRE_HERE(t.shape()[0] == rows && t.shape()[1] == 1'000);
      REQUIRE_HERE(rows == 0 ||
                   t.data<float>()[t.elements() - 1] == static_cast<float>(t.elements() - 1));
      if (world.rank() != 1) REQUIRE_HERE(t.view().address() == address);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(on, settling, testing::Values(ranks_are::threads, ranks_are::processes),
                         [](const auto& i) {
                           return i.param == ranks_are::threads ? "threads" : "processes";
                         });

}  // namespace
