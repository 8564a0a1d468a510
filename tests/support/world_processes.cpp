// Ranks as processes of this host: the test program forks itself before it begins, every process
// runs every test, and a world of n ranks is joined by the first n processes. With a main of its
// own.
#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "rankcast/processes.hpp"
#include "support/failures_only.hpp"
#include "support/world.hpp"

namespace support {
namespace {

constexpr int processes = 4;

// All processes of the program, for the way between tests.
const rankcast::communicator*& everybody() {
  static const rankcast::communicator* all = nullptr;
  return all;
}

}  // namespace

void run_world(int ranks, const std::function<void(rankcast::communicator&)>& function,
               const world_options& options) {
  static int worlds = 0;
  const rankcast::communicator& all = *everybody();
  std::int64_t first_process = getpid();
  rankcast::broadcast(all, first_process);
  std::exception_ptr thrown;
  if (all.rank() < ranks) {
    rankcast::run_options run;
    run.default_timeout = options.default_timeout;
    run.completion = options.completion;
    run.sizes.eager_bytes = options.eager_bytes;
    run.sizes.chunk_bytes = options.chunk_bytes;
    run.sizes.slot_bytes = options.eager_bytes / 4;
    run.sizes.stage_bytes = 4 * options.eager_bytes;
    run.sizes.ring_bytes = 8 * options.chunk_bytes;
    run.sizes.pipe_bytes = std::max<std::size_t>(512, 4 * options.chunk_bytes);
    const std::string job = "test " + std::to_string(first_process) + " " + std::to_string(worlds);
    rankcast::communicator world = rankcast::join(job, all.rank(), ranks, run);
    try {
      function(world);
    } catch (...) {
      thrown = std::current_exception();
      world.revoke("a rank of the test threw");
    }
  }
  ++worlds;
  rankcast::barrier(all, {.timeout = rankcast::no_timeout});
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

int most_ranks() {
  return processes;
}

bool ranks_are_threads() {
  return false;
}

bool ranks_share_memory() {
  return false;
}

}  // namespace support

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--gtest_list_tests") {
      testing::InitGoogleTest(&argc, argv);
      return RUN_ALL_TESTS();
    }
  }
#if defined(__SANITIZE_THREAD__)
  std::printf("[  SKIPPED ] ThreadSanitizer has a thread of its own, so nothing can be forked\n");
  return 0;
#endif
  int status = 0;
  try {
    rankcast::fork_ranks(support::processes, [&](rankcast::communicator& all) {
      testing::InitGoogleTest(&argc, argv);
      support::everybody() = &all;
      if (all.rank() != 0) support::print_failures_only(all.rank());
      const int result = RUN_ALL_TESTS();
      if (all.rank() != 0 && result != 0) throw std::runtime_error("tests failed");
      status = result;
    });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return status;
}
