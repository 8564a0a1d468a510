// Ranks as threads that share no memory but send each other frames, through queues that hold some
// back for a while, as networks do: the protocol of the transports across processes, where
// sanitizers can see it.
#include <deque>
#include <limits>
#include <mutex>
#include <random>
#include <thread>

#include "support/frames_ranks.hpp"

namespace support {
namespace {

using rankcast::frames::frame;

// One queue per pair, so that the frames of a pair stay in order and those of different pairs
// don't.
struct wires {
  explicit wires(int n) : size(n), queues(static_cast<std::size_t>(n * n)) {}
  const int size;
  std::mutex mutex;
  std::vector<std::deque<std::pair<frame, rankcast::frames::unsent_count>>> queues;

  auto& between(int from, int to) { return queues[static_cast<std::size_t>(from * size + to)]; }
};

constexpr std::size_t leaves_at_once = 3840;

class queue_link final : public rankcast::frames::link {
 public:
  queue_link(std::shared_ptr<wires> w, int rank)
      : wires_(std::move(w)), rank_(rank), random_(static_cast<unsigned>(rank)) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return wires_->size; }

  void post(int to, frame f, rankcast::frames::unsent_count unsent) override {
    const std::lock_guard lock(wires_->mutex);
    // As with MPI, small frames have left when they are posted.
    if (f.size() <= leaves_at_once) unsent = nullptr;
    if (unsent != nullptr) unsent->fetch_add(1);
    wires_->between(rank_, to).emplace_back(std::move(f), std::move(unsent));
  }

  bool progress() override {
    std::vector<frame> arrived;
    {
      const std::lock_guard lock(wires_->mutex);
      for (int from = 0; from < wires_->size; ++from) {
        auto& queue = wires_->between(from, rank_);
        while (!queue.empty() && random_() % 4 != 0) {
          arrived.push_back(std::move(queue.front().first));
          if (auto& unsent = queue.front().second; unsent != nullptr) unsent->fetch_sub(1);
          queue.pop_front();
        }
      }
    }
    for (frame& f : arrived) deliver(std::move(f));
    return !arrived.empty();
  }

  void pause(int attempt, std::chrono::nanoseconds limit) override {
    if (attempt < 20) std::this_thread::yield();
    else std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(limit, 50us));
  }

 private:
  std::shared_ptr<wires> wires_;
  int rank_;
  std::mt19937 random_;
};

}  // namespace

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
