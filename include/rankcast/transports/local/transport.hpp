/// The transport between ranks of one host. Each rank shows its call in a slot of its own, its
/// peers read from there. It knows what is in flight, and lets it go on.
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

#include "rankcast/core/transport.hpp"
#include "rankcast/core/work.hpp"
#include "rankcast/transports/local/call.hpp"
#include "rankcast/transports/local/doorbell.hpp"
#include "rankcast/transports/local/group.hpp"
#include "rankcast/transports/local/letter.hpp"
#include "rankcast/transports/local/mover.hpp"
#include "rankcast/transports/local/revoke.hpp"

namespace rankcast::inline v0::local {

/// In lines of its own: each rank writes its own one all the time.
class alignas(apart) local_transport final : public transport, private waiter {
 public:
  local_transport(std::shared_ptr<group> g, int rank)
      : group_(std::move(g)),
        rank_(rank),
        desk_(*group_, rank, *this),
        blocking_(desk_),
        post_(group_->house->letters(*group_, rank)) {}

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
    if (is_point_to_point(op.code)) {
      if (post_ != nullptr) return post_->start(op);
      ++desk_.counters.operations;
      letters_.push_back(std::make_shared<letter>(*group_, rank_, op, desk_.counters));
      auto f = letters_.back();
      progress();
      return f;
    }
    ++desk_.counters.operations;
    auto f = append(op);
    progress();
    return f;
  }

  void refuse(const operation& op, const std::string& text) override {
    require_open(op);
    append(op)->refuse(text);
    progress();
  }

  // A call that blocks needs no memory of its own, and when it is small no clock either.
  void run(operation& op) override {
    if (is_point_to_point(op.code) || !calls_.empty()) {
      transport::run(op);
      return;
    }
    require_open(op);
    ++desk_.counters.operations;
    const bool message = is_message(op);
    const bool quick = !message && op.send.bytes() + op.receive.bytes() <= quick_bytes &&
                       (op.limit.is_none() || op.limit.limit() >= coarse_limit);
    if (!quick || group_->spin_limit == 0) op.start_clock();
    const std::uint64_t sequence = next_sequence_++;
    if (!quick || !blocking_.is_small(op)) blocking_.begin(op, sequence);
    else if (blocking_.run_small(op, sequence, group_->spin_limit > 0 ? eager_looks : eager_yields))
      return;
    if (message) calls_.push_back({&blocking_, nullptr});  // its decoder may wait, and pump
    if (run_at_once()) {
      calls_.clear();  // it was the only one
    } else {
      if (calls_.empty()) calls_.push_back({&blocking_, nullptr});
      detail::wait_for(*this, blocking_);
    }
    if (blocking_.failure != nullptr) [[unlikely]] {
      std::rethrow_exception(std::exchange(blocking_.failure, nullptr));
    }
  }

  bool progress() override {
    if (calls_.empty() && letters_.empty()) return post_ != nullptr && progress_post();
    if (revoked(*group_)) {
      fail_all();
      return true;
    }
    try {
      bool moved = advance_all();
      if (post_ != nullptr) moved = progress_post() || moved;
      if (moved) {
        idle_polls_ = 0;
        return true;
      }
      if (++idle_polls_ % 64 == 0) give_up_if_due();  // reads the clock: not at every poll
    } catch (const group_revoked&) {
      fail_all();
      return true;
    } catch (const transport_error& e) {  // no memory for a ring: nobody can go on
      end_by(e);
      fail_all();
      return true;
    }
    return false;
  }

  void listen() override {
    for (const flying& f : calls_) f.which->pump();
    if (post_ != nullptr) post_->listen();
  }

  void pause(int attempt, std::chrono::nanoseconds limit) override {
    if (attempt < group_->spin_limit) {
      relax_cpu();
      return;
    }
    idle_polls_ = 63;  // after giving the core away, look at the clock at once
    if (attempt < group_->spin_limit + yields) {
      sched_yield();
      return;
    }
    // Not longer than the earliest deadline: it is this rank that has to notice it.
    steady_clock::time_point first = steady_clock::time_point::max();
    for (const flying& f : calls_) {
      f.which->start_clock();
      first = std::min(first, f.which->until().at());
    }
    for (const auto& l : letters_) first = std::min(first, l->until().at());
    if (first != steady_clock::time_point::max()) {
      limit = std::clamp<std::chrono::nanoseconds>(first - steady_clock::now(),
                                                   std::chrono::nanoseconds(0), limit);
    }
    if (group_->across_processes) {
      limit = std::min<std::chrono::nanoseconds>(limit, watch);
      post_polls_ = 63;
      if (post_ != nullptr) post_->look_at_clock();
    }
    group_->bell(rank_).sleep(limit, group_->across_processes, [&] { return progress(); });
  }

  [[nodiscard]] bool busy() const noexcept override {
    return !calls_.empty() || !letters_.empty() || (post_ != nullptr && post_->busy());
  }

  std::shared_ptr<transport> subgroup(std::span<const int> ranks, std::uint64_t key,
                                      const std::string& group_name) override {
    const auto position =
        static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
    return std::make_shared<local_transport>(
        group_->house->found(*group_, rank_, ranks, position, key, group_name), position);
  }

  void revoke(const std::string& cause) noexcept override {
    try {
      revocation r;
      r.why = revocation::kind::failure;
      r.text = cause;
      r.sequence = no_sequence;
      r.ranks = {rank_};
      // Any thread may revoke; what is in flight fails when its own thread looks next.
      claim(*group_, rank_, r);
    } catch (...) {  // out of memory: the others will find out by their time limits
    }
    group_->ring(rank_);  // the thread that waits in a call of this rank
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
    const bool collective =
        std::any_of(calls_.begin(), calls_.end(), [&](const flying& c) { return c.which == &f; });
    if (!collective && post_ != nullptr) {
      post_->abandon(f);
      return;
    }
    revoke(group_->name + ": rank " + std::to_string(rank_) +
           " dropped a call before it had completed");
  }

  void close() noexcept override {
    me().closed.store(true, std::memory_order_seq_cst);
    if (post_ != nullptr) post_->close();
  }

  void check() override {
    if (group_->sizes.check == checks::off) return;
    if (revoked(*group_)) std::rethrow_exception(later_error(*group_));
  }

  [[nodiscard]] std::vector<rank_state> health() const override {
    std::vector<rank_state> states;
    for (int r = 0; r < group_->size; ++r) {
      states.push_back(group_->of(r).closed.load() ? rank_state::closed
                       : group_->gone(r)           ? rank_state::left
                                                   : rank_state::alive);
    }
    return states;
  }

  [[nodiscard]] transport_counters counters() const noexcept override {
    transport_counters all = desk_.counters;
    if (post_ != nullptr) {
      const transport_counters more = post_->counters();
      all.operations += more.operations;
      all.bytes_sent += more.bytes_sent;
      all.bytes_received += more.bytes_received;
      all.waiting += more.waiting;
      all.moving += more.moving;
    }
    return all;
  }
  void add_waiting(std::chrono::nanoseconds time) noexcept override {
    desk_.counters.waiting += time;
  }

 private:
  struct flying {
    call* which;
    std::shared_ptr<call> keep;  // of a started call
  };

  static constexpr int yields = 50;
  static constexpr int eager_looks = 100;  // without a pause between them
  static constexpr int eager_yields = 10;  // where there are more ranks than CPUs
  static constexpr std::size_t quick_bytes = 64 * 1024;
  static constexpr std::chrono::milliseconds coarse_limit{100};
  static constexpr std::chrono::milliseconds watch{40};  // between looks at peers' processes
  static constexpr std::uint64_t no_sequence = ~std::uint64_t{0};

  [[nodiscard]] member& me() const noexcept { return group_->of(rank_); }

  void require_open(const operation& op) {
    if (me().closed.load(std::memory_order_relaxed)) {
      throw usage_error(std::string(name(op.code)) + " on " + group_->name +
                        ": the group has been closed");
    }
    check();
  }

  std::shared_ptr<call> append(const operation& op) {
    auto c = std::make_shared<call>(desk_);
    c->begin_copy(op, next_sequence_++);
    calls_.push_back({c.get(), c});
    return c;
  }

  // What comes within a moment needs no more than to be looked for. False when the call has to be
  // waited for in the usual way.
  bool run_at_once() {
    try {
      for (int i = 0; i <= group_->spin_limit; ++i) {
        if (blocking_.publish() && blocking_.could_go_on()) blocking_.advance(true);
        if (blocking_.done) return true;
        if (blocking_.lends() && help_readers()) i = 0;
        if (i == eager_looks) blocking_.ring_if_due();
        if (i % 64 == 63 && revoked(*group_)) return false;
        if (i > eager_looks) relax_cpu();
      }
    } catch (const group_revoked&) {  // and so will find who waits
    } catch (const transport_error& e) {
      acting_ = &blocking_;
      end_by(e);
    }
    return false;
  }

  // Calls are published as soon as a slot is free, consumed in order, and leave when complete.
  bool advance_all() {
    bool moved = false;
    bool turn = true;
    bool lends = false;
    bool over = false;
    acting_ = nullptr;
    for (const flying& f : calls_) {
      call& c = *f.which;
      acting_ = &c;
      if (!c.publish()) break;
      moved = c.advance(turn) || moved;
      turn = c.released();
      lends = lends || c.lends();
      over = over || c.done;
    }
    if (lends) moved = help_readers() || moved;
    if (!letters_.empty()) moved = advance_letters() || moved;
    if (over) std::erase_if(calls_, [](const flying& f) { return f.which->done; });
    return moved;
  }

  bool advance_letters() {
    const std::uint64_t horizon = group_->mail[static_cast<std::size_t>(rank_)].arrived();
    bool moved = false;
    for (const auto& l : letters_) moved = l->advance(horizon) || moved;
    std::erase_if(letters_, [](const auto& l) { return l->done; });
    return moved;
  }

  // The system has refused something to the call that was at it.
  void end_by(const transport_error& e) noexcept {
    try {
      revocation r;
      r.why = revocation::kind::system;
      r.sequence = acting_ != nullptr ? acting_->sequence() : no_sequence;
      r.text = (acting_ != nullptr ? acting_->text() : group_->name) + ": rank " +
               std::to_string(rank_) + ": " + e.what();
      r.ranks = {rank_};
      r.code = e.code();
      claim(*group_, rank_, r);
    } catch (...) {  // out of memory: the others will find out by their time limits
    }
  }

  // Copies along with those who take what this rank lent: a chunk of each.
  bool help_readers() {
    mover m(*group_, rank_, desk_.counters);
    bool moved = false;
    for (int r = 0; r < group_->size; ++r) {
      if (r != rank_) moved = m.help(r) || moved;
    }
    return moved;
  }

  // Sends and receives between processes know of the group's end from here, and of lost peers.
  bool progress_post() {
    if (revoked(*group_)) {
      const auto [why, by] = cause_of(*group_);
      post_->end(why, by);
    } else if (++post_polls_ % 64 == 0 && post_->busy()) {
      for (int r = 0; r < group_->size; ++r) {
        if (group_->house->dead(r)) post_->lose(r);
      }
    }
    return post_->progress();
  }

  // Nothing moves: has a deadline passed, or has somebody gone for whom we wait?
  void give_up_if_due() {
    give_calls_up_if_due();
    if (letters_.empty()) return;
    for (const auto& l : letters_) l->look_for_peer();
    advance_letters();
    for (const auto& l : letters_) l->give_up_if_due();
    std::erase_if(letters_, [](const auto& l) { return l->done; });
  }

  // The group is revoked: every call in flight gets its error, once no peer reads our buffers.
  void fail_all() noexcept {
    wait_for_movers(*group_, rank_);
    for (const flying& f : calls_) {
      if (!f.which->settle()) {
        f.which->fail(error_of_call(*group_, f.which->sequence(), rank_));
      }
    }
    for (const auto& l : letters_) {
      l->withdraw();
      l->fail(later_error(*group_));
    }
    calls_.clear();
    letters_.clear();
    if (post_ != nullptr && post_->busy()) progress_post();
  }

  // A decoder waits for more of its message.
  void wait_once(int attempt) override {
    bool moved = false;
    for (const flying& f : calls_) moved = f.which->pump() || moved;
    if (revoked(*group_)) throw group_revoked{};
    if (post_ != nullptr) post_->listen();
    moved = detail::progress_others(this).moved || moved;
    if (attempt % 64 == 63 || attempt > group_->spin_limit) give_calls_up_if_due();
    if (moved) return;
    if (attempt < group_->spin_limit) relax_cpu();
    else if (attempt < group_->spin_limit + yields) sched_yield();
    else  // a ring that comes before the sleep is missed, for a millisecond
      group_->bell(rank_).sleep(std::chrono::milliseconds(1), group_->across_processes,
                                [] { return false; });
  }
  void give_calls_up_if_due() {
    for (const flying& f : calls_) {
      if (auto cause = f.which->hopeless()) {
        claim(*group_, rank_, *cause);
        throw group_revoked{};
      }
    }
  }

  std::shared_ptr<group> group_;
  int rank_;
  desk desk_;
  call blocking_;                    // used again and again
  call* acting_ = nullptr;           // while calls are advanced
  std::unique_ptr<transport> post_;  // sends and receives between processes
  std::uint64_t next_sequence_ = 0;
  unsigned idle_polls_ = 0;
  unsigned post_polls_ = 0;
  std::vector<flying> calls_;                     // in start order
  std::vector<std::shared_ptr<letter>> letters_;  // sends and receives, in start order
};

}  // namespace rankcast::inline v0::local
