/// Where the ranks of a program come from: the processes of an MPI job when a launcher started this
/// one, else threads that are made here. The same program text runs on both.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "rankcast/transports/local/threads.hpp"
#ifdef RANKCAST_EXAMPLES_WITH_MPI
#include "rankcast/mpi.hpp"
#endif

namespace rankcast::transformer {

class rank_source {
 public:
  rank_source([[maybe_unused]] int& argc, [[maybe_unused]] char**& argv) {
#ifdef RANKCAST_EXAMPLES_WITH_MPI
    if (mpi::launched_processes() == 0) return;
    environment_.emplace(argc, argv);
    world_ = mpi::world();
#endif
  }

  /// Processes of the job; 0 when ranks are threads.
  [[nodiscard]] int processes() const {
    return world_ ? world_->size() : 0;
  }
  /// True in the process that speaks for the job.
  [[nodiscard]] bool speaks() const {
    return !world_ || world_->rank() == 0;
  }

  /// Runs `function(world)` on `ranks` ranks, or on the one that this process is. Throws
  /// usage_error for another number of ranks than the job has processes.
  void run(int ranks, const std::function<void(communicator&)>& function) {
    if (!world_) {
      rankcast::run(ranks, function);
      return;
    }
    if (ranks != processes()) {
      throw usage_error(std::to_string(ranks) + " ranks asked for in a job of " +
                        std::to_string(processes()) + " processes; leave --ranks out");
    }
    communicator world = *world_;
    function(world);
  }

 private:
#ifdef RANKCAST_EXAMPLES_WITH_MPI
  std::optional<mpi::environment> environment_;
#endif
  std::optional<communicator> world_;
};

}  // namespace rankcast::transformer
