// The floor under every figure, by bare threads, one for each rank as far as there are processors.
// Takes the drivers' command line (support/command.hpp).
//
// A collective that moves data: the bytes that it has to read and to write, over the rate at which
// these threads together read and write in a memcpy of `bytes` each. `wake_up`: one futex.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <vector>

#include "support/idle.hpp"
#include "support/measure.hpp"
#include "support/values.hpp"

namespace {

/// How often `bytes` are read and written once. 0: not a collective that moves data.
double copies(const std::string& operation, int ranks) {
  if (operation == "gather" || operation == "gather_logits") return 1;
  // all_reduce: each rank's data are read once, each rank's result is written once.
  for (const char* each : {"scatter", "all_gather", "all_reduce"}) {
    if (operation == each) return ranks;
  }
  const bool broadcast = operation == "broadcast" || operation.starts_with("object_");
  return broadcast ? ranks - 1 : 0;
}

void measure_copies(bench::stage& here, const bench::command& given, const bench::point& p) {
  std::vector<float> from(p.bytes / sizeof(float)), to(from.size());
  bench::measure(
      here, given, p,
      [&](int i) {
        bench::fill(from, here.rank(), i);
        bench::spoil(to);
      },
      [&] {
        std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
        asm volatile("" : : "r"(to.data()) : "memory");  // so that the copy is made here
      },
      [&](int i) { bench::expect(to, here.rank(), i); },
      copies(p.operation, given.ranks) / here.ranks());
}

/// What rank 0 has to say, and a word to sleep on.
struct board {
  std::atomic<std::uint32_t> said = 0;
  float values[2] = {};
};

class futex_rank {
 public:
  futex_rank(board& shared, int rank) : shared_(shared), rank_(rank) {}

  void broadcast(std::span<float> values) {
    if (rank_ == 0) {
      std::copy(values.begin(), values.end(), shared_.values);
      shared_.said.fetch_add(1);
      bench::wake_all(shared_.said);
      return;
    }
    while (shared_.said.load() == heard_) bench::sleep_while(shared_.said, heard_);
    ++heard_;
    std::copy_n(shared_.values, values.size(), values.begin());
  }

 private:
  board& shared_;
  int rank_;
  std::uint32_t heard_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return bench::guarded([&] {
    const bench::command given(argc, argv);
    const auto cpus = static_cast<int>(bench::usable_cpus().size());
    const int threads = std::clamp(cpus, 1, given.ranks);
    board shared;
    std::vector<std::future<void>> running;
    for (int rank = 0; rank < threads; ++rank) {
      running.push_back(std::async(std::launch::async, [&, rank] {
        bench::stage here(given.stage, rank, threads, bench::waiting::spinning);
        futex_rank bare(shared, rank);
        bench::for_each_point(here, given, [&](const bench::point& p) {
          if (copies(p.operation, given.ranks) > 0) measure_copies(here, given, p);
          else if (p.operation == "wake_up" && threads > 1)
            bench::measure_idle(here, given, p, bare);
        });
      }));
    }
    for (std::future<void>& thread : running) thread.get();
  });
}
