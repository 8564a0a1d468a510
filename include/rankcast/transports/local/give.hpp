/// What a rank gives in a call, and how the others get it: small data beside the call itself or in
/// the stage ring, large ones where they lie or through the stream ring. Ranks that read each
/// other's memory borrow small data too, when they come at once: that saves a copy. Who has waited
/// for a moment takes them back, onto the board, and goes on.
#pragma once

#include "rankcast/transports/local/call.hpp"

namespace rankcast::inline v0::local {

inline bool call::publish() {
  if (phase_ != phase::queued) return true;
  if (!slot_free()) return false;
  slot_head head;
  show(group_, *op_, head);
  if (refusal_.empty() && !offer(head)) return false;
  if (!refusal_.empty()) {
    head.refused = true;
    head.plain = false;
    put_text(own_detail().text, refusal_);
  }
  // Who waits for it sees it now; who sleeps is woken when this rank has gone as far as it can.
  own_slot().publish(head, sequence_);
  tell_details(head);
  unrung_ = true;
  phase_ = phase::agree;
  return true;
}

// Puts small data on the board, and says where large ones are. False when there is no room yet.
inline bool call::offer(slot_head& head) {
  if (op_->source != nullptr) return offer_message(head);
  if (!op_->send.given) return true;
  head.bytes = send_bytes_;
  if (gives()) {  // and is not a root's own share
    const bool exchange = op_->code == opcode::all_to_all;
    // (A started call would hold its buffers until somebody looks again.)
    const bool lends = slices_follow() ? direct()
                                       : direct() && flat_ && !exchange && op_ != &own_ &&
                                             send_bytes_ > group_.lend_bytes;
    std::byte* place = nullptr;
    if (!lends && !put_on_board(head, send_bytes_, place)) return false;
    if (place != nullptr) {
      if (head.how == form::here && flat_) own_slot().put(op_->send.address, send_bytes_);
      else copy_to(place, op_->send, 0, sent_, stage_filler());
    } else {
      if (exchange && op_->send.address == op_->receive.address) {  // as they were
        kept_.resize(send_bytes_);
        copy_elements(kept_.data(), layout::flat(sent_), 0, op_->send.address,
                      op_->send.elements_layout, 0, sent_, element_bytes_);
      }
      if (direct()) lend(head);
      else will_stream(head);
    }
  }
  desk_.counters.bytes_sent += send_bytes_;
  return true;
}

inline void call::lend(slot_head& head) {
  const bool kept = op_->code == opcode::all_to_all && op_->send.address == op_->receive.address;
  head.how = form::lent;
  head.place = reinterpret_cast<std::uintptr_t>(kept ? kept_.data() : op_->send.address);
  head.flat = flat_;
  own_slot().lent().result = reinterpret_cast<std::uintptr_t>(op_->receive.address);
  own_slot().lent().here.begin();
  if (!flat_) {
    own_detail().given = kept ? layout::flat(sent_) : op_->send.elements_layout;
    own_detail().wanted = op_->receive.elements_layout;
  }
  borrowed_ = true;
  recallable_ = flat_ && send_bytes_ <= group_.sizes.eager_bytes &&
                op_->code != opcode::all_to_all && !slices_follow();
}

// Small data that were lent go onto the board. False when there is no room yet.
inline bool call::recall() {
  std::uint64_t position = 0;
  std::byte* const place = desk_.stage.take(send_bytes_, sequence_, reader(), position);
  if (place == nullptr) return false;
  copy_to(place, op_->send, 0, sent_, &desk_.stage_filler);
  own_slot().lent().here.recall(position);
  wait_for_movers(group_, rank_);
  borrowed_ = false;
  return true;
}

inline void call::will_stream(slot_head& head) {
  head.how = form::streams;
  own_detail().stream_begin.store(0, std::memory_order_relaxed);
}

// Elements [first, first + count) of a buffer, one after the other, for readers of a ring. Without
// a filler: for one reader, who takes the lines.
inline void call::copy_to(std::byte* to, const buffer& from, std::int64_t first, std::int64_t count,
                          ring_filler* filler, bool ahead) {
  if (count == 0) return;  // there may be no address
  if (from.elements_layout.is_contiguous()) {
    const auto size = static_cast<std::int64_t>(element_bytes_);
    const auto bytes = static_cast<std::size_t>(count * size);
    if (filler == nullptr) copy_to_taker(to, from.address + first * size, bytes);
    else filler->copy(to, from.address + first * size, bytes, ahead);
    return;
  }
  copy_elements(to, layout::flat(count), 0, from.address, from.elements_layout, first, count,
                element_bytes_);
}

// Where `bytes` of small data go; null when they are not small.
inline bool call::put_on_board(slot_head& head, std::size_t bytes, std::byte*& place) {
  if (bytes <= group_.sizes.slot_bytes) {
    head.how = form::here;
    place = own_slot().data;
  } else if (bytes <= group_.sizes.eager_bytes) {
    head.how = form::staged;
    place = desk_.stage.take(bytes, sequence_, reader(), head.place);
    return place != nullptr;
  }
  return true;
}

// One message for all readers, or, of a scatter, one for each.
inline bool call::offer_message(slot_head& head) {
  if (!encoded_) encode(head);
  if (!refusal_.empty()) return true;
  std::size_t bytes = 0;
  for (const message& m : messages_) bytes += flat_bytes(m);
  if (head.how == form::staged) {  // it was written there
    head.bytes = bytes;
    return true;
  }
  std::byte* place = nullptr;
  if (gives() && !put_on_board(head, bytes, place)) return false;
  head.bytes = bytes;
  if (place != nullptr) {
    for (const message& m : messages_) place = write_flat(m, place);
  } else if (direct()) {
    head.how = form::lent;
    head.place = reinterpret_cast<std::uintptr_t>(messages_.data());
    borrowed_ = true;
  } else if (gives()) {
    will_stream(head);
    if (one_each()) {  // the readers learn how much each of them gets
      std::int64_t* sizes = group_.lines.counts(rank_, sequence_);
      for (int r = 0; r < group_.size; ++r) {
        sizes[r] = static_cast<std::int64_t>(flat_bytes(messages_[static_cast<std::size_t>(r)]));
      }
    }
  }
  return true;
}

// A message for all is written straight into the stage ring, if there is room and it is small.
inline void call::encode(slot_head& head) {
  encoded_ = true;
  messages_.swap(desk_.spare);
  messages_.resize(one_each() ? static_cast<std::size_t>(group_.size) : 1);
  group_.ring_others(rank_);  // who sleeps wakes up while this rank encodes
  constexpr std::size_t prefix = 2 * sizeof(std::uint64_t);
  const std::size_t most = group_.sizes.eager_bytes;
  std::byte* room = nullptr;
  if (gives() && !one_each() && most > prefix) {
    room = desk_.stage.take(most, sequence_, reader(), head.place);
  }
  std::size_t bytes = 0;
  try {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      message& m = messages_[i];
      m.clear();
      if (room != nullptr) m.place = {room + prefix, most - prefix};
      op_->source->encode(one_each() ? static_cast<int>(i) : -1, m);
      bytes += m.bytes();
    }
  } catch (...) {
    failure = std::current_exception();
    refusal_ = text() + ": rank " + std::to_string(rank_) + " could not encode: " + failure_text();
    if (room != nullptr) desk_.stage.keep(0);
    return;
  }
  desk_.counters.bytes_sent += bytes;
  if (room == nullptr) return;
  // What stands there stays until its readers are through, also when bulk data follow it.
  const message& m = messages_.front();
  desk_.stage.keep(m.placed == 0 ? 0 : prefix + m.placed);
  if (m.placed == 0 || !m.segments.empty()) return;
  const std::uint64_t table[] = {m.placed, 0};
  std::memcpy(room, table, prefix);
  head.how = form::staged;
}

}  // namespace rankcast::inline v0::local
