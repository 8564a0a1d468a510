/// Ranks as threads at several places, as MPI processes are on hosts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "rankcast/transports/frames/near_far_link.hpp"
#include "support/frames_ranks.hpp"
#include "support/pipe_block.hpp"
#include "support/queue_link.hpp"

namespace support {

/// What went over the links of a world.
struct traffic {
  std::uint64_t between = 0;  // bytes from place to place
  std::uint64_t within = 0;   // bytes through the pipes of places
  std::size_t slots = 0;      // slots that were used
};

/// As run_world; rank r is at place `place_of[r]`.
inline traffic run_at_places(const std::vector<int>& place_of,
                             const std::function<void(rankcast::communicator&)>& function,
                             const world_options& options) {
  const int ranks = static_cast<int>(place_of.size());
  const auto net = std::make_shared<wires>(ranks);
  std::map<int, std::shared_ptr<pipe_block>> blocks;
  for (const int place : place_of) {
    if (blocks.count(place) != 0) continue;
    const auto there = std::count(place_of.begin(), place_of.end(), place);
    blocks[place] = std::make_shared<pipe_block>(static_cast<int>(there), 16 * 1024, 8);
  }
  std::vector<std::vector<int>> near_ranks;  // by rank: the numbers there of all ranks
  std::vector<std::shared_ptr<pipe_end>> ends;
  for (int r = 0; r < ranks; ++r) {
    const int here = place_of[static_cast<std::size_t>(r)];
    std::vector<int> there;
    int next = 0;
    for (const int place : place_of) there.push_back(place == here ? next++ : -1);
    ends.push_back(std::make_shared<pipe_end>(blocks.at(here), there[static_cast<std::size_t>(r)]));
    near_ranks.push_back(std::move(there));
  }
  departure together(ranks);
  const auto run = [&] {
    run_over_links(
        ranks, function, options,
        [&](int rank) -> std::shared_ptr<rankcast::frames::link> {
          const auto& end = ends[static_cast<std::size_t>(rank)];
          std::shared_ptr<rankcast::frames::link> near;
          if (blocks.at(place_of[static_cast<std::size_t>(rank)])->size > 1)
            near = {end, &end->link};
          return std::make_shared<rankcast::frames::near_far_link>(
              std::make_shared<queue_link>(net, rank), std::move(near),
              near_ranks[static_cast<std::size_t>(rank)], place_of);
        },
        [&](rankcast::frames::link& link) {
          together.leave(*ends[static_cast<std::size_t>(link.rank())]);
        });
  };
  std::exception_ptr cause;
  try {
    run();
  } catch (...) {
    cause = std::current_exception();
  }
  ends.clear();
  for (const auto& [place, block] : blocks) require_free_slots(*block);
  if (cause != nullptr) std::rethrow_exception(cause);
  traffic t{net->bytes, 0, 0};
  for (const auto& [place, block] : blocks) {
    t.slots += block->slot_memory->reserved / block->slot_form.slot_bytes();
    for (int from = 0; from < block->size; ++from) {
      for (int to = 0; to < block->size; ++to) {
        if (from != to) t.within += block->head(from, to).written;
      }
    }
  }
  return t;
}

}  // namespace support
