/// Calls in flight: `work` for a started collective, `pending<T>` for one with a result. Progress
/// happens only inside rankcast calls; any wait progresses everything this thread has started, on
/// every group, so that waits on nested groups cannot block each other.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "rankcast/core/transport.hpp"

namespace rankcast::inline v0 {

namespace detail {

// Transports on which this thread has started work it may not have waited for.
RANKCAST_API inline std::vector<std::weak_ptr<transport>>& started_transports() {
  static thread_local std::vector<std::weak_ptr<transport>> list;
  return list;
}

inline void note_started(const std::shared_ptr<transport>& t) {
  auto& list = started_transports();
  for (const auto& known : list) {
    if (!known.owner_before(t) && !t.owner_before(known)) return;
  }
  list.push_back(t);
}

[[nodiscard]] inline bool any_started() noexcept {
  return !started_transports().empty();
}

// Advances the other groups of this thread; forgets those that are idle. True if anything moved or
// still can, in the two members.
struct other_progress {
  bool moved = false;
  bool pending = false;
};
inline other_progress progress_others(const transport* self) {
  other_progress result;
  auto& list = started_transports();
  if (list.empty()) return result;
  for (std::size_t i = 0; i < list.size();) {
    const auto t = list[i].lock();
    if (t == nullptr || !t->busy()) {
      list[i] = std::move(list.back());
      list.pop_back();
      continue;
    }
    ++i;
    if (t.get() == self) continue;
    const transport::entry inside(*t);
    if (inside.nested()) t->listen();
    if (!inside.entered()) continue;
    result.moved = t->progress() || result.moved;
    result.pending = true;
  }
  return result;
}

// Waits until the flight is done; the caller is inside the transport.
inline void wait_for(transport& t, const flight& f) {
  if (f.done) return;
  using namespace std::chrono_literals;
  const auto begin = steady_clock::now();
  const auto moving_before = t.counters().moving;
  for (int attempt = 0; !f.done; ++attempt) {
    bool moved = t.progress();
    if (f.done) break;
    const other_progress others = progress_others(&t);
    moved = moved || others.moved;
    if (moved) attempt = 0;
    else t.pause(attempt, others.pending ? std::chrono::nanoseconds(1ms) : 100ms);
  }
  t.add_waiting(steady_clock::now() - begin - (t.counters().moving - moving_before));
}

}  // namespace detail

inline void transport::run(operation& op) {
  op.start_clock();
  const std::shared_ptr<flight> f = start(op);
  detail::wait_for(*this, *f);
  if (f->failure != nullptr) std::rethrow_exception(f->failure);
}

/// A started collective. Move only. The buffers it was given are borrowed until it is done.
/// Dropping it before that gives the call up: a collective's group is revoked, for its peers cannot
/// be served any more; a send or receive is withdrawn.
class [[nodiscard]] work {
 public:
  work() = default;
  work(std::shared_ptr<transport> owner, std::shared_ptr<flight> f) noexcept
      : transport_(std::move(owner)), flight_(std::move(f)) {}
  work(work&& other) noexcept { swap(other); }
  work& operator=(work&& other) noexcept {
    work(std::move(other)).swap(*this);
    return *this;
  }
  ~work() {
    if (flight_ != nullptr && !flight_->done) {
      transport_->abandon(*flight_);
    }
  }

  /// True while there is something to wait for.
  [[nodiscard]] bool valid() const noexcept { return flight_ != nullptr; }

  /// Progresses without waiting; true when the call has completed. Throws its error, once.
  [[nodiscard]] bool test() {
    if (flight_ == nullptr) return true;
    if (!flight_->done) {
      const transport::entry inside(*transport_);
      inside.require([] { return "test"; });
      transport_->progress();
      detail::progress_others(transport_.get());
    }
    if (!flight_->done) return false;
    finish();
    return true;
  }

  /// Waits until the call has completed, within the limit that was fixed when it started.
  /// Throws timeout_error, peer_lost_error, mismatch_error, remote_error or revoked_error.
  void wait() {
    if (flight_ == nullptr) return;
    if (!flight_->done) {
      const transport::entry inside(*transport_);
      inside.require([] { return "wait"; });
      detail::wait_for(*transport_, *flight_);
    }
    finish();
  }

 private:
  void finish() {
    const auto done = std::exchange(flight_, nullptr);
    transport_.reset();
    if (done->failure != nullptr) std::rethrow_exception(done->failure);
  }
  void swap(work& other) noexcept {
    std::swap(transport_, other.transport_);
    std::swap(flight_, other.flight_);
  }

  std::shared_ptr<transport> transport_;
  std::shared_ptr<flight> flight_;
};

/// A started collective that makes a value. Move only.
template <class T>
class [[nodiscard]] pending {
 public:
  pending(work w, std::shared_ptr<T> value) noexcept
      : value_(std::move(value)), work_(std::move(w)) {}

  [[nodiscard]] bool test() { return work_.test(); }
  /// Waits and hands the value over; call once.
  [[nodiscard]] T wait() {
    work_.wait();
    return std::move(*value_);
  }

 private:
  // The value outlives the work: a dropped work still ends what writes into it.
  std::shared_ptr<T> value_;
  work work_;
};

}  // namespace rankcast::inline v0
