/// How ranks agree on a call, how it goes through its phases, and how it gives up.
#pragma once

#include "rankcast/transports/local/call.hpp"

namespace rankcast::inline v0::local {

// What differs between ranks that make the same call of the same size, without counts.
inline bool call::plainly_agreed(bool sized) const noexcept {
  const slot& mine = own_slot();
  return mine.plain && all_awaited([&](int r) {
           const slot& s = theirs(r);
           return s.plain && s.fingerprint == mine.fingerprint &&
                  (!sized || s.elements == mine.elements);
         });
}

// Everything that can be compared is, before anything is written. False when a rank has come but
// not yet said all there is to say.
inline bool call::agree() {
  if (plainly_agreed(!message_) || (group_.sizes.check == checks::off && own_slot().plain &&
                                    all_awaited([&](int r) { return theirs(r).plain; }))) {
    return true;
  }
  std::vector<call_offer> known(static_cast<std::size_t>(group_.size));
  std::vector<const call_offer*> offers(known.size(), nullptr);
  for (int r = 0; r < group_.size; ++r) {
    if (!arrived(r)) continue;
    if (detail(r).sequence.load(std::memory_order_acquire) <= sequence_) return false;
    const auto i = static_cast<std::size_t>(r);
    known[i] = offer_of(group_, r, sequence_);
    offers[i] = &known[i];
  }
  verdict v = examine(*op_, rank_, offers, [&](int r) { return everyone_ || reads_from(r); });
  if (v.difference) {
    claim(group_, rank_, mismatch(group_.name, *op_, sequence_, *v.difference));
    throw group_revoked{};
  }
  if (v.refuser >= 0) {
    failure = std::make_exception_ptr(
        remote_error(known[static_cast<std::size_t>(v.refuser)].refusal, v.refuser));
  }
  return true;
}

inline bool call::advance(bool turn) {
  bool went_on = false;
  if (phase_ == phase::agree && turn && !refusal_.empty()) {  // the others do without us
    release();
  }
  if (phase_ == phase::agree && turn && needed_arrived() && agree()) {
    phase_ = phase::move;
    if (!direct() && moves_data(op_->code)) begin_streams();
    went_on = true;
  }
  if (phase_ == phase::move || phase_ == phase::slices) {
    const phase was = phase_;
    const std::uint64_t before = desk_.counters.bytes_received;
    const std::uint64_t written = desk_.streams.written();
    const bool timed = op_->begun != steady_clock::time_point{};  // of much data
    const auto begin = timed ? steady_clock::now() : steady_clock::time_point{};
    if (phase_ == phase::move) move_data();
    if (phase_ == phase::slices && collect_slices()) consume();
    const bool moved_on = phase_ != was || before != desk_.counters.bytes_received ||
                          written != desk_.streams.written();
    if (timed && moved_on) desk_.counters.moving += steady_clock::now() - begin;
    went_on = went_on || moved_on;
  }
  if (phase_ == phase::verdict && all_at(stage::consumed)) {
    hear_verdict();
    release();
    went_on = true;
  }
  if (phase_ == phase::drain && (readers_done() || (looks_in_vain() && recall()))) {
    complete();
    went_on = true;
  }
  ring_if_due();
  return went_on;
}

inline std::vector<int> call::awaited() const {
  std::vector<int> ranks;
  for (int r = 0; r < group_.size; ++r) {
    if (r == rank_) continue;
    const auto i = static_cast<std::size_t>(r);
    // It owes this rank more of a stream. (What it has written is there, also when it has left.)
    const auto owes = [&] {
      if (!streamed_ || streams_.in[i].finished()) return false;
      if (streams_.in[i].is_open()) return streams_.in[i].starved();
      if (theirs(r).how != form::streams) return false;
      return detail(r).stream_begin.load(std::memory_order_seq_cst) == 0;
    };
    bool missing = false;
    switch (phase_) {
      case phase::queued:
        missing = sequence_ >= window && ticks_of(r) < tick(sequence_ - window, stage::released);
        missing = missing || desk_.stage.waits_for(r);
        break;
      case phase::agree: missing = (everyone_ || reads_from(r)) && !arrived(r); break;
      case phase::move:
        missing = (reads_from(r) && owes()) || (!streams_.all_out() && desk_.streams.waits_for(r));
        break;
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

inline std::optional<revocation> call::hopeless() const {
  op_->start_clock();
  const std::vector<int> missing = awaited();
  const auto gone =
      std::find_if(missing.begin(), missing.end(), [&](int r) { return group_.gone(r); });
  const bool expired = op_->until.expired();
  if (gone == missing.end() && !expired) return std::nullopt;
  // Who left may have published before: look again, now that it cannot change any more.
  const std::vector<int> still = awaited();
  if (still != missing) return std::nullopt;
  revocation r;
  r.sequence = sequence_;
  r.waited = steady_clock::now() - op_->begun;
  const std::string head = text() + ", rank " + std::to_string(rank_);
  if (gone != missing.end()) {
    r.why = revocation::kind::peer_lost;
    r.ranks = {*gone};
    const member& m = group_.of(*gone);
    const bool left = m.left.load() || m.closed.load();
    r.text = head + ": rank " + std::to_string(*gone) +
             (left ? " left without taking part; " : ": its process has ended; ") +
             last_call_text(group_, *gone);
    return r;
  }
  r.why = revocation::kind::timeout;
  r.ranks = missing;
  r.text = head + ": timed out after " + seconds_text(r.waited);
  if (missing.empty()) r.text += ", waiting for earlier calls of this rank";
  for (const int m : missing) {
    r.text += "; rank " + std::to_string(m) +
              (arrived(m) ? " has arrived but not finished" : " has not arrived") + ", " +
              last_call_text(group_, m);
  }
  return r;
}

}  // namespace rankcast::inline v0::local
