// Where the ranks of a driver meet between samples: a barrier and the samples, in a shared file, so
// that threads and the processes of any peer are held and measured in the same way.
//
//   for (int sample = 0; here.start(sample); ++sample) {  // all ranks leave together
//     ... the collective ...
//     here.record(sample, own_duration);
//   }
//   here.report("broadcast", bytes);                      // rank 0 prints one line of JSON
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "stage_memory.hpp"

namespace bench {

using clock = std::chrono::steady_clock;

/// How ranks wait for each other between samples.
enum class waiting {
  spinning,  // for libraries that poll in the calling thread: one rank per processor, if they last
  // For libraries that move data in threads of their own, which a spinning rank would starve: ranks
  // sleep, are not pinned, and begin at an agreed time.
  sleeping,
};

/// How many samples of a point are not counted, and how many are at least.
struct pace {
  int warm_ups = 2;
  int least = 3;
};

class stage {
 public:
  stage(const std::string& path, int rank, int ranks, waiting how)
      : memory_(path), rank_(rank), ranks_(ranks), how_(how) {
    if (ranks > stage_layout::max_ranks) throw std::runtime_error("stage: too many ranks");
    const std::vector<int> cpus = usable_cpus();
    const bool enough = static_cast<std::size_t>(ranks) <= cpus.size();
    if (how == waiting::spinning && enough) run_on({cpus[static_cast<std::size_t>(rank)]});
    spins_ = enough ? 20000 : 0;
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }

  /// Before the first sample of a measurement that may take about `budget`.
  void open(std::chrono::duration<double> budget, pace how_many = {}) {
    pace_ = how_many;
    until_ = clock::now() + std::chrono::duration_cast<clock::duration>(budget);
    if (rank_ == 0) memory_->end.store(std::numeric_limits<int>::max());
    barrier();
  }

  /// Waits for all ranks; false when there are samples enough. The data of the sample has been
  /// prepared before.
  [[nodiscard]] bool start(int sample) {
    // A rank that is still on its way out of the last barrier may read `end` late: it is only ever
    // set to a sample that nobody has begun.
    const int counted = sample - pace_.warm_ups;
    if (rank_ == 0 && (counted >= stage_layout::max_samples ||
                       (counted >= pace_.least && clock::now() > until_))) {
      memory_->end.store(sample);
    }
    barrier();
    if (how_ == waiting::sleeping) begin_together();
    return sample < memory_->end.load();
  }

  /// Returns when all ranks have recorded the sample: what a rank does next would else be counted
  /// against those who share its processor and are not done yet.
  void record(int sample, clock::duration own) {
    if (sample >= pace_.warm_ups) {
      memory_->nanoseconds[rank_][sample - pace_.warm_ups] =
          std::chrono::duration_cast<std::chrono::nanoseconds>(own).count();
    }
    barrier();
  }

  /// A sample is the longest of the ranks' own durations.
  void report(const std::string& operation, std::size_t bytes) {
    barrier();
    if (rank_ != 0) return;
    std::printf("{\"operation\": \"%s\", \"bytes\": %zu, \"us\": [", operation.c_str(), bytes);
    const int samples = memory_->end.load() - pace_.warm_ups;
    for (int i = 0; i < samples; ++i) {
      std::int64_t longest = 0;
      for (int r = 0; r < ranks_; ++r) longest = std::max(longest, memory_->nanoseconds[r][i]);
      std::printf("%s%.3f", i == 0 ? "" : ", ", static_cast<double>(longest) * 1e-3);
    }
    std::printf("]}\n");
    std::fflush(stdout);
  }

  /// Lets nobody wait for a rank that has failed.
  void abandon() noexcept { memory_->failed.store(true); }

 private:
  static constexpr auto lead = std::chrono::microseconds(400);  // from the barrier to the beginning

  void barrier() {
    const std::uint32_t epoch = memory_->epoch.load();
    if (memory_->arrived.fetch_add(1) + 1 == ranks_) {
      memory_->arrived.store(0);
      memory_->begin.store((clock::now() + lead).time_since_epoch().count());
      memory_->epoch.store(epoch + 1);
      if (how_ == waiting::sleeping) wake_all(memory_->epoch);
      return;
    }
    for (int turn = 0; memory_->epoch.load() == epoch; ++turn) {
      if (memory_->failed.load()) throw std::runtime_error("another rank has failed");
      if (how_ == waiting::sleeping) sleep_while(memory_->epoch, epoch);
      else if (turn < spins_) relax();
      else std::this_thread::yield();
    }
  }

  // Sleeping ranks wake at different times; the last moment is waited for awake.
  void begin_together() {
    const clock::time_point begin{clock::duration(memory_->begin.load())};
    std::this_thread::sleep_until(begin - lead / 4);
    while (clock::now() < begin) {
      if (spins_ > 0) relax();
      else std::this_thread::yield();
    }
  }

  stage_memory memory_;
  int rank_, ranks_;
  waiting how_;
  int spins_ = 0;
  pace pace_{};
  clock::time_point until_{};
};

}  // namespace bench
