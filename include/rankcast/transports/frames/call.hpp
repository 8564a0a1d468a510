/// One collective call of one rank, from its first frame to completion, as a state machine that
/// never waits (but for a decoder that reads ahead of its sender): publish, agree, move,
/// (all_reduce: exchange slices,) tell, release, drain.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/partition.hpp"
#include "rankcast/transports/frames/group.hpp"
#include "rankcast/transports/frames/intake.hpp"

namespace rankcast::inline v0::frames {

class call final : public flight {
 public:
  call(group& g, std::uint64_t sequence, const operation& op, waiter& w)
      : group_(g),
        sequence_(sequence),
        op_(op),
        waiter_(w),
        begin_(op.begun),
        counts_(op.counts.begin(), op.counts.end()),
        receive_counts_(op.receive_counts.begin(), op.receive_counts.end()) {
    op_.counts = counts_;  // the caller's list need not live as long as the call
    op_.receive_counts = receive_counts_;
    if (op_.send.given) op_.type = op_.send.type;
    else if (op_.receive.given) op_.type = op_.receive.type;
    mine_.record = record_of(op_, group_.size);
    mine_.counts = counts_;
  }

  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
  [[nodiscard]] const deadline& until() const noexcept { return op_.until; }
  [[nodiscard]] const call_record& record() const noexcept { return mine_.record; }
  [[nodiscard]] bool released() const noexcept { return phase_ >= phase::drain; }

  /// Takes part only to tell the others that this rank cannot.
  void refuse(std::string text) { mine_.refusal = std::move(text); }

  /// Shows the call to the peers, once all have room for it. False when they have not yet.
  bool publish();

  /// Goes on as far as it can. `turn`: the calls before this one have been released.
  bool advance(bool turn);

  /// The receiver of a stream has room up to here.
  void granted(int by, const frame_header& h) {
    if (done) return;
    for (outgoing& s : out_) {
      if (s.to != by || s.phase != h.phase) continue;
      if ((h.flags & flag::skip) != 0) s.skipped = true;
      s.granted = std::min(std::max(s.granted, h.position), s.bytes.total());
      pump(s);
    }
    drop_chunks();
  }

  /// True when this call passes on what comes from rank `from`.
  [[nodiscard]] bool relays(int from) const noexcept {
    return !done && !out_.empty() && relays() && from == feeder();
  }
  /// A chunk has come that other ranks are to have as well.
  void pass_on(std::uint64_t position, const payload& data) {
    chunks_.add(position, data);
    for (outgoing& s : out_) pump(s);
    drop_chunks();
  }

  /// A peer waits for all, and this rank would not have told it of its call otherwise.
  void asked_by(int peer) {
    if (phase_ == phase::queued || tells_all() || feeds(peer)) return;
    send_head(peer, kind::call, 0, supply(), true, [&](frame& f) { write_own_offer(f); });
  }

  /// A peer takes no part: what is on its way to it need not go on.
  void refused_by(int peer) noexcept {
    for (outgoing& s : out_) s.skipped = s.skipped || s.to == peer;
  }

  /// The group is revoked. True when this call was over by then: all ranks have finished it.
  bool settle() {
    if (phase_ == phase::verdict && all_consumed()) hear_verdict();
    else if (phase_ != phase::drain || !drained()) return false;
    complete();
    return true;
  }

  void fail(std::exception_ptr why) noexcept {
    if (failure == nullptr) failure = std::move(why);
    complete();
  }

  /// Why this call can never complete, if so: its deadline has passed, or a rank it waits for has
  /// gone. A rank that has waited for a while shows its call to all, so that ranks which wait for
  /// each other in different calls find out.
  [[nodiscard]] std::optional<revocation> hopeless();

  [[nodiscard]] std::string text() const { return call_text(group_.name, op_, sequence_); }

 private:
  enum class phase : std::uint8_t { queued, agree, move, slices, verdict, drain, complete };

  [[nodiscard]] bool everyone() const noexcept {
    return op_.completion == completion::everyone || op_.code == opcode::close;
  }
  [[nodiscard]] bool tells_all() const noexcept { return everyone() || !mine_.refusal.empty(); }
  [[nodiscard]] bool at_root() const noexcept { return group_.rank == op_.root; }
  [[nodiscard]] bool reads_from(int r) const noexcept {
    return r != group_.rank && group_.feeds(mine_.record, r, group_.rank);
  }
  [[nodiscard]] bool feeds(int r) const noexcept {
    return r != group_.rank && group_.feeds(mine_.record, group_.rank, r);
  }
  // This rank passes on what it gets.
  [[nodiscard]] bool relays() const noexcept {
    return !at_root() && passed_on(mine_.record, group_.where);
  }
  // The rank that sends this one the root's data.
  [[nodiscard]] int feeder() const noexcept {
    return relays() ? feeder_of(group_.where, group_.rank, op_.root, group_.sizes.flat_places)
                    : op_.root;
  }
  [[nodiscard]] peer_call& theirs(int r) { return group_.call_of(r, sequence_); }
  [[nodiscard]] bool arrived(int r) { return theirs(r).arrived; }

  // All ranks have released the call a window before, this one too: what it knows of its peers'
  // calls stands in that call's place until then.
  [[nodiscard]] bool all_have_room() const noexcept {
    return sequence_ < window ||
           (group_.released + window > sequence_ &&
            std::all_of(group_.peers.begin(), group_.peers.end(), [&](const peer& p) {
              return &p == &group_.of(group_.rank) || p.released + window > sequence_;
            }));
  }
  [[nodiscard]] bool needed_arrived() {
    for (int r = 0; r < group_.size; ++r) {
      if (r != group_.rank && (everyone() || reads_from(r)) && !arrived(r)) return false;
    }
    return true;
  }
  [[nodiscard]] bool all_consumed() {
    for (int r = 0; r < group_.size; ++r) {
      if (r != group_.rank && !theirs(r).consumed) return false;
    }
    return true;
  }
  // The caller's memory is read no more, and large frames have left.
  [[nodiscard]] bool drained() const noexcept {
    return unsent_->load(std::memory_order_relaxed) == 0 &&
           std::all_of(out_.begin(), out_.end(), [](const outgoing& s) { return s.finished(); });
  }

  // What `to` is to get of this rank's data (phase 0).
  [[nodiscard]] supply share_for(int to) const;
  void write_own_offer(frame& f) const {
    write_offer(f, mine_.record, mine_.counts, mine_.refusal);
  }
  void encode();
  // A frame that announces a stream, and brings all of it when it is small.
  template <class Body>
  void send_head(int to, kind what, std::uint8_t stream, supply bytes, bool whole, Body&& body,
                 int tag = -1);
  [[nodiscard]] bool small(const supply& bytes) const noexcept {
    return bytes.total() <= group_.sizes.eager_bytes;
  }
  [[nodiscard]] verdict compare();
  void agree();
  void move_own();
  // What this rank takes from the others. True when all of it is done, or given up for `failure`.
  bool move_data();
  bool move_messages();
  bool take(int from, std::uint8_t stream, std::int64_t to_first, std::int64_t count);
  bool fold(std::int64_t to_first, std::int64_t first, std::int64_t count);
  void relay();
  bool pass_rest_on();
  void relay_failure(int refuser);
  void announce_slice();
  bool collect_slices();
  [[nodiscard]] bool slices_follow() const noexcept {
    return op_.code == opcode::all_reduce && op_.send.bytes() > group_.sizes.eager_bytes;
  }

  void pump(outgoing& s) {
    const bool shared = op_.code == opcode::broadcast;
    const bool near = shared && std::any_of(out_.begin(), out_.end(), [&](const outgoing& o) {
                        return group_.is_near(o.to);
                      });
    group_.pump(s, sequence_, unsent_, shared ? &chunks_ : nullptr, near);
  }
  // Who is too far behind for the last chunks gets its own from the caller's buffer. There is none
  // for a message that is passed on: its chunks stay until all have them, and the sender goes on as
  // those do who have come.
  void drop_chunks() {
    std::uint64_t needed = ~std::uint64_t{0};
    std::uint64_t passed_on = needed;
    for (const outgoing& s : out_) {
      if (s.finished()) continue;
      needed = std::min(needed, s.sent);
      if (s.granted != 0) passed_on = std::min(passed_on, s.sent);
    }
    chunks_.drop_before(needed);
    if (!relays() || !is_message(op_)) {
      chunks_.keep_last(group_.sizes.chunks_ahead);
    } else if (phase_ == phase::move) {
      incoming& from = theirs(feeder()).streams[0];
      from.note_passed_on(passed_on);
      group_.grant(feeder(), sequence_, 0, from);
    }
  }
  // More of a message would come if another rank took what has come.
  [[nodiscard]] bool held_back() {
    if (!relays() || !is_message(op_)) return false;
    const incoming& from = theirs(feeder()).streams[0];
    return from.arrived() == from.granted() && from.granted() < from.total() &&
           from.settled() < from.consumed();
  }
  [[nodiscard]] bool sends_to(int r) const noexcept {
    return std::any_of(out_.begin(), out_.end(),
                       [&](const outgoing& s) { return s.to == r && !s.finished(); });
  }

  void decline_all() {
    for (int r = 0; r < group_.size; ++r) {
      if (r == group_.rank) continue;
      group_.decline(r, sequence_, 0, theirs(r).streams[0]);
      group_.decline(r, sequence_, 1, theirs(r).streams[1]);
    }
  }

  // This rank's part is over. Those who wait for all are told, and of whom all are waited for.
  void consume() {
    decline_all();
    if (own_failure_) {
      note_ = text() + ": rank " + std::to_string(group_.rank) + " failed: " + failure_text();
    }
    for (int r = 0; r < group_.size; ++r) {
      if (r != group_.rank && (everyone() || theirs(r).wants_all)) {
        group_.post_done(r, sequence_, note_);
      }
    }
    if (everyone()) phase_ = phase::verdict;
    else release();
  }

  void hear_verdict() {
    for (int r = 0; r < group_.size && failure == nullptr; ++r) {
      if (r == group_.rank) continue;
      const std::string& note = theirs(r).failure;
      if (!note.empty()) failure = std::make_exception_ptr(remote_error(note, r));
    }
  }

  void release() {
    for (int r = 0; r < group_.size; ++r) theirs(r).clear(*group_.lines);
    group_.past[sequence_ % window] = {mine_.record, tells_all(), std::move(note_)};
    group_.released = sequence_ + 1;
    for (int r = 0; r < group_.size; ++r) {
      if (r != group_.rank && group_.released - group_.of(r).told >= window / 4) {
        group_.post(r, group_.make(kind::tick, sequence_));
      }
    }
    phase_ = phase::drain;
  }

  void complete() noexcept {
    if (!messages_.empty()) messages_.swap(group_.spare_messages);
    chunks_.clear();  // the caller may keep this call
    phase_ = phase::complete;
    done = true;
  }

  void fail_own(std::exception_ptr why) noexcept {
    if (failure == nullptr) failure = std::move(why);
    own_failure_ = true;
  }

  [[nodiscard]] std::string failure_text() const {
    try {
      std::rethrow_exception(failure);
    } catch (...) {
      return current_exception_text();
    }
  }

  // The ranks this call waits for now.
  [[nodiscard]] std::vector<int> awaited();

  group& group_;
  std::uint64_t sequence_;
  operation op_;
  waiter& waiter_;
  steady_clock::time_point begin_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> receive_counts_;
  call_offer mine_;
  std::vector<message> messages_;  // of a source
  std::vector<std::byte> stage_;   // all_to_all in place: the data as they were
  std::vector<outgoing> out_;
  chunks chunks_;  // of a broadcast
  unsent_count unsent_ = std::make_shared<std::atomic<int>>(0);
  std::int64_t folded_ = 0;  // elements of this rank's slice
  int next_source_ = 0;      // of messages
  intake intake_;
  bool shown_ = false;        // to all, for comparison
  bool own_failure_ = false;  // `failure` happened here
  std::string note_;          // of it, for the others
  phase phase_ = phase::queued;
};

}  // namespace rankcast::inline v0::frames

#include "rankcast/transports/frames/phases.hpp"
#include "rankcast/transports/frames/schedule.hpp"
