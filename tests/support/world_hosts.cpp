// Ranks as threads at several places: frames go through rings in a block of memory between ranks of
// one place, and through queues between places. What MPI processes on several hosts do, where
// sanitizers can see it.
#include <limits>
#include <vector>

#include "support/frames_ranks.hpp"
#include "support/places.hpp"

namespace support {

void run_world(int ranks, const std::function<void(rankcast::communicator&)>& function,
               const world_options& options) {
  // Three at most of one place, and not in a row: places of 0 3 6 …, 1 4 7 …, 2 5 8 ….
  std::vector<int> place_of;
  for (int r = 0; r < ranks; ++r) place_of.push_back(ranks < 4 ? r / 2 : r % 3);
  (void)run_at_places(place_of, function, options);
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
