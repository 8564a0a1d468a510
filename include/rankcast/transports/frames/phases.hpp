/// How a call goes through its phases, and how it gives up.
#pragma once

#include "rankcast/transports/frames/call.hpp"

namespace rankcast::inline v0::frames {

inline void call::encode() {
  const bool one_each = op_.code == opcode::scatter;
  messages_.swap(group_.spare_messages);
  messages_.resize(one_each ? static_cast<std::size_t>(group_.size) : 1);
  try {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      messages_[i].clear();
      op_.source->encode(one_each ? static_cast<int>(i) : -1, messages_[i]);
      group_.counters.bytes_sent += messages_[i].bytes();
    }
  } catch (...) {
    fail_own(std::current_exception());
    mine_.refusal = text() + ": rank " + std::to_string(group_.rank) +
                    " could not encode: " + current_exception_text();
  }
}

inline bool call::publish() {
  if (phase_ != phase::queued) return true;
  if (!all_have_room()) return false;
  if (mine_.refusal.empty() && op_.source != nullptr) encode();
  // The buffers of a refused call may be anything, and gone by now.
  const bool refused = !mine_.refusal.empty();
  if (!refused && op_.send.given) group_.counters.bytes_sent += op_.send.bytes();
  if (!refused && op_.code == opcode::all_to_all && op_.send.address == op_.receive.address) {
    stage_.resize(op_.send.bytes());
    copy_elements(stage_.data(), layout::flat(op_.send.elements()), 0, op_.send.address,
                  op_.send.elements_layout, 0, op_.send.elements(), size_of(op_.type));
  }
  for (int r = 0; r < group_.size; ++r) {
    if (r == group_.rank) continue;
    if (relays() && feeds(r) && !refused) continue;  // when the data have come
    if (!tells_all() && !feeds(r) && !theirs(r).wants_all) continue;
    supply bytes = !refused && feeds(r) && moves_data(op_.code) ? share_for(r) : supply();
    const bool whole = small(bytes);
    send_head(r, kind::call, 0, std::move(bytes), whole, [&](frame& f) { write_own_offer(f); });
  }
  shown_ = tells_all();
  phase_ = phase::agree;
  return true;
}

template <class Body>
void call::send_head(int to, kind what, std::uint8_t stream, supply bytes, bool whole, Body&& body,
                     int tag) {
  std::uint8_t flags = whole ? flag::complete : flag::none;
  if (what == kind::call && everyone()) flags |= flag::wants_all;
  frame f = group_.make(what, sequence_, bytes.total(), flags, stream, tag);
  body(f);
  if (whole) append_whole(f, bytes);
  group_.post(to, std::move(f), unsent_);
  if (whole) return;
  out_.push_back({to, stream, std::move(bytes)});
  out_.back().skipped = theirs(to).arrived && !theirs(to).offer.refusal.empty();
}

inline verdict call::compare() {
  std::vector<const call_offer*> offers(static_cast<std::size_t>(group_.size), nullptr);
  for (int r = 0; r < group_.size; ++r) {
    if (r == group_.rank) offers[static_cast<std::size_t>(r)] = &mine_;
    else if (theirs(r).known) offers[static_cast<std::size_t>(r)] = &theirs(r).offer;
  }
  return examine(op_, group_.rank, offers, [&](int r) { return everyone() || reads_from(r); });
}

inline void call::agree() {
  const verdict v = compare();
  if (v.difference) {
    claim(group_, mismatch(group_.name, op_, sequence_, *v.difference));
    throw group_revoked{};
  }
  if (v.refuser >= 0) {
    const int refuser = theirs(v.refuser).refuser;
    failure = std::make_exception_ptr(remote_error(theirs(v.refuser).offer.refusal, refuser));
    if (relays()) relay_failure(refuser);
    consume();
    return;
  }
  phase_ = phase::move;
  move_own();
  if (relays()) relay();
}

// Shows the ranks that this one feeds what has come, or what is coming: chunks follow as they come.
inline void call::relay() {
  const incoming& from = theirs(feeder()).streams[0];
  const bool whole = from.all_arrived();
  for (int r = 0; r < group_.size; ++r) {
    if (!feeds(r)) continue;
    supply bytes = whole             ? supply(from.front())
                   : is_message(op_) ? supply::passed_on(from.total())
                                     : supply(op_.receive, 0, op_.receive.elements());
    const std::size_t before = out_.size();
    send_head(r, kind::call, 0, std::move(bytes), whole, [&](frame& f) { write_own_offer(f); });
    if (out_.size() > before) out_.back().available = 0;
  }
}

// They will get nothing.
inline void call::relay_failure(int refuser) {
  for (int r = 0; r < group_.size; ++r) {
    if (!feeds(r)) continue;
    send_head(
        r, kind::call, 0, supply(), true,
        [&](frame& f) { write_offer(f, mine_.record, mine_.counts, failure_text()); }, refuser);
  }
}

inline bool call::advance(bool turn) {
  const phase before = phase_;
  const std::uint64_t received = group_.counters.bytes_received;
  if (phase_ == phase::agree && turn && !mine_.refusal.empty()) {
    decline_all();
    release();
  }
  if (phase_ == phase::agree && turn && needed_arrived()) agree();
  if (phase_ == phase::move && move_data()) {
    if (slices_follow()) announce_slice();
    else consume();
  }
  if (phase_ == phase::slices && collect_slices()) consume();
  if (phase_ == phase::verdict && all_consumed()) {
    hear_verdict();
    release();
  }
  if (phase_ == phase::drain && drained()) complete();
  return phase_ != before || group_.counters.bytes_received != received;
}

inline std::vector<int> call::awaited() {
  std::vector<int> ranks;
  for (int r = 0; r < group_.size; ++r) {
    if (r == group_.rank) continue;
    bool missing = false;
    switch (phase_) {
      case phase::queued:
        missing = sequence_ >= window && group_.of(r).released + window <= sequence_;
        break;
      case phase::agree: missing = (everyone() || reads_from(r)) && !arrived(r); break;
      case phase::move:
        missing = held_back() ? sends_to(r) : reads_from(r) && !theirs(r).streams[0].all_arrived();
        break;
      case phase::slices: missing = !theirs(r).streams[1].all_arrived(); break;
      case phase::verdict: missing = !theirs(r).consumed; break;
      case phase::drain: missing = sends_to(r); break;
      case phase::complete: break;
    }
    if (missing) ranks.push_back(r);
  }
  return ranks;
}

inline std::optional<revocation> call::hopeless() {
  using namespace std::chrono_literals;
  if (phase_ == phase::agree && steady_clock::now() - begin_ > 20ms) {
    if (!shown_) {
      shown_ = true;
      frame f = group_.make(kind::call, sequence_, 0, flag::notice);
      write_own_offer(f);
      group_.post_all(f);
      group_.lines->recycle(std::move(f));
    }
    if (const verdict v = compare(); v.difference) {
      return mismatch(group_.name, op_, sequence_, *v.difference);
    }
  }
  const std::vector<int> missing = awaited();
  const auto gone = std::find_if(missing.begin(), missing.end(),
                                 [&](int r) { return group_.of(r).left || group_.of(r).closed; });
  if (gone == missing.end() && !op_.until.expired()) return std::nullopt;
  const auto waited = steady_clock::now() - begin_;  // no less than the limit that has passed
  revocation r;
  r.sequence = sequence_;
  r.waited = waited;
  r.text = text() + ", rank " + std::to_string(group_.rank) + ": ";
  if (gone != missing.end()) {
    r.why = revocation::kind::peer_lost;
    r.ranks = {*gone};
    r.text += "rank " + std::to_string(*gone) + " left without taking part; " +
              last_call_text(group_.of(*gone).last);
    return r;
  }
  r.why = revocation::kind::timeout;
  r.ranks = missing;
  r.text += "timed out after " + seconds_text(waited);
  if (missing.empty())
    r.text += ", waiting for earlier calls of this rank or for its data to leave";
  for (const int m : missing) {
    // The slot of a call that has not begun, or is over here, may be another call's.
    const bool slot_is_ours = phase_ != phase::queued && phase_ != phase::drain;
    const bool here = phase_ == phase::drain || group_.of(m).released > sequence_ ||
                      (slot_is_ours && theirs(m).known);
    r.text += "; rank " + std::to_string(m) +
              (here ? " has arrived but not finished, " : " has not arrived, ") +
              last_call_text(group_.of(m).last);
  }
  return r;
}

}  // namespace rankcast::inline v0::frames
