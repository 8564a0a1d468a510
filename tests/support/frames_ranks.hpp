/// Ranks as threads that send each other frames, over links of the caller's choice.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rankcast/transports/frames/transport.hpp"
#include "support/world.hpp"

namespace support {

/// As run_world. `link_of(rank)`: a rank's end, by shared pointer; `leave(link)` is called when the
/// rank has done with the world.
template <class LinkOf, class Leave>
void run_over_links(int ranks, const std::function<void(rankcast::communicator&)>& function,
                    const world_options& options, LinkOf&& link_of, Leave&& leave) {
  std::vector<int> members;
  for (int r = 0; r < ranks; ++r) members.push_back(r);
  rankcast::frames::settings sizes;
  sizes.eager_bytes = options.eager_bytes;
  sizes.chunk_bytes = options.chunk_bytes;
  sizes.chunks_ahead = 3;
  sizes.flat_places = options.flat_places;
  std::mutex mutex;
  std::exception_ptr cause;
  const auto body = [&](int rank) {
    const std::shared_ptr<rankcast::frames::link> link = link_of(rank);
    {
      rankcast::communicator world(
          std::make_shared<rankcast::frames::frames_transport>(
              link, 1, rank, members, "group 'world' of " + std::to_string(ranks), sizes),
          "world", members, rank, options.default_timeout, options.completion);
      try {
        function(world);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (cause == nullptr) cause = std::current_exception();
        world.revoke("a rank of the test threw");
      }
    }
    leave(*link);
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (auto& t : threads) t.join();
  if (cause != nullptr) std::rethrow_exception(cause);
}

}  // namespace support
