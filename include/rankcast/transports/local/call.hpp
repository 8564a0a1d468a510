/// One collective call of one rank, from publication to completion, as a state machine that never
/// waits: publish, agree, move, (all_reduce: exchange slices,) consume, release, drain.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/partition.hpp"
#include "rankcast/core/transport.hpp"
#include "rankcast/transports/local/group.hpp"
#include "rankcast/transports/local/mover.hpp"
#include "rankcast/transports/local/revoke.hpp"

namespace rankcast::inline v0::local {

class call final : public flight {
 public:
  call(group& g, int rank, std::uint64_t sequence, const operation& op,
       transport_counters& counters, std::vector<message>& spare)
      : group_(g),
        rank_(rank),
        sequence_(sequence),
        op_(op),
        counters_(counters),
        spare_(spare),
        begin_(op.begun),
        counts_(op.counts.begin(), op.counts.end()),
        receive_counts_(op.receive_counts.begin(), op.receive_counts.end()) {
    op_.counts = counts_;  // the caller's list need not live as long as the call
    op_.receive_counts = receive_counts_;
    if (op_.send.given) op_.type = op_.send.type;
    else if (op_.receive.given) op_.type = op_.receive.type;
  }

  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
  [[nodiscard]] const deadline& until() const noexcept { return op_.until; }
  [[nodiscard]] bool released() const noexcept { return phase_ >= phase::drain; }

  /// Takes part only to tell the others that this rank cannot.
  void refuse(std::string text) { refusal_ = std::move(text); }

  /// Shows the call to the peers, once its slot is free. False when it is not yet.
  bool publish() {
    if (phase_ != phase::queued) return true;
    if (!slot_free()) return false;
    publication& mine = group_.slot(rank_, sequence_);
    mine.record = record_of(op_, group_.size);
    mine.counts = counts_;
    mine.refusal = refusal_;
    mine.slice_failure.clear();
    mine.failure.clear();
    mine.messages.clear();
    mine.data = op_.send.address;
    mine.data_layout = op_.send.elements_layout;
    mine.result = op_.receive.address;
    mine.result_layout = op_.receive.elements_layout;
    if (refusal_.empty()) offer(mine);
    group_.of(rank_).published.store(sequence_ + 1, std::memory_order_seq_cst);
    group_.ring_others(rank_);
    phase_ = phase::agree;
    return true;
  }

  /// Goes on as far as it can. `turn`: the calls before this one have been released.
  bool advance(bool turn) {
    bool moved = false;
    if (phase_ == phase::agree && turn && !refusal_.empty()) {  // the others do without us
      reach(stage::released);
      phase_ = phase::drain;
    }
    if (phase_ == phase::agree && turn && needed_arrived()) {
      agree();
      move_data();
      moved = true;
    }
    if (phase_ == phase::slices && all_at(stage::slice_ready)) {
      collect_slices();
      consume();
      moved = true;
    }
    if (phase_ == phase::verdict && all_at(stage::consumed)) {
      hear_verdict();
      release();
      moved = true;
    }
    if (phase_ == phase::drain && readers_done()) {
      complete();
      moved = true;
    }
    return moved;
  }

  /// The group is revoked. True when this call was over by then: all ranks have finished it.
  bool settle() {
    if (phase_ == phase::verdict && all_at(stage::consumed)) hear_verdict();
    else if (phase_ != phase::drain || !readers_done()) return false;
    complete();
    return true;
  }

  /// Why this call can never complete, if so: its deadline has passed, or a rank it waits for has
  /// gone.
  [[nodiscard]] std::optional<revocation> hopeless() const {
    const std::vector<int> missing = awaited();
    const auto gone = std::find_if(missing.begin(), missing.end(), [&](int r) {
      const member& m = group_.of(r);
      return m.left.load(std::memory_order_seq_cst) || m.closed.load(std::memory_order_seq_cst);
    });
    const bool expired = op_.until.expired();
    if (gone == missing.end() && !expired) return std::nullopt;
    // Who left may have published before: look again, now that it cannot change any more.
    const std::vector<int> still = awaited();
    if (still != missing) return std::nullopt;
    revocation r;
    r.sequence = sequence_;
    r.waited = steady_clock::now() - begin_;
    const std::string head =
        call_text(group_.name, op_, sequence_) + ", rank " + std::to_string(rank_);
    if (gone != missing.end()) {
      r.why = revocation::kind::peer_lost;
      r.ranks = {*gone};
      r.text = head + ": rank " + std::to_string(*gone) + " left without taking part; " +
               last_call_text(group_, *gone);
      return r;
    }
    r.why = revocation::kind::timeout;
    r.ranks = missing;
    r.text = head + ": timed out after " + seconds_text(r.waited);
    if (missing.empty()) r.text += ", waiting for earlier calls of this rank";
    for (const int m : missing) {
      const bool arrived = group_.of(m).published.load() > sequence_;
      r.text += "; rank " + std::to_string(m) +
                (arrived ? " has arrived but not finished" : " has not arrived") + ", " +
                last_call_text(group_, m);
    }
    return r;
  }

  void fail(std::exception_ptr why) noexcept {
    if (failure == nullptr) failure = std::move(why);
    phase_ = phase::complete;
    done = true;
  }

 private:
  enum class phase : std::uint8_t { queued, agree, slices, verdict, drain, complete };

  [[nodiscard]] bool at_root() const noexcept { return rank_ == op_.root; }
  [[nodiscard]] bool everyone() const noexcept {
    return op_.completion == completion::everyone || op_.code == opcode::close;
  }
  [[nodiscard]] std::uint64_t ticks_of(int r) const noexcept {
    return group_.of(r).ticks.load(std::memory_order_seq_cst);
  }
  [[nodiscard]] bool arrived(int r) const noexcept {
    return group_.of(r).published.load(std::memory_order_seq_cst) > sequence_;
  }

  void reach(stage s) {
    group_.of(rank_).ticks.store(tick(sequence_, s), std::memory_order_seq_cst);
    group_.ring_others(rank_);
  }

  [[nodiscard]] bool slot_free() const noexcept {
    if (sequence_ < window) return true;
    for (int r = 0; r < group_.size; ++r) {
      if (ticks_of(r) < tick(sequence_ - window, stage::released)) return false;
    }
    return true;
  }

  [[nodiscard]] bool reads_from(int r) const noexcept { return needs(op_, rank_, r); }
  [[nodiscard]] bool read_by(int r) const noexcept {
    return moves_data(op_.code) && needs(op_, r, rank_);
  }

  // Small data is copied into the slot, and the caller's buffer is free at once.
  void offer(publication& mine) {
    if (op_.source != nullptr) {
      offer_message(mine);
      return;
    }
    if (!op_.send.given) return;
    const std::size_t bytes = op_.send.bytes();
    counters_.bytes_sent += bytes;
    small_ = bytes <= group_.sizes.eager_bytes;
    const bool in_place_exchange =
        op_.code == opcode::all_to_all && op_.send.address == op_.receive.address;
    if (small_ || in_place_exchange) {
      mine.stage.resize(bytes);
      mine.data_layout = layout::contiguous({op_.send.elements()});
      copy_elements(mine.stage.data(), mine.data_layout, 0, op_.send.address,
                    op_.send.elements_layout, 0, op_.send.elements(), size_of(op_.type));
      mine.data = mine.stage.data();
    } else {
      borrowed_ = true;
    }
  }

  // One message for all readers, or, of a scatter, one for each. A large one is read where it lies.
  void offer_message(publication& mine) {
    const bool one_each = op_.code == opcode::scatter;
    mine.messages.swap(spare_);
    mine.messages.resize(one_each ? static_cast<std::size_t>(group_.size) : 1);
    std::size_t bytes = 0;
    std::size_t segment_bytes = 0;
    try {
      for (std::size_t i = 0; i < mine.messages.size(); ++i) {
        message& m = mine.messages[i];
        m.clear();
        op_.source->encode(one_each ? static_cast<int>(i) : -1, m);
        bytes += m.bytes();
        segment_bytes += m.bytes() - m.header.size();
      }
    } catch (...) {
      failure = std::current_exception();
      mine.refusal = call_text(group_.name, op_, sequence_) + ": rank " + std::to_string(rank_) +
                     " could not encode: " + failure_text();
      refusal_ = mine.refusal;
      return;
    }
    counters_.bytes_sent += bytes;
    if (bytes > group_.sizes.eager_bytes) {
      borrowed_ = true;
      return;
    }
    mine.stage.resize(segment_bytes);
    std::byte* at = mine.stage.data();
    for (message& m : mine.messages) {
      for (auto& s : m.segments) {
        at = std::copy(s.begin(), s.end(), at);
        s = {at - s.size(), s.size()};
      }
    }
  }

  [[nodiscard]] bool needed_arrived() const noexcept {
    for (int r = 0; r < group_.size; ++r) {
      if ((everyone() || reads_from(r)) && !arrived(r)) return false;
    }
    return true;
  }

  // Everything that can be compared is, before anything is written.
  void agree() {
    std::vector<const call_offer*> offers(static_cast<std::size_t>(group_.size), nullptr);
    for (int r = 0; r < group_.size; ++r) {
      if (arrived(r)) offers[static_cast<std::size_t>(r)] = &group_.slot(r, sequence_);
    }
    verdict v = examine(op_, rank_, offers, [&](int r) { return everyone() || reads_from(r); });
    if (v.difference) {
      claim(group_, rank_, mismatch(group_.name, op_, sequence_, *v.difference));
      throw group_revoked{};
    }
    if (v.refuser >= 0) {
      failure = std::make_exception_ptr(
          remote_error(group_.slot(v.refuser, sequence_).refusal, v.refuser));
    }
  }

  void move_data() {
    if (failure != nullptr) {  // somebody refused; whoever needs that rank's data does without
      consume();
      return;
    }
    bool slices_follow = false;
    try {
      slices_follow = move_own_part();
    } catch (const group_revoked&) {
      throw;
    } catch (...) {
      failure = std::current_exception();
      tell_failure();
    }
    if (!slices_follow) {
      consume();
      return;
    }
    if (failure != nullptr) group_.slot(rank_, sequence_).slice_failure = failure_text();
    reach(stage::slice_ready);
    phase_ = phase::slices;
  }

  // True when slices of the result have to be collected from the others afterwards.
  bool move_own_part();
  void collect_slices();
  void receive_messages(mover& m);

  void complete() {
    // What a large message took is for the next one, not for this slot.
    if (op_.source != nullptr && borrowed_) spare_.swap(group_.slot(rank_, sequence_).messages);
    phase_ = phase::complete;
    done = true;
  }

  [[nodiscard]] std::string failure_text() const {
    try {
      std::rethrow_exception(failure);
    } catch (...) {
      return current_exception_text();
    }
  }

  void tell_failure() {
    if (failure == nullptr) return;
    group_.slot(rank_, sequence_).failure = call_text(group_.name, op_, sequence_) + ": rank " +
                                            std::to_string(rank_) + " failed: " + failure_text();
  }

  void consume() {
    reach(stage::consumed);
    phase_ = phase::verdict;
    if (!everyone()) release();
  }

  void hear_verdict() {
    for (int r = 0; r < group_.size && failure == nullptr; ++r) {
      const std::string& theirs = group_.slot(r, sequence_).failure;
      if (!theirs.empty()) failure = std::make_exception_ptr(remote_error(theirs, r));
    }
  }

  void release() {
    reach(stage::released);
    phase_ = phase::drain;
  }

  [[nodiscard]] bool all_at(stage s) const noexcept {
    for (int r = 0; r < group_.size; ++r) {
      if (ticks_of(r) < tick(sequence_, s)) return false;
    }
    return true;
  }

  [[nodiscard]] bool readers_done() const noexcept {
    if (!borrowed_) return true;
    for (int r = 0; r < group_.size; ++r) {
      if (read_by(r) && ticks_of(r) < tick(sequence_, stage::consumed)) return false;
    }
    return true;
  }

  // The ranks this call waits for now.
  [[nodiscard]] std::vector<int> awaited() const {
    std::vector<int> ranks;
    for (int r = 0; r < group_.size; ++r) {
      if (r == rank_) continue;
      bool missing = false;
      switch (phase_) {
        case phase::queued:
          missing = sequence_ >= window && ticks_of(r) < tick(sequence_ - window, stage::released);
          break;
        case phase::agree: missing = (everyone() || reads_from(r)) && !arrived(r); break;
        case phase::slices: missing = ticks_of(r) < tick(sequence_, stage::slice_ready); break;
        case phase::verdict: missing = ticks_of(r) < tick(sequence_, stage::consumed); break;
        case phase::drain:
          missing = read_by(r) && ticks_of(r) < tick(sequence_, stage::consumed);
          break;
        case phase::complete: break;
      }
      if (missing) ranks.push_back(r);
    }
    return ranks;
  }

  group& group_;
  int rank_;
  std::uint64_t sequence_;
  operation op_;
  transport_counters& counters_;
  std::vector<message>& spare_;  // memory of earlier messages
  steady_clock::time_point begin_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> receive_counts_;
  std::string refusal_;
  phase phase_ = phase::queued;
  bool small_ = true;      // the send buffer was copied into the slot for its size
  bool borrowed_ = false;  // peers read the caller's send buffer
};

}  // namespace rankcast::inline v0::local

#include "rankcast/transports/local/schedule.hpp"
