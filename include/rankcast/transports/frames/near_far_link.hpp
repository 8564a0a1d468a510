/// Carries frames to ranks of the same place by one link and to all others by another one.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "rankcast/transports/frames/link.hpp"

namespace rankcast::inline v0::frames {

class near_far_link : public link {
 public:
  /// `near`: null when this rank is alone at its place. `near_ranks`: by rank, the number on
  /// `near`, -1 for one of another place. `places`: by rank.
  near_far_link(std::shared_ptr<link> far, std::shared_ptr<link> near, std::vector<int> near_ranks,
                std::vector<int> places)
      : far_(std::move(far)),
        near_(std::move(near)),
        near_ranks_(std::move(near_ranks)),
        places_(std::move(places)) {
    share_with(*far_);
    if (near_ == nullptr) return;
    near_->share_with(*far_);
    far_->receive_into(near_);
  }

  [[nodiscard]] int rank() const noexcept override { return far_->rank(); }
  [[nodiscard]] int size() const noexcept override { return far_->size(); }
  [[nodiscard]] int place_of(int link_rank) const noexcept override {
    return places_[static_cast<std::size_t>(link_rank)];
  }
  void post(int to, frame f, unsent_count unsent = {}) override {
    const int on_near = near_ == nullptr ? -1 : near_ranks_[static_cast<std::size_t>(to)];
    if (on_near >= 0) near_->post(on_near, std::move(f), std::move(unsent));
    else far_->post(to, std::move(f), std::move(unsent));
  }
  bool progress() override {
    const bool moved = near_ != nullptr && near_->progress();
    return far_->progress() || moved;
  }
  [[nodiscard]] room shared_room(std::size_t bytes) override {
    return near_ == nullptr ? room{} : near_->shared_room(bytes);
  }
  // A sleep on one link would miss what comes on the other.
  void pause(int attempt, std::chrono::nanoseconds limit) override { far_->pause(attempt, limit); }
  void require_thread() const override { far_->require_thread(); }

 private:
  std::shared_ptr<link> far_;
  std::shared_ptr<link> near_;
  std::vector<int> near_ranks_;
  std::vector<int> places_;
};

}  // namespace rankcast::inline v0::frames
