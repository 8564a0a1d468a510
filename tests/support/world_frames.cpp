// Ranks as threads that share no memory but send each other frames, through queues that hold some
// back for a while: the protocol of the transports across processes, where sanitizers can see it.
#include <limits>
#include <memory>

#include "support/frames_ranks.hpp"
#include "support/queue_link.hpp"

namespace support {

void run_world(int ranks, const std::function<void(rankcast::communicator&)>& function,
               const world_options& options) {
  const auto shared = std::make_shared<wires>(ranks);
  run_over_links(
      ranks, function, options,
      [&](int rank) { return std::make_shared<queue_link>(shared, rank); },
      [](rankcast::frames::link&) {});
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
