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
#include <span>
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
  /// Any number, the same for ranks that share memory with each other: a host. All ranks get the
  /// same answers.
  [[nodiscard]] virtual int place_of(int link_rank) const noexcept { return link_rank; }

  /// Sends a frame now or in a later `progress`; never waits. `unsent` counts it until it has left.
  /// May be called by any thread.
  virtual void post(int to, frame f, unsent_count unsent = {}) = 0;
  /// Sends and receives what it can without waiting. True if anything moved.
  virtual bool progress() = 0;
  /// Waits for a sign of life, as transport::pause.
  virtual void pause(int attempt, std::chrono::nanoseconds limit) = 0;
  /// Throws usage_error when this thread may not use the link.
  virtual void require_thread() const {}

  /// Memory for a large chunk that the other ranks of this place read where it is. None when there
  /// is no such memory, or none of it is free.
  [[nodiscard]] virtual room shared_room(std::size_t /*bytes*/) { return {}; }
  /// Payloads are to be received into the shared memory of another link.
  void receive_into(std::shared_ptr<link> near) noexcept { near_ = std::move(near); }

  /// From now on frames of this group are kept for `take`; those that came before have been, too.
  void open(std::uint64_t group) {
    const std::lock_guard lock(store_->mutex);
    store_->inboxes[group];
  }
  /// Frames of this group are dropped from now on. Its number is forgotten when `leaving` peers
  /// more have left it, for then none of its frames is on its way.
  void close(std::uint64_t group, int leaving) noexcept {
    std::vector<frame> dropped;  // without the lock: payloads give their memory back
    const std::lock_guard lock(store_->mutex);
    const auto box = store_->inboxes.find(group);
    if (box != store_->inboxes.end()) {
      for (const frame& f : box->second) leaving -= header_of(f).what == kind::leave ? 1 : 0;
      dropped.swap(box->second);
      store_->inboxes.erase(box);
    }
    if (leaving > 0) store_->ended.emplace(group, leaving);
  }
  /// Appends the frames that have arrived for a group, in order.
  void take(std::uint64_t group, std::vector<frame>& to) {
    const std::lock_guard lock(store_->mutex);
    auto& box = store_->inboxes[group];
    std::move(box.begin(), box.end(), std::back_inserter(to));
    box.clear();
  }

  /// Two links that carry the frames of the same groups: what arrives on either is kept together.
  /// Before any has arrived.
  void share_with(link& other) noexcept { store_ = other.store_; }

  /// An empty frame, with memory where there is some.
  [[nodiscard]] frame buffer() {
    const std::lock_guard lock(store_->mutex);
    if (store_->spare.empty()) return {};
    frame f = std::move(store_->spare.back());
    store_->spare.pop_back();
    return f;
  }
  /// Takes the memory of a frame back.
  void recycle(frame f) noexcept { store_->recycle(std::move(f)); }

  /// Memory of this process for a payload.
  [[nodiscard]] room own_room(std::size_t bytes) {
    frame f = buffer();
    f.resize(bytes);
    std::byte* const data = f.data();
    return {own(std::move(f), 0), data};
  }
  /// Makes the body of a frame a payload, so that other frames can hold it as well.
  void share(frame& f) {
    if (!f.shared.empty() || f.size() <= sizeof(frame_header)) return;
    frame head = buffer();
    head.assign(f.begin(), f.begin() + sizeof(frame_header));
    head.shared = own(std::move(f), sizeof(frame_header));
    f = std::move(head);
  }

 protected:
  link() { store_->spare.reserve(most_spare); }
  link(const link&) = delete;
  link& operator=(const link&) = delete;

  /// For implementations: where a payload of so many bytes is to be received.
  [[nodiscard]] room room_to_receive(std::size_t bytes) {
    room r = near_ == nullptr ? room{} : near_->shared_room(bytes);
    return r ? std::move(r) : own_room(bytes);
  }
  /// For implementations: a frame has arrived. Anything that is no frame is dropped.
  void deliver(frame f) {
    if (f.size() < sizeof(frame_header)) return;
    const frame_header h = header_of(f);
    if (h.magic != frame_header{}.magic) return;
    const std::lock_guard lock(store_->mutex);
    const auto ended = store_->ended.find(h.group);
    if (ended == store_->ended.end()) store_->inboxes[h.group].push_back(std::move(f));
    else if (h.what == kind::leave && --ended->second == 0) store_->ended.erase(ended);
  }

 private:
  static constexpr std::size_t most_spare = 64;

  struct store {
    std::mutex mutex;
    std::map<std::uint64_t, std::vector<frame>> inboxes;
    std::map<std::uint64_t, int> ended;  // peers that have not left yet
    std::vector<frame> spare;

    void recycle(frame f) noexcept {
      f.clear();
      f.shared = {};
      if (f.capacity() == 0) return;
      const std::lock_guard lock(mutex);
      if (spare.size() < most_spare) spare.push_back(std::move(f));
    }
  };

  // What a frame has in its own memory, as a payload that gives the memory back.
  [[nodiscard]] payload own(frame f, std::size_t offset) {
    struct holder {
      std::weak_ptr<store> home;  // it may lie in there itself
      frame memory;
      holder(const std::shared_ptr<store>& h, frame f) : home(h), memory(std::move(f)) {}
      ~holder() {
        if (const auto s = home.lock()) s->recycle(std::move(memory));
      }
      holder(const holder&) = delete;
      holder& operator=(const holder&) = delete;
    };
    const std::span<const std::byte> bytes = std::span(f).subspan(offset);
    return {std::make_shared<holder>(store_, std::move(f)), bytes};
  }

  std::shared_ptr<store> store_ = std::make_shared<store>();
  std::shared_ptr<link> near_;
};

}  // namespace rankcast::inline v0::frames
