/// What carries frames between the processes (or threads) of a job, and sorts those that arrive by
/// group. Frames from one sender to one receiver arrive in the order in which they were posted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "rankcast/transports/frames/frame.hpp"

namespace rankcast::inline v0::frames {

/// Frames posted that have not left yet.
using unsent_count = std::shared_ptr<std::atomic<int>>;

class RANKCAST_API link {
 public:
  virtual ~link() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// Sends a frame now or in a later `progress`; never waits. `unsent` counts it until it has left.
  /// May be called by any thread.
  virtual void post(int to, frame f, unsent_count unsent = {}) = 0;
  /// Sends and receives what it can without waiting. True if anything moved.
  virtual bool progress() = 0;
  /// Waits for a sign of life, as transport::pause.
  virtual void pause(int attempt, std::chrono::nanoseconds limit) = 0;
  /// Throws usage_error when this thread may not use the link.
  virtual void require_thread() const {}

  /// From now on frames of this group are kept for `take`; those that came before have been, too.
  void open(std::uint64_t group) {
    const std::lock_guard lock(mutex_);
    inboxes_[group];
  }
  /// Frames of this group are dropped from now on. Its number is forgotten when `leaving` peers
  /// more have left it, for then none of its frames is on its way.
  void close(std::uint64_t group, int leaving) noexcept {
    const std::lock_guard lock(mutex_);
    const auto box = inboxes_.find(group);
    if (box != inboxes_.end()) {
      for (const frame& f : box->second) leaving -= header_of(f).what == kind::leave ? 1 : 0;
      inboxes_.erase(box);
    }
    if (leaving > 0) ended_.emplace(group, leaving);
  }
  /// Appends the frames that have arrived for a group, in order.
  void take(std::uint64_t group, std::vector<frame>& to) {
    const std::lock_guard lock(mutex_);
    auto& box = inboxes_[group];
    std::move(box.begin(), box.end(), std::back_inserter(to));
    box.clear();
  }

  /// An empty frame, with memory where there is some.
  [[nodiscard]] frame buffer() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return {};
    frame f = std::move(spare_.back());
    spare_.pop_back();
    return f;
  }
  /// Takes the memory of a frame back.
  void recycle(frame f) noexcept {
    f.clear();
    const std::lock_guard lock(mutex_);
    if (spare_.size() < most_spare) spare_.push_back(std::move(f));
  }

 protected:
  link() { spare_.reserve(most_spare); }
  link(const link&) = delete;
  link& operator=(const link&) = delete;

  /// For implementations: a frame has arrived. Anything that is no frame is dropped.
  void deliver(frame f) {
    if (f.size() < sizeof(frame_header)) return;
    const frame_header h = header_of(f);
    if (h.magic != frame_header{}.magic) return;
    const std::lock_guard lock(mutex_);
    const auto ended = ended_.find(h.group);
    if (ended == ended_.end()) inboxes_[h.group].push_back(std::move(f));
    else if (h.what == kind::leave && --ended->second == 0) ended_.erase(ended);
  }

 private:
  static constexpr std::size_t most_spare = 64;

  std::mutex mutex_;
  std::map<std::uint64_t, std::vector<frame>> inboxes_;
  std::map<std::uint64_t, int> ended_;  // peers that have not left yet
  std::vector<frame> spare_;
};

}  // namespace rankcast::inline v0::frames
