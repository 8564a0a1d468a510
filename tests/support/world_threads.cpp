// Ranks as threads of the test program.
#include <limits>

#include "rankcast/transports/local/threads.hpp"
#include "support/world.hpp"

namespace support {

void run_world(int ranks, const std::function<void(rankcast::communicator&)>& function,
               const world_options& options) {
  rankcast::run_options run;
  run.default_timeout = options.default_timeout;
  run.completion = options.completion;
  run.sizes.eager_bytes = options.eager_bytes;
  run.sizes.chunk_bytes = options.chunk_bytes;
  run.sizes.slot_bytes = options.eager_bytes / 4;
  run.sizes.lend_bytes = options.eager_bytes / 2;
  run.sizes.help_bytes = 4 * options.chunk_bytes;
  rankcast::run(ranks, function, run);
}

int most_ranks() {
  return std::numeric_limits<int>::max();
}

bool ranks_are_threads() {
  return true;
}

bool ranks_share_memory() {
  return true;
}

}  // namespace support
