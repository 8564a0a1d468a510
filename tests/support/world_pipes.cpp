// Ranks as threads that send each other frames through rings in a block of memory: what ranks that
// are processes do, where sanitizers can see it. (Frames larger than their ring: pipes_test.cpp.)
#include <atomic>
#include <limits>
#include <memory>
#include <thread>

#include "support/frames_ranks.hpp"
#include "support/pipe_block.hpp"

namespace support {

void run_world(int ranks, const std::function<void(rankcast::communicator&)>& function,
               const world_options& options) {
  const auto block = std::make_shared<pipe_block>(ranks, 16 * 1024);
  std::atomic<int> finished{0};
  run_over_links(
      ranks, function, options,
      [&](int rank) {
        const auto end = std::make_shared<pipe_end>(block, rank);
        return std::shared_ptr<rankcast::frames::link>(end, &end->link);
      },
      // What is queued leaves only by calls of this rank, and what others send has to be read.
      [&](rankcast::frames::link& link) {
        ++finished;
        while (finished < ranks) {
          if (!link.progress()) std::this_thread::yield();
        }
      });
}

int most_ranks() {
  return std::numeric_limits<int>::max();
}

bool ranks_are_threads() {
  return true;
}

bool ranks_share_memory() {
  return false;
}

}  // namespace support
