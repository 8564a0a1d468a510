// Ranks as threads that send each other frames through rings in a block of memory, so small that
// most frames flow through them in pieces: what ranks that are processes do, where sanitizers can
// see it.
#include <atomic>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rankcast/transports/frames/transport.hpp"
#include "support/pipe_block.hpp"
#include "support/world.hpp"

namespace support {

void run_world(int ranks, const std::function<void(rankcast::communicator&)>& function,
               const world_options& options) {
  const auto block = std::make_shared<pipe_block>(ranks, 16 * 1024);
  std::vector<int> members;
  for (int r = 0; r < ranks; ++r) members.push_back(r);
  rankcast::frames::settings sizes;
  sizes.eager_bytes = options.eager_bytes;
  sizes.chunk_bytes = options.chunk_bytes;
  sizes.chunks_ahead = 3;
  sizes.flat_ranks = options.flat_ranks;
  std::mutex mutex;
  std::exception_ptr cause;
  std::atomic<int> finished{0};
  const auto body = [&](int rank) {
    const auto end = std::make_shared<pipe_end>(block, rank);
    {
      rankcast::communicator world(
          std::make_shared<rankcast::frames::frames_transport>(
              std::shared_ptr<rankcast::frames::link>(end, &end->link), 1, rank, members,
              "group 'world' of " + std::to_string(ranks), sizes),
          "world", members, rank, options.default_timeout, options.completion);
      try {
        function(world);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (cause == nullptr) cause = std::current_exception();
        world.revoke("a rank of the test threw");
      }
    }
    // What is queued here leaves only by calls of this rank, and what others send has to be read.
    ++finished;
    while (finished < ranks) {
      if (!end->link.progress()) std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (auto& t : threads) t.join();
  if (cause != nullptr) std::rethrow_exception(cause);
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
