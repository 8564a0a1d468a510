/// The transport between ranks that share memory. Each rank publishes its call in a slot of its
/// own, its peers read from there: small data from a copy in the slot, so that the sender goes on;
/// large data straight from the sender's buffer, so that it moves once.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/partition.hpp"
#include "rankcast/core/transport.hpp"
#include "rankcast/transports/local/call.hpp"
#include "rankcast/transports/local/doorbell.hpp"
#include "rankcast/transports/local/group.hpp"
#include "rankcast/transports/local/letter.hpp"
#include "rankcast/transports/local/mover.hpp"
#include "rankcast/transports/local/revoke.hpp"

namespace rankcast::inline v0::local {

class local_transport final : public transport {
 public:
  local_transport(std::shared_ptr<group> g, int rank) : group_(std::move(g)), rank_(rank) {}

  ~local_transport() override {
    if (!me().closed.load(std::memory_order_relaxed)) {
      me().left.store(true, std::memory_order_seq_cst);
    }
    group_->ring_others(rank_);
  }
  local_transport(const local_transport&) = delete;
  local_transport& operator=(const local_transport&) = delete;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return group_->size; }

  std::shared_ptr<flight> start(const operation& op) override {
    require_open(op);
    ++counters_.operations;
    if (is_point_to_point(op.code)) {
      letters_.push_back(std::make_shared<letter>(*group_, rank_, op, counters_));
      auto f = letters_.back();
      progress();
      return f;
    }
    note_last_call(op);
    calls_.push_back(
        std::make_shared<call>(*group_, rank_, next_sequence_++, op, counters_, spare_));
    auto f = calls_.back();
    progress();
    return f;
  }

  void refuse(const operation& op, const std::string& text) override {
    require_open(op);
    note_last_call(op);
    calls_.push_back(
        std::make_shared<call>(*group_, rank_, next_sequence_++, op, counters_, spare_));
    calls_.back()->refuse(text);
    progress();
  }

  bool progress() override {
    seen_bell_ = me().bell.value();
    if (calls_.empty() && letters_.empty()) return false;
    if (revoked(*group_)) {
      fail_all();
      return true;
    }
    try {
      if (advance_all()) {
        idle_polls_ = 0;
        return true;
      }
      if (++idle_polls_ % 64 == 0) give_up_if_due();  // reads the clock: not at every poll
    } catch (const group_revoked&) {
      fail_all();
      return true;
    }
    return false;
  }

  void pause(int attempt, std::chrono::nanoseconds limit) override {
    if (attempt < group_->spin_limit) {
      relax_cpu();
      return;
    }
    idle_polls_ = 63;  // after giving the core away, look at the clock at once
    if (attempt < group_->spin_limit + 10) {
      sched_yield();
      return;
    }
    // Not longer than the earliest deadline: it is this rank that has to notice it.
    steady_clock::time_point first = steady_clock::time_point::max();
    for (const auto& c : calls_) first = std::min(first, c->until().at());
    for (const auto& l : letters_) first = std::min(first, l->until().at());
    if (first != steady_clock::time_point::max()) {
      limit = std::clamp<std::chrono::nanoseconds>(first - steady_clock::now(),
                                                   std::chrono::nanoseconds(0), limit);
    }
    me().bell.sleep(seen_bell_, limit);
  }

  [[nodiscard]] bool busy() const noexcept override { return !calls_.empty() || !letters_.empty(); }

  std::shared_ptr<transport> subgroup(std::span<const int> ranks, std::uint64_t key,
                                      const std::string& group_name) override {
    const auto position = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    const std::lock_guard lock(group_->births_mutex);
    const auto name = std::pair{key, ranks.front()};
    auto& birth = group_->births[name];
    if (birth.child == nullptr) {
      birth.child = std::make_shared<group>(static_cast<int>(ranks.size()), group_name,
                                            group_->sizes, group_->spin_limit);
      birth.awaited = static_cast<int>(ranks.size());
    }
    auto child = birth.child;
    if (--birth.awaited == 0) group_->births.erase(name);
    return std::make_shared<local_transport>(std::move(child), static_cast<int>(position));
  }

  void revoke(const std::string& cause) noexcept override {
    revocation r;
    r.why = revocation::kind::failure;
    r.text = cause;
    r.ranks = {rank_};
    // Any thread may revoke; what is in flight fails when its own thread looks next.
    claim(*group_, rank_, std::move(r));
    me().bell.ring();  // the thread that waits in a call of this rank
    wait_for_movers(*group_, rank_);
  }

  void abandon(flight& f) noexcept override {
    for (auto it = letters_.begin(); it != letters_.end(); ++it) {
      if (it->get() == &f) {
        (*it)->withdraw();
        letters_.erase(it);
        return;
      }
    }
    revoke(group_->name + ": rank " + std::to_string(rank_) +
           " dropped a call before it had completed");
  }

  void close() noexcept override { me().closed.store(true, std::memory_order_seq_cst); }

  void check() override {
    if (revoked(*group_)) std::rethrow_exception(later_error(*group_));
  }

  [[nodiscard]] std::vector<rank_state> health() const override {
    std::vector<rank_state> states;
    for (const member& m : group_->members) {
      states.push_back(m.closed.load() ? rank_state::closed
                       : m.left.load() ? rank_state::left
                                       : rank_state::alive);
    }
    return states;
  }

  [[nodiscard]] transport_counters counters() const noexcept override { return counters_; }
  void add_waiting(std::chrono::nanoseconds time) noexcept override { counters_.waiting += time; }

 private:
  [[nodiscard]] member& me() noexcept { return group_->of(rank_); }

  void require_open(const operation& op) {
    if (me().closed.load(std::memory_order_relaxed)) {
      throw usage_error(std::string(name(op.code)) + " on " + group_->name +
                        ": the group has been closed");
    }
    check();
  }

  void note_last_call(const operation& op) noexcept {
    member& m = me();
    m.last_code.store(op.code, std::memory_order_relaxed);
    m.last_file.store(op.where.file, std::memory_order_relaxed);
    m.last_line.store(op.where.line, std::memory_order_relaxed);
    m.last_time.store(steady_clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    m.last_sequence.store(next_sequence_ + 1, std::memory_order_relaxed);
  }

  // Calls are published as soon as a slot is free, consumed in order, and leave when complete.
  bool advance_all() {
    bool moved = false;
    bool turn = true;
    for (const auto& c : calls_) {
      if (!c->publish()) break;
      moved = c->advance(turn) || moved;
      turn = c->released();
    }
    moved = advance_letters() || moved;
    std::erase_if(calls_, [](const auto& c) { return c->done; });
    std::erase_if(letters_, [](const auto& l) { return l->done; });
    return moved;
  }

  bool advance_letters() {
    if (letters_.empty()) return false;
    const std::uint64_t horizon = me().mail.arrived();
    bool moved = false;
    for (const auto& l : letters_) moved = l->advance(horizon) || moved;
    return moved;
  }

  // Nothing moves: has a deadline passed, or has somebody gone for whom we wait?
  void give_up_if_due() {
    for (const auto& c : calls_) {
      if (auto cause = c->hopeless()) {
        claim(*group_, rank_, std::move(*cause));
        throw group_revoked{};
      }
    }
    for (const auto& l : letters_) l->look_for_peer();
    advance_letters();
    for (const auto& l : letters_) l->give_up_if_due();
    std::erase_if(letters_, [](const auto& l) { return l->done; });
  }

  // The group is revoked: every call in flight gets its error, once no peer reads our buffers.
  void fail_all() noexcept {
    wait_for_movers(*group_, rank_);
    for (const auto& c : calls_) {
      if (!c->settle()) c->fail(error_of_call(*group_, c->sequence(), rank_));
    }
    for (const auto& l : letters_) {
      l->withdraw();
      l->fail(later_error(*group_));
    }
    calls_.clear();
    letters_.clear();
  }

  std::shared_ptr<group> group_;
  int rank_;
  std::uint64_t next_sequence_ = 0;
  std::uint32_t seen_bell_ = 0;
  unsigned idle_polls_ = 0;
  std::vector<std::shared_ptr<call>> calls_;      // in start order
  std::vector<std::shared_ptr<letter>> letters_;  // sends and receives, in start order
  std::vector<message> spare_;                    // memory of earlier messages
  transport_counters counters_;
};

}  // namespace rankcast::inline v0::local
