/// The transport between ranks that send each other frames: it hands every frame that arrives to
/// the call it belongs to, and lets the calls go on.
#pragma once

#include <algorithm>
#include <array>
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
#include "rankcast/transports/frames/letter.hpp"

namespace rankcast::inline v0::frames {

class frames_transport final : public transport, public waiter {
 public:
  /// `link_ranks`: where the ranks of the group are on the link. `id`: the same on all of them, and
  /// of no other group.
  frames_transport(std::shared_ptr<link> l, std::uint64_t id, int rank,
                   const std::vector<int>& link_ranks, const std::string& group_name, settings s)
      : group_(std::move(l), id, rank, link_ranks, group_name, s) {}

  ~frames_transport() override {
    try {
      group_.post_all(
          group_.make(kind::leave, next_sequence_, 0, closed_ ? flag::closed : flag::none));
    } catch (...) {  // who cannot be told will find out by its own time limit
    }
    group_.lines->close(group_.id);
  }
  frames_transport(const frames_transport&) = delete;
  frames_transport& operator=(const frames_transport&) = delete;

  [[nodiscard]] int rank() const noexcept override { return group_.rank; }
  [[nodiscard]] int size() const noexcept override { return group_.size; }

  std::shared_ptr<flight> start(const operation& op) override {
    require_open(op);
    ++group_.counters.operations;
    if (is_point_to_point(op.code)) {
      letters_.push_back(std::make_shared<letter>(group_, box_, op, next_letter_++, *this));
      auto f = letters_.back();
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
    group_.lines->progress();
    bool moved = hear();
    if (calls_.empty() && letters_.empty()) return moved;
    if (group_.revoked()) {
      fail_all();
      return true;
    }
    try {
      moved = advance_all() || moved;
      if (!moved && ++idle_polls_ % 64 == 0) give_up_if_due();
    } catch (const group_revoked&) {
      fail_all();
      return true;
    }
    if (moved) idle_polls_ = 0;
    return moved;
  }

  void pause(int attempt, std::chrono::nanoseconds limit) override {
    if (attempt > patience) idle_polls_ = 63;  // after giving the core away, look at the clock
    steady_clock::time_point first = steady_clock::time_point::max();
    for (const auto& c : calls_) first = std::min(first, c->until().at());
    for (const auto& l : letters_) first = std::min(first, l->until().at());
    if (first != steady_clock::time_point::max()) {
      limit = std::clamp<std::chrono::nanoseconds>(first - steady_clock::now(),
                                                   std::chrono::nanoseconds(0), limit);
    }
    group_.lines->pause(attempt, limit);
  }

  [[nodiscard]] bool busy() const noexcept override { return !calls_.empty() || !letters_.empty(); }

  std::shared_ptr<transport> subgroup(std::span<const int> ranks, std::uint64_t key,
                                      const std::string& group_name) override {
    const auto position = std::find(ranks.begin(), ranks.end(), group_.rank) - ranks.begin();
    std::vector<int> link_ranks;
    for (const int r : ranks) link_ranks.push_back(group_.of(r).link_rank);
    const std::uint64_t parts[] = {group_.id, key, static_cast<std::uint64_t>(link_ranks.front())};
    return std::make_shared<frames_transport>(group_.lines, mix(parts), static_cast<int>(position),
                                              link_ranks, group_name, group_.sizes);
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

  void abandon(flight& f) noexcept override {
    for (auto it = letters_.begin(); it != letters_.end(); ++it) {
      if (it->get() == &f) {
        (*it)->withdraw();
        letters_.erase(it);
        return;
      }
    }
    revoke(group_.name + ": rank " + std::to_string(group_.rank) +
           " dropped a call before it had completed");
    fail_all();
  }

  void close() noexcept override { closed_ = true; }

  void check() override {
    group_.lines->require_thread();
    group_.lines->progress();
    hear();
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
  static constexpr std::uint64_t no_sequence = ~std::uint64_t{0};
  static constexpr int patience = 2000;  // polls before the clock is read at each of them

  void require_open(const operation& op) {
    if (closed_) {
      throw usage_error(std::string(name(op.code)) + " on " + group_.name +
                        ": the group has been closed");
    }
    check();
  }

  std::shared_ptr<call> append(const operation& op) {
    calls_.push_back(std::make_shared<call>(group_, next_sequence_, op, *this));
    records_[next_sequence_ % window] = calls_.back()->record();
    ++next_sequence_;
    return calls_.back();
  }

  // Calls show themselves as soon as all peers have room, go on in order, and leave when complete.
  bool advance_all() {
    bool moved = false;
    bool turn = true;
    for (const auto& c : calls_) {
      if (!c->publish()) break;
      moved = c->advance(turn) || moved;
      turn = c->released();
    }
    for (const auto& l : letters_) {
      l->advance();
      moved = moved || l->done;
    }
    std::erase_if(calls_, [](const auto& c) { return c->done; });
    std::erase_if(letters_, [](const auto& l) { return l->done; });
    return moved;
  }

  // Nothing moves: has a deadline passed, or has somebody gone for whom we wait?
  void give_up_if_due() {
    give_calls_up_if_due();
    for (const auto& l : letters_) l->give_up_if_due();
    std::erase_if(letters_, [](const auto& l) { return l->done; });
  }

  void give_calls_up_if_due() {
    for (const auto& c : calls_) {
      if (auto cause = c->hopeless()) {
        claim(group_, std::move(*cause));
        throw group_revoked{};
      }
    }
  }

  // The group is revoked: every call in flight gets its error.
  void fail_all() noexcept {
    const auto& [why, by] = group_.cause();
    for (const auto& c : calls_) {
      if (!c->settle()) c->fail(error_of_call(why, group_.name, by, c->sequence(), group_.rank));
    }
    for (const auto& l : letters_) l->fail(later_error(why, group_.name, by));
    calls_.clear();
    letters_.clear();
  }

  // A decoder waits for more of its message.
  void wait_once(int attempt) override {
    group_.lines->progress();
    bool moved = hear();
    if (group_.revoked()) throw group_revoked{};
    moved = detail::progress_others(this).moved || moved;
    if (moved) return;
    if (attempt % 64 == 63 || attempt > patience) give_calls_up_if_due();
    pause(attempt, std::chrono::milliseconds(1));
  }

  // Takes in what has arrived. True if anything had.
  bool hear() {
    arrived_.clear();
    group_.lines->take(group_.id, arrived_);
    for (frame& f : arrived_) {
      const int source = header_of(f).source;
      try {
        hear(std::move(f));
      } catch (const error& e) {
        revocation r;
        r.sequence = no_sequence;
        r.text = group_.name + ": rank " + std::to_string(group_.rank) +
                 " cannot read a frame of rank " + std::to_string(source) + ": " + e.what();
        claim(group_, std::move(r));
      }
    }
    return !arrived_.empty();
  }

  void hear(frame f) {
    const frame_header h = header_of(f);
    if (h.source < 0 || h.source >= group_.size) throw decode_error("its rank is unknown");
    peer& from = group_.of(h.source);
    from.released = std::max(from.released, h.released);
    detail::byte_reader in(body_of(f), "frame");
    switch (h.what) {
      case kind::call: hear_call(h, in, std::move(f)); return;
      case kind::slice: {
        if (h.sequence < group_.released) break;
        peer_call& c = group_.call_of(h.source, h.sequence);
        c.slice_failure = in.get_text();
        begin_stream(c.streams[1], h, in, std::move(f));
        return;
      }
      case kind::chunk: hear_chunk(h, std::move(f)); return;
      case kind::grant:
        for (const auto& c : calls_) {
          if (h.phase != letter::phase && c->sequence() == h.sequence) c->granted(h.source, h);
        }
        for (const auto& l : letters_) {
          if (h.phase == letter::phase && l->sends(h.sequence)) l->granted(h);
        }
        break;
      case kind::done:
        if (h.sequence >= group_.released) {
          peer_call& c = group_.call_of(h.source, h.sequence);
          c.failure = in.get_text();
          c.consumed = true;
        }
        break;
      case kind::tick: break;
      case kind::revoke: group_.revoke(read_revocation(in), h.source); break;
      case kind::leave: ((h.flags & flag::closed) != 0 ? from.closed : from.left) = true; break;
      case kind::letter: {
        arrived_letter& l = box_[{h.source, h.sequence}];
        l.tag = h.tag;
        l.whole = (h.flags & flag::complete) != 0;
        read_offer(in, l.offer);
        begin_stream(l.stream, h, in, std::move(f));
        return;
      }
      case kind::answer:
        for (const auto& l : letters_) {
          if (l->sends(h.sequence)) l->answered(h, in.get_text());
        }
        break;
      case kind::withdraw:
        if (auto it = box_.find({h.source, h.sequence}); it != box_.end()) {
          it->second.withdrawn = true;
          if (!it->second.taken) box_.erase(it);
        }
        break;
    }
    group_.lines->recycle(std::move(f));
  }

  void hear_call(const frame_header& h, detail::byte_reader& in, frame f) {
    if (h.sequence < group_.released) {
      arrived_offer late;
      read_offer(in, late);
      compare_late(h, late.record);
      group_.lines->recycle(std::move(f));
      return;
    }
    if (h.sequence >= group_.released + window) throw decode_error("it is ahead of the window");
    peer_call& c = group_.call_of(h.source, h.sequence);
    const bool notice = (h.flags & flag::notice) != 0;
    if (notice && c.known) {
      group_.lines->recycle(std::move(f));
      return;
    }
    read_offer(in, c.offer);
    c.known = true;
    peer& from = group_.of(h.source);
    from.last_file = c.offer.file;
    from.last = {true,
                 h.sequence,
                 c.offer.record.code,
                 from.last_file.c_str(),
                 c.offer.record.where.line,
                 steady_clock::now()};
    if (notice) {
      group_.lines->recycle(std::move(f));
      return;
    }
    c.arrived = true;
    if (!c.offer.refusal.empty()) {
      c.consumed = true;
      for (const auto& own : calls_) {
        if (own->sequence() == h.sequence) own->refused_by(h.source);
      }
    }
    begin_stream(c.streams[0], h, in, std::move(f));
  }

  // A peer makes another call than this rank made and left: found late, but found.
  void compare_late(const frame_header& h, const call_record& theirs) {
    if (h.sequence + window < next_sequence_) return;
    std::vector<const call_record*> records(static_cast<std::size_t>(group_.size), nullptr);
    records[static_cast<std::size_t>(h.source)] = &theirs;
    records[static_cast<std::size_t>(group_.rank)] = &records_[h.sequence % window];
    if (theirs.code == records_[h.sequence % window].code) return;
    if (const auto d = compare_calls(records)) {
      operation op;
      op.code = theirs.code;
      claim(group_, mismatch(group_.name, op, h.sequence, *d));
    }
  }

  // The stream that a head frame announces, and, when it is small, brings.
  void begin_stream(incoming& s, const frame_header& h, const detail::byte_reader& in, frame f) {
    s.announce(h.position);
    if ((h.flags & flag::complete) == 0) {
      group_.lines->recycle(std::move(f));
      return;
    }
    if (in.rest().size() < h.position) throw decode_error("its data are cut off");
    if (h.position == 0) {
      group_.lines->recycle(std::move(f));
      return;
    }
    const std::size_t offset = f.size() - static_cast<std::size_t>(h.position);
    s.push_whole(std::move(f), offset);
  }

  void hear_chunk(const frame_header& h, frame f) {
    incoming* s = nullptr;
    if (h.phase == letter::phase) {
      const auto it = box_.find({h.source, h.sequence});
      if (it != box_.end()) s = &it->second.stream;
    } else if (h.sequence >= group_.released && h.phase < 2) {
      s = &group_.call_of(h.source, h.sequence).streams[h.phase];
    }
    if (s == nullptr || !s->announced()) {  // of a call that is over
      group_.lines->recycle(std::move(f));
      return;
    }
    s->push(std::move(f));
    if (s->overrun()) throw decode_error("it sends more than was asked for");
  }

  group group_;
  bool closed_ = false;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t next_letter_ = 0;
  unsigned idle_polls_ = 0;
  std::vector<std::shared_ptr<call>> calls_;      // in start order
  std::vector<std::shared_ptr<letter>> letters_;  // sends and receives, in start order
  mailbox box_;
  std::array<call_record, window> records_{};  // of this rank's last calls
  std::vector<frame> arrived_;
};

}  // namespace rankcast::inline v0::frames
