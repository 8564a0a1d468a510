/// Sends and receives: first in, first out per pair of ranks and tag, with no place in the sequence
/// of collectives. One that times out is withdrawn; the group goes on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "rankcast/transports/frames/group.hpp"
#include "rankcast/transports/frames/intake.hpp"

namespace rankcast::inline v0::frames {

/// A letter that has arrived, or whose announcement has.
struct arrived_letter {
  arrived_offer offer;
  int tag = 0;
  bool whole = false;      // came in one frame: the sender does not wait
  bool taken = false;      // by a receive
  bool withdrawn = false;  // its sender gave up
  incoming stream;
};

/// By sender and number: the order in which the letters of a sender were sent.
using mailbox = std::map<std::pair<int, std::uint64_t>, arrived_letter>;

class letter final : public flight, private waiter {
 public:
  static constexpr std::uint8_t phase = 2;  // of its stream

  /// `number`: of a send, among those of this rank.
  letter(group& g, mailbox& box, const operation& op, std::uint64_t number, waiter& w)
      : group_(g), box_(box), op_(op), number_(number), waiter_(w), begin_(op.begun) {
    if (op_.code == opcode::send) post();
  }

  [[nodiscard]] const deadline& until() const noexcept { return op_.until; }
  [[nodiscard]] bool sends(std::uint64_t number) const noexcept {
    return op_.code == opcode::send && number == number_;
  }

  /// All letters in start order, before any of them advances: while a decoder waits more arrive,
  /// and they may belong to a receive that was looked at before.
  void match() {
    if (done || op_.code == opcode::send || found_ != nullptr) return;
    find();
  }
  void advance() {
    if (done) return;
    if (op_.code == opcode::send) done = whole_ && unsent_->load(std::memory_order_relaxed) == 0;
    else if (found_ != nullptr) open();
  }

  /// The receiver of our letter has room.
  void granted(const frame_header& h) {
    if (done) return;
    out_.skipped = out_.skipped || (h.flags & flag::skip) != 0;
    out_.granted = std::min(std::max(out_.granted, h.position), out_.bytes.total());
    group_.pump(out_, number_, unsent_);
  }

  /// It has taken our letter, or says why not.
  void answered(const frame_header& h, const std::string& note) {
    if ((h.flags & flag::undecoded) != 0) {
      fail(std::make_exception_ptr(remote_error(note, op_.root)));
    } else if (!note.empty()) {
      fail(mismatch(note));
    }
    done = true;
  }

  void give_up_if_due() {
    if (done) return;
    if (auto why = hopeless()) {
      withdraw();
      fail(std::move(why));
    }
  }

  /// Takes the letter back, or gives a half received one back.
  void withdraw() {
    if (op_.code == opcode::send) {
      out_.skipped = true;
      group_.post(op_.root, group_.make(kind::withdraw, number_, 0, 0, phase));
    } else if (found_ != nullptr) {
      answer(text() + ": rank " + std::to_string(group_.rank) + " gave up", flag::undecoded);
    }
  }

  void fail(std::exception_ptr why) noexcept {
    if (failure == nullptr) failure = std::move(why);
    done = true;
  }

 private:
  [[nodiscard]] std::string text() const { return letter_text(group_.name, op_, group_.rank); }

  [[nodiscard]] std::exception_ptr mismatch(const std::string& note) const {
    return std::make_exception_ptr(
        mismatch_error(text() + ": " + note, "elements",
                       {std::min(group_.rank, op_.root), std::max(group_.rank, op_.root)}));
  }

  // The error of a letter that will not be answered: its time is up, or its peer has gone.
  [[nodiscard]] std::exception_ptr hopeless() const {
    const peer& p = group_.of(op_.root);
    const bool gone = op_.root != group_.rank && (p.left || p.closed);
    if (!gone && !op_.until.expired()) return nullptr;
    const auto waited = steady_clock::now() - begin_;
    const std::string who = "rank " + std::to_string(op_.root);
    if (gone) {
      return std::make_exception_ptr(
          peer_lost_error(text() + ": " + who + " left; " + last_call_text(p.last), op_.root));
    }
    return std::make_exception_ptr(timeout_error(
        text() + ": timed out after " + seconds_text(waited) + "; " + who +
            (op_.code == opcode::send ? " has not received it, " : " has sent nothing, ") +
            last_call_text(p.last),
        {op_.root}, waited));
  }

  // The decoder waits for more of its message.
  void wait_once(int attempt) override {
    waiter_.wait_once(attempt);
    if (found_->withdrawn) std::rethrow_exception(sender_gave_up());
    if (attempt % 64 == 63) {
      if (auto why = hopeless()) std::rethrow_exception(why);
    }
  }

  [[nodiscard]] std::exception_ptr sender_gave_up() const {
    return std::make_exception_ptr(
        remote_error(text() + ": the sender gave up in the middle", op_.root));
  }

  // Who waits for a message that cannot be made is told.
  void post() {
    std::string refusal;
    if (op_.source != nullptr) {
      try {
        op_.source->encode(op_.root, content_);
      } catch (...) {
        content_.clear();
        failure = std::current_exception();
        refusal = text() + ": rank " + std::to_string(group_.rank) +
                  " could not encode: " + current_exception_text();
      }
      out_.bytes = supply(content_);
    } else {
      out_.bytes = supply(op_.send, 0, op_.send.elements());
    }
    out_.to = op_.root;
    out_.phase = phase;
    group_.counters.bytes_sent += op_.send.bytes() + content_.bytes();
    const std::uint64_t total = out_.bytes.total();
    const bool whole = total <= group_.sizes.eager_bytes;
    frame f = group_.make(kind::letter, number_, total, whole ? flag::complete : flag::none, phase,
                          op_.tag);
    write_offer(f, record_of(op_, group_.size), {}, refusal);
    if (whole) append_whole(f, out_.bytes);
    whole_ = whole;  // nothing of the caller's is borrowed
    group_.post(op_.root, std::move(f), whole ? unsent_ : nullptr);
    done = whole && unsent_->load(std::memory_order_relaxed) == 0;
  }

  // The earliest letter of the peer with the tag that nobody has taken.
  void find() {
    for (auto it = box_.lower_bound({op_.root, looked_at_});
         it != box_.end() && it->first.first == op_.root; ++it) {
      arrived_letter& l = it->second;
      looked_at_ = it->first.second + 1;
      if (l.taken || l.tag != op_.tag) continue;
      l.taken = true;
      found_ = &l;
      number_ = it->first.second;
      return;
    }
  }

  void open() {
    const call_record mine = record_of(op_, group_.size);
    const call_record& theirs = found_->offer.record;
    if (!found_->offer.refusal.empty()) {
      fail(std::make_exception_ptr(remote_error(found_->offer.refusal, op_.root)));
      answer("");
      return;
    }
    const bool same =
        mine.message == theirs.message && mine.message_type.hash == theirs.message_type.hash &&
        (mine.message || (mine.elements == theirs.elements && mine.type == theirs.type));
    if (!same) {
      const std::string note = "rank " + std::to_string(op_.root) + " sent " +
                               content_text(theirs) + ", rank " + std::to_string(group_.rank) +
                               " wanted " + content_text(mine);
      fail(mismatch(note));
      answer(note);
      return;
    }
    if (found_->withdrawn) {  // while nothing of it has come, it is as if it had never been sent
      if (found_->stream.consumed() != 0) fail(sender_gave_up());
      answer("");
      return;
    }
    try {
      const std::uint64_t before = group_.counters.bytes_received;
      const bool whole = mine.message ? take_message() : take_elements();
      if (op_.root == group_.rank) group_.counters.bytes_received = before;  // from nobody else
      if (whole) {
        done = true;
        answer("");
      }
    } catch (const group_revoked&) {
      throw;
    } catch (...) {
      fail(std::current_exception());
      answer(
          text() + ": rank " + std::to_string(group_.rank) + " failed: " + current_exception_text(),
          flag::undecoded);
    }
  }

  bool take_message() {
    return intake_.step(group_, op_.root, op_.root, number_, phase, found_->stream, *op_.sink,
                        *this);
  }
  bool take_elements() {
    incoming& s = found_->stream;
    const std::size_t size = size_of(op_.receive.type);
    if (s.total() != op_.receive.bytes())
      throw decode_error("letter: of another length than it says");
    group_.grant(op_.root, number_, phase, s);
    while (!s.front().empty()) {
      const auto front = s.front();
      const auto n = static_cast<std::int64_t>(front.size() / size);
      copy_elements(op_.receive.address, op_.receive.elements_layout,
                    static_cast<std::int64_t>(s.consumed() / size), front.data(), layout::flat(n),
                    0, n, size);
      group_.counters.bytes_received += front.size();
      s.pop(front.size(), *group_.lines);
      group_.grant(op_.root, number_, phase, s);
    }
    return s.finished();
  }

  // Ends our part in the letter; its sender hears of it if it still waits.
  void answer(const std::string& note, std::uint8_t flags = 0) {
    if (!found_->whole && !found_->withdrawn) {
      frame f = group_.make(kind::answer, number_, 0, flags, phase);
      detail::byte_writer(f).put_text(note);
      group_.post(op_.root, std::move(f));
    }
    found_->stream.clear(*group_.lines);
    box_.erase({op_.root, number_});
    found_ = nullptr;
  }

  [[nodiscard]] static std::string content_text(const call_record& r) {
    if (!r.message) return detail::elements_text(r);
    return "a message of its own size (" + std::string(r.message_type.name) + ")";
  }

  group& group_;
  mailbox& box_;
  operation op_;
  std::uint64_t number_;  // of a receive: of the letter it has found
  waiter& waiter_;
  steady_clock::time_point begin_;
  message content_;  // of a send
  outgoing out_;
  unsent_count unsent_ = std::make_shared<std::atomic<int>>(0);
  bool whole_ = false;               // of a send: in one frame
  std::uint64_t looked_at_ = 0;      // of a receive: earlier letters of the peer are not for it
  arrived_letter* found_ = nullptr;  // of a receive
  intake intake_;
};

}  // namespace rankcast::inline v0::frames
