/// The transport between ranks that send each other frames: it keeps what is in flight, and lets it
/// go on.
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

#include "rankcast/core/work.hpp"
#include "rankcast/transports/frames/call.hpp"
#include "rankcast/transports/frames/group.hpp"
#include "rankcast/transports/frames/inbox.hpp"
#include "rankcast/transports/frames/letter.hpp"

namespace rankcast::inline v0::frames {

/// Makes the transports of sub-groups where not all of them are to be of this kind.
class RANKCAST_API founder {
 public:
  virtual ~founder() = default;
  /// `link_ranks`: where the ranks of the new group are on the link, `rank` the caller's among
  /// them. Null: a transport of frames will do.
  [[nodiscard]] virtual std::shared_ptr<transport> found(transport& parent,
                                                         const std::vector<int>& link_ranks,
                                                         int rank, std::uint64_t id,
                                                         const std::string& name) = 0;
};

class frames_transport final : public transport, public waiter {
 public:
  /// `link_ranks`: where the ranks of the group are on the link. `id`: the same on all of them, and
  /// of no other group.
  frames_transport(std::shared_ptr<link> l, std::uint64_t id, int rank,
                   const std::vector<int>& link_ranks, const std::string& group_name, settings s,
                   std::shared_ptr<founder> f = nullptr)
      : group_(std::move(l), id, rank, link_ranks, group_name, s), founder_(std::move(f)) {}

  ~frames_transport() override {
    try {
      group_.post_all(
          group_.make(kind::leave, flying_.next_sequence, 0, closed_ ? flag::closed : flag::none));
    } catch (...) {  // who cannot be told will find out by its own time limit
    }
    const auto here = std::count_if(group_.peers.begin(), group_.peers.end(),
                                    [](const peer& p) { return !p.left && !p.closed; });
    group_.lines->close(group_.id, static_cast<int>(here) - 1);  // without ourselves
  }
  frames_transport(const frames_transport&) = delete;
  frames_transport& operator=(const frames_transport&) = delete;

  [[nodiscard]] int rank() const noexcept override { return group_.rank; }
  [[nodiscard]] int size() const noexcept override { return group_.size; }

  std::shared_ptr<flight> start(const operation& op) override {
    require_open(op);
    ++group_.counters.operations;
    if (is_point_to_point(op.code)) {
      flying_.letters.push_back(
          std::make_shared<letter>(group_, flying_.box, op, next_letter_++, *this));
      auto f = flying_.letters.back();
      progress();
      return f;
    }
    auto f = append(op);
    progress();
    return f;
  }

  void refuse(const operation& op, const std::string& text) override {
    require_open(op);
    append(op)->refuse(text);
    progress();
  }

  bool progress() override {
    try {
      group_.lines->progress();
      const bool heard = inbox_.hear();
      if (flying_.calls.empty() && flying_.letters.empty()) return heard;
      if (!group_.revoked()) {
        const bool moved = advance_all();
        // Frames that move nothing here put no deadline off.
        if (moved) idle_polls_ = 0;
        else if (++idle_polls_ % 64 == 0) give_up_if_due();
        return moved || heard;
      }
    } catch (const group_revoked&) {
    } catch (const error& e) {  // of the link: no call may stay behind with its caller's buffers
      revoke(group_.name + ": rank " + std::to_string(group_.rank) + ": " + e.what());
    }
    fail_all();
    return true;
  }

  void listen() override {
    try {
      group_.lines->progress();
      inbox_.hear();
    } catch (const error& e) {
      revoke(group_.name + ": rank " + std::to_string(group_.rank) + ": " + e.what());
    }
  }

  void pause(int attempt, std::chrono::nanoseconds limit) override {
    if (attempt > patience) idle_polls_ = 63;  // after giving the core away, look at the clock
    steady_clock::time_point first = steady_clock::time_point::max();
    for (const auto& c : flying_.calls) first = std::min(first, c->until().at());
    for (const auto& l : flying_.letters) first = std::min(first, l->until().at());
    if (first != steady_clock::time_point::max()) {
      limit = std::clamp<std::chrono::nanoseconds>(first - steady_clock::now(),
                                                   std::chrono::nanoseconds(0), limit);
    }
    group_.lines->pause(attempt, limit);
  }

  [[nodiscard]] bool busy() const noexcept override {
    return !flying_.calls.empty() || !flying_.letters.empty();
  }

  std::shared_ptr<transport> subgroup(std::span<const int> ranks, std::uint64_t key,
                                      const std::string& group_name) override {
    const auto position = std::find(ranks.begin(), ranks.end(), group_.rank) - ranks.begin();
    std::vector<int> link_ranks;
    for (const int r : ranks) link_ranks.push_back(group_.of(r).link_rank);
    const std::uint64_t parts[] = {group_.id, key, static_cast<std::uint64_t>(link_ranks.front())};
    const int own = static_cast<int>(position);
    if (founder_ != nullptr) {
      if (auto t = founder_->found(*this, link_ranks, own, mix(parts), group_name)) return t;
    }
    return std::make_shared<frames_transport>(group_.lines, mix(parts), own, link_ranks, group_name,
                                              group_.sizes, founder_);
  }

  void revoke(const std::string& cause) noexcept override {
    try {
      revocation r;
      r.text = cause;
      r.sequence = no_sequence;
      r.ranks = {group_.rank};
      claim(group_, std::move(r));
    } catch (...) {  // out of memory: the others will find out by their time limits
    }
  }

  void end(const revocation& why, int by) noexcept override {
    try {
      group_.revoke(why, by);
    } catch (...) {  // out of memory: time limits end what is in flight
    }
  }
  void lose(int rank) noexcept override { group_.of(rank).left = true; }
  void look_at_clock() noexcept override { idle_polls_ = 63; }

  void abandon(flight& f) noexcept override {
    for (auto it = flying_.letters.begin(); it != flying_.letters.end(); ++it) {
      if (it->get() == &f) {
        (*it)->withdraw();
        if (advancing_) (*it)->fail(nullptr);  // by a decoder: the list is being walked
        else flying_.letters.erase(it);
        return;
      }
    }
    revoke(group_.name + ": rank " + std::to_string(group_.rank) +
           " dropped a call before it had completed");
    if (!advancing_) {
      fail_all();
      return;
    }
    for (const auto& c : flying_.calls) {
      if (c.get() == &f) c->fail(nullptr);
    }
  }

  void close() noexcept override { closed_ = true; }

  void check() override {
    group_.lines->require_thread();
    group_.lines->progress();
    inbox_.hear();
    if (!group_.revoked()) return;
    const auto& [why, by] = group_.cause();
    std::rethrow_exception(later_error(why, group_.name, by));
  }

  [[nodiscard]] std::vector<rank_state> health() const override {
    std::vector<rank_state> states;
    for (int r = 0; r < group_.size; ++r) {
      const peer& p = group_.of(r);
      const bool is_closed = r == group_.rank ? closed_ : p.closed;
      states.push_back(is_closed ? rank_state::closed
                       : p.left  ? rank_state::left
                                 : rank_state::alive);
    }
    return states;
  }

  [[nodiscard]] transport_counters counters() const noexcept override { return group_.counters; }
  void add_waiting(std::chrono::nanoseconds time) noexcept override {
    group_.counters.waiting += time;
  }

  /// One number out of several: group ids that do not meet.
  [[nodiscard]] static std::uint64_t mix(std::span<const std::uint64_t> parts) noexcept {
    std::uint64_t hash = 0x9e3779b97f4a7c15u;
    for (const std::uint64_t p : parts) {
      hash = (hash ^ p) * 0xff51afd7ed558ccdu;
      hash = (hash ^ (hash >> 32)) * 0xc4ceb9fe1a85ec53u;
      hash ^= hash >> 29;
    }
    return hash;
  }

 private:
  // User code may run below: nothing is taken out of the lists meanwhile.
  struct walk {
    explicit walk(bool& w) noexcept : walking(w) { walking = true; }
    ~walk() { walking = false; }
    walk(const walk&) = delete;
    walk& operator=(const walk&) = delete;
    bool& walking;
  };

  static constexpr int patience = 2000;  // polls before the clock is read at each of them

  void require_open(const operation& op) {
    if (closed_) {
      throw usage_error(std::string(name(op.code)) + " on " + group_.name +
                        ": the group has been closed");
    }
    check();
  }

  std::shared_ptr<call> append(const operation& op) {
    flying_.calls.push_back(std::make_shared<call>(group_, flying_.next_sequence, op, *this));
    group_.past[flying_.next_sequence % window].record = flying_.calls.back()->record();
    ++flying_.next_sequence;
    return flying_.calls.back();
  }

  // Calls show themselves as soon as all ranks have room, go on in order, and leave when complete.
  bool advance_all() {
    const walk here(advancing_);
    bool moved = false;
    bool turn = true;
    for (const auto& c : flying_.calls) {
      if (!c->publish()) break;
      moved = c->advance(turn) || moved;
      turn = c->released();
    }
    for (const auto& l : flying_.letters) l->match();
    for (const auto& l : flying_.letters) {
      l->advance();
      moved = moved || l->done;
    }
    std::erase_if(flying_.calls, [](const auto& c) { return c->done; });
    std::erase_if(flying_.letters, [](const auto& l) { return l->done; });
    return moved;
  }

  // Nothing moves: has a deadline passed, or has somebody gone for whom we wait?
  void give_up_if_due() {
    give_calls_up_if_due();
    for (const auto& l : flying_.letters) l->give_up_if_due();
    std::erase_if(flying_.letters, [](const auto& l) { return l->done; });
  }

  void give_calls_up_if_due() {
    for (const auto& c : flying_.calls) {
      if (auto cause = c->hopeless()) {
        claim(group_, std::move(*cause));
        throw group_revoked{};
      }
    }
  }

  // The group is revoked: every call in flight gets its error.
  void fail_all() noexcept {
    const auto& [why, by] = group_.cause();
    for (const auto& c : flying_.calls) {
      if (!c->settle()) c->fail(error_of_call(why, group_.name, by, c->sequence(), group_.rank));
    }
    for (const auto& l : flying_.letters) l->fail(later_error(why, group_.name, by));
    flying_.calls.clear();
    flying_.letters.clear();
    flying_.box.clear();
    group_.drop_arrived();
  }

  // A decoder waits for more of its message.
  void wait_once(int attempt) override {
    group_.lines->progress();
    bool moved = inbox_.hear();
    if (group_.revoked()) throw group_revoked{};
    moved = detail::progress_others(this).moved || moved;
    if (attempt % 64 == 63 || attempt > patience) give_calls_up_if_due();
    if (moved) return;
    pause(attempt, std::chrono::milliseconds(1));
  }

  group group_;
  std::shared_ptr<founder> founder_;
  in_flight flying_;
  inbox inbox_{group_, flying_};
  bool closed_ = false;
  bool advancing_ = false;  // the lists are being walked
  std::uint64_t next_letter_ = 0;
  unsigned idle_polls_ = 0;
};

}  // namespace rankcast::inline v0::frames
