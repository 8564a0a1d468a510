/// Sends and receives: first in, first out per pair of ranks and tag, with no place in the sequence
/// of collectives. One that times out is withdrawn; the group goes on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "rankcast/core/transport.hpp"
#include "rankcast/transports/local/group.hpp"
#include "rankcast/transports/local/mover.hpp"
#include "rankcast/transports/local/revoke.hpp"

namespace rankcast::inline v0::local {

class letter final : public flight {
 public:
  letter(group& g, int rank, const operation& op, transport_counters& counters)
      : group_(g), rank_(rank), op_(op), counters_(counters), begin_(op.begun) {
    if (op_.code == opcode::send) post();
  }

  [[nodiscard]] const deadline& until() const noexcept { return op_.until; }

  /// `horizon`: messages that had arrived when this pass over all receives began. A later one is
  /// left to the next pass, for it may belong to a receive that this pass has already been at.
  bool advance(std::uint64_t horizon) {
    if (done) return false;
    if (op_.code == opcode::receive) return receive(horizon);
    return hear_answer();
  }

  /// Has the peer gone? What it sent before is there by now; look once more before giving up.
  void look_for_peer() noexcept { peer_gone_ = op_.root != rank_ && group_.gone(op_.root); }

  void give_up_if_due() {
    if (done || (!peer_gone_ && !op_.until.expired())) return;
    withdraw();
    // It may have been taken at the last moment: then it is there, and this is no failure.
    if (envelope_ != nullptr && hear_answer()) return;
    const auto waited = steady_clock::now() - begin_;
    const std::string head = text();
    const std::string peer_name = "rank " + std::to_string(op_.root);
    if (peer_gone_) {
      fail(std::make_exception_ptr(peer_lost_error(
          head + ": " + peer_name + " left; " + last_call_text(group_, op_.root), op_.root)));
    } else {
      fail(std::make_exception_ptr(timeout_error(
          head + ": timed out after " + seconds_text(waited) + "; " + peer_name +
              (op_.code == opcode::send ? " has not received it, " : " has sent nothing, ") +
              last_call_text(group_, op_.root),
          {op_.root}, waited)));
    }
  }

  /// Takes the message back. When it returns the receiver does not read our buffer.
  void withdraw() noexcept {
    if (envelope_ == nullptr) return;
    auto expected = envelope::phase::posted;
    if (envelope_->state.compare_exchange_strong(expected, envelope::phase::withdrawn)) return;
    envelope_->cancelled.store(true);
    for (int i = 0; envelope_->state.load(std::memory_order_acquire) == envelope::phase::taken &&
                    !revoked(group_);
         ++i) {
      if (i < 1000) relax_cpu();
      else sched_yield();
    }
    // On a revoked group the receiver leaves the message as it is, but not before its chunk is
    // over.
    if (revoked(group_)) wait_for_movers(group_, rank_);
  }

  void fail(std::exception_ptr why) noexcept {
    if (failure == nullptr) failure = std::move(why);
    done = true;
  }

 private:
  [[nodiscard]] std::string text() const { return letter_text(group_.name, op_, rank_); }
  [[nodiscard]] mailbox& mail_of(int r) noexcept {
    return group_.mail[static_cast<std::size_t>(r)];
  }

  [[nodiscard]] std::exception_ptr mismatch(const std::string& note) const {
    return std::make_exception_ptr(mismatch_error(
        text() + ": " + note, "elements", {std::min(rank_, op_.root), std::max(rank_, op_.root)}));
  }

  void post() {
    envelope_ = std::make_shared<envelope>();
    envelope_->source = rank_;
    envelope_->tag = op_.tag;
    envelope_->record = record_of(op_, group_.size);
    envelope_->data = op_.send.address;
    envelope_->data_layout = op_.send.elements_layout;
    if (op_.source != nullptr) encode();
    const std::size_t bytes = op_.send.bytes() + envelope_->content.bytes();
    counters_.bytes_sent += bytes;
    const bool small = bytes <= group_.sizes.eager_bytes;
    if (small && op_.source != nullptr) {
      for (auto& s : envelope_->content.segments) {
        envelope_->stage.insert(envelope_->stage.end(), s.begin(), s.end());
      }
      const std::byte* at = envelope_->stage.data();
      for (auto& s : envelope_->content.segments) {
        s = {at, s.size()};
        at += s.size();
      }
    } else if (small) {
      envelope_->stage.resize(bytes);
      envelope_->data_layout = layout::flat(op_.send.elements());
      copy_elements(envelope_->stage.data(), envelope_->data_layout, 0, op_.send.address,
                    op_.send.elements_layout, 0, op_.send.elements(), size_of(op_.send.type));
      envelope_->data = envelope_->stage.data();
    }
    mail_of(op_.root).post(envelope_);
    group_.ring(op_.root);
    if (small) {
      envelope_ = nullptr;  // nothing of ours is borrowed
      done = true;
    }
  }

  // Who waits for a message that cannot be made is told.
  void encode() {
    try {
      op_.source->encode(op_.root, envelope_->content);
    } catch (...) {
      failure = std::current_exception();
      envelope_->content.clear();
      envelope_->refusal = text() + ": rank " + std::to_string(rank_) +
                           " could not encode: " + current_exception_text();
    }
  }

  // The answer to a send, if there is one.
  bool hear_answer() {
    if (envelope_->state.load(std::memory_order_acquire) != envelope::phase::done) return false;
    if (!envelope_->whole) return false;
    if (envelope_->undecoded) {
      fail(std::make_exception_ptr(remote_error(envelope_->note, op_.root)));
    } else if (!envelope_->note.empty()) {
      fail(mismatch(envelope_->note));
    }
    done = true;
    return true;
  }

  bool receive(std::uint64_t horizon) {
    std::shared_ptr<envelope> found;
    {
      mailbox& box = mail_of(rank_);
      const std::lock_guard lock(box.mutex);
      for (auto it = box.letters.begin(); it != box.letters.end();) {
        envelope& e = **it;
        if (e.number >= horizon) break;
        if (e.state.load(std::memory_order_acquire) == envelope::phase::withdrawn) {
          it = box.letters.erase(it);
          continue;
        }
        auto posted = envelope::phase::posted;
        if (e.source == op_.root && e.tag == op_.tag &&
            e.state.compare_exchange_strong(posted, envelope::phase::taken)) {
          found = *it;
          box.letters.erase(it);
          break;
        }
        ++it;
      }
    }
    if (found == nullptr) return false;
    const std::uint64_t before = counters_.bytes_received;
    const auto begin = steady_clock::now();
    open(*found);
    counters_.moving += steady_clock::now() - begin;
    if (op_.root == rank_) counters_.bytes_received = before;  // nothing came from anybody else
    found->state.store(envelope::phase::done, std::memory_order_seq_cst);
    if (op_.root != rank_) group_.ring(op_.root);
    done = true;
    return true;
  }

  void open(envelope& e) {
    const call_record mine = record_of(op_, group_.size);
    if (!e.refusal.empty()) {
      fail(std::make_exception_ptr(remote_error(e.refusal, op_.root)));
      return;
    }
    if (e.record.message != mine.message || e.record.message_type.hash != mine.message_type.hash) {
      e.note = "rank " + std::to_string(op_.root) + " sent " + content_text(e.record) + ", rank " +
               std::to_string(rank_) + " wanted " + content_text(mine);
      fail(mismatch(e.note));
      return;
    }
    if (mine.message) {
      open_message(e);
      return;
    }
    if (e.record.elements != mine.elements || e.record.type != mine.type) {
      e.note = "rank " + std::to_string(op_.root) + " sent " + detail::elements_text(e.record) +
               ", rank " + std::to_string(rank_) + " wanted " + detail::elements_text(mine);
      fail(mismatch(e.note));
      return;
    }
    mover m(group_, rank_, counters_);
    transfer t;
    t.from = e.data;
    t.from_layout = &e.data_layout;
    t.to = op_.receive.address;
    t.to_layout = &op_.receive.elements_layout;
    t.count = mine.elements;
    t.element_bytes = size_of(mine.type);
    t.past_caches = 2 * t.bytes() >= past_caches_bytes;
    if (!m.copy(t, [&] { return !e.cancelled.load(); })) give_up(e);
  }

  void open_message(envelope& e) {
    mover m(group_, rank_, counters_);
    try {
      shared_segments segments(m, -1, e.content, [&] { return !e.cancelled.load(); });
      op_.sink->decode(op_.root, e.content.head(), segments);
      counters_.bytes_received += e.content.head().size();
      return;
    } catch (const group_revoked&) {
      throw;
    } catch (const sender_gave_up&) {
      give_up(e);
      return;
    } catch (...) {
      fail(std::current_exception());
      e.note = text() + ": rank " + std::to_string(rank_) + " failed: " + current_exception_text();
      e.undecoded = true;
    }
  }

  void give_up(envelope& e) {
    e.whole = false;
    fail(std::make_exception_ptr(
        remote_error(text() + ": the sender gave up in the middle", op_.root)));
  }

  [[nodiscard]] static std::string content_text(const call_record& r) {
    if (!r.message) return detail::elements_text(r);
    return "a message of its own size (" + std::string(r.message_type.name) + ")";
  }

  group& group_;
  int rank_;
  operation op_;
  transport_counters& counters_;
  steady_clock::time_point begin_;
  std::shared_ptr<envelope> envelope_;  // of a send whose buffer is borrowed
  bool peer_gone_ = false;
};

}  // namespace rankcast::inline v0::local
