/// Links between threads that share no memory: queues that hold some frames back for a while, as
/// networks do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "rankcast/transports/frames/link.hpp"
#include "support/world.hpp"

namespace support {

// One queue per pair, so that the frames of a pair stay in order and those of different pairs
// don't.
struct wires {
  using waiting = std::pair<rankcast::frames::frame, rankcast::frames::unsent_count>;

  explicit wires(int n) : size(n), queues(static_cast<std::size_t>(n * n)) {}
  const int size;
  std::mutex mutex;
  std::vector<std::deque<waiting>> queues;
  std::uint64_t bytes = 0;  // that have gone

  auto& between(int from, int to) { return queues[static_cast<std::size_t>(from * size + to)]; }
};

class queue_link final : public rankcast::frames::link {
 public:
  queue_link(std::shared_ptr<wires> w, int rank)
      : wires_(std::move(w)), rank_(rank), random_(static_cast<unsigned>(rank)) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return wires_->size; }

  void post(int to, rankcast::frames::frame f, rankcast::frames::unsent_count unsent) override {
    if (!f.shared.empty()) f.shared = copied(f.shared, own_room(f.shared.size()));
    const std::lock_guard lock(wires_->mutex);
    wires_->bytes += f.size() + f.shared.size();
    // As with MPI, small frames have left when they are posted.
    if (f.size() + f.shared.size() <= leaves_at_once) unsent = nullptr;
    if (unsent != nullptr) unsent->fetch_add(1);
    wires_->between(rank_, to).emplace_back(std::move(f), std::move(unsent));
  }

  bool progress() override {
    std::vector<rankcast::frames::frame> arrived;
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
    for (rankcast::frames::frame& f : arrived) {
      if (!f.shared.empty()) f.shared = copied(f.shared, room_to_receive(f.shared.size()));
      deliver(std::move(f));
    }
    return !arrived.empty();
  }

  void pause(int attempt, std::chrono::nanoseconds limit) override {
    if (attempt < 20) std::this_thread::yield();
    else std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(limit, 50us));
  }

 private:
  static constexpr std::size_t leaves_at_once = 3840;

  // As a network does, which hands nothing on by reference.
  [[nodiscard]] static rankcast::frames::payload copied(const rankcast::frames::payload& from,
                                                        rankcast::frames::room to) {
    std::copy(from.bytes().begin(), from.bytes().end(), to.data);
    return std::move(to.whole);
  }

  std::shared_ptr<wires> wires_;
  int rank_;
  std::mt19937 random_;
};

}  // namespace support
