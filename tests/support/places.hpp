/// Ranks as threads at several places, as MPI processes are on hosts.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "rankcast/transports/frames/near_far_link.hpp"
#include "support/frames_ranks.hpp"
#include "support/pipe_block.hpp"
#include "support/queue_link.hpp"

namespace support {

/// As run_world; rank r is at place `place_of[r]`.
inline void run_at_places(const std::vector<int>& place_of,
                          const std::function<void(rankcast::communicator&)>& function,
                          const world_options& options) {
  const int ranks = static_cast<int>(place_of.size());
  const auto net = std::make_shared<wires>(ranks);
  std::map<int, std::shared_ptr<pipe_block>> blocks;
  for (const int place : place_of) {
    if (blocks.count(place) != 0) continue;
    const auto there = std::count(place_of.begin(), place_of.end(), place);
    blocks[place] = std::make_shared<pipe_block>(static_cast<int>(there), 16 * 1024);
  }
  std::atomic<int> finished{0};
  run_over_links(
      ranks, function, options,
      [&](int rank) -> std::shared_ptr<rankcast::frames::link> {
        const int here = place_of[static_cast<std::size_t>(rank)];
        std::vector<int> near_ranks;
        int next = 0;
        for (const int place : place_of) near_ranks.push_back(place == here ? next++ : -1);
        const auto end =
            std::make_shared<pipe_end>(blocks.at(here), near_ranks[static_cast<std::size_t>(rank)]);
        return std::make_shared<rankcast::frames::near_far_link>(
            std::make_shared<queue_link>(net, rank),
            std::shared_ptr<rankcast::frames::link>(end, &end->link), near_ranks, place_of);
      },
      // What is queued leaves only by calls of this rank, and what others send has to be read.
      [&](rankcast::frames::link& link) {
        ++finished;
        while (finished < ranks) {
          if (!link.progress()) std::this_thread::yield();
        }
      });
}

}  // namespace support
