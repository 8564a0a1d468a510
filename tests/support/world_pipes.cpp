// Ranks as threads that send each other frames through rings in a block of memory: what ranks that
// are processes do, where sanitizers can see it. (Frames larger than their ring: pipes_test.cpp.)
#include <limits>
#include <memory>
#include <vector>

#include "support/frames_ranks.hpp"
#include "support/pipe_block.hpp"

namespace support {

void run_world(int ranks, const std::function<void(rankcast::communicator&)>& function,
               const world_options& options) {
  const auto block = std::make_shared<pipe_block>(ranks, 16 * 1024, 8);
  departure together(ranks);
  std::vector<std::shared_ptr<pipe_end>> ends;
  for (int r = 0; r < ranks; ++r) ends.push_back(std::make_shared<pipe_end>(block, r));
  run_over_links(
      ranks, function, options,
      [&](int rank) {
        const auto& end = ends[static_cast<std::size_t>(rank)];
        return std::shared_ptr<rankcast::frames::link>(end, &end->link);
      },
      [&](rankcast::frames::link& link) {
        together.leave(*ends[static_cast<std::size_t>(link.rank())]);
      });
  ends.clear();
  require_free_slots(*block);
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
