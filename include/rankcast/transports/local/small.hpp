/// Small calls, straight through: what the phases of a call come to where all data lie in one piece
/// and stand in the slots, no rank waits for everyone, and the peers come at once. Anything else is
/// left to the phases, at the point that has been reached.
#pragma once

#include "rankcast/transports/local/call.hpp"

namespace rankcast::inline v0::local {

inline bool call::is_small(const operation& op) const noexcept {
  const auto flat = [&](const buffer& b) {
    return !b.given ||
           (b.elements_layout.dimensions == 1 && b.elements_layout.strides[0] == 1 &&
            static_cast<std::size_t>(b.elements_layout.shape[0]) * size_of(b.type) <= most_small);
  };
  switch (op.code) {
    case opcode::barrier:
    case opcode::broadcast:
    case opcode::scatter:
    case opcode::gather:
    case opcode::all_gather:
    case opcode::reduce:
    case opcode::all_reduce: break;
    default: return false;
  }
  return op.completion == completion::local && op.counts.empty() && !is_message(op) &&
         flat(op.send) && flat(op.receive) &&
         (!op.send.given || op.send.bytes() <= group_.sizes.slot_bytes);
}

inline bool call::run_small(operation& op, std::uint64_t sequence, int looks) {
  op_ = &op;
  sequence_ = sequence;
  message_ = false;
  op.type = op.send.given ? op.send.type : op.receive.type;
  awaits_ = awaited_by(op);
  const std::size_t bytes = op.send.given ? op.send.bytes() : 0;
  bool shown = false;
  bool agreed = false;
  if (slot_free()) {
    slot& mine = own_slot();
    slot_head head;
    show(group_, op, head);
    head.bytes = bytes;
    if (op.send.given && reader() != rank_) {
      head.how = form::here;
      mine.put(op.send.address, bytes);
    }
    mine.publish(head, sequence);
    shown = true;
    tell_details(head);
    for (int i = 0; i < looks && !(agreed = needed_arrived()); ++i) {
      if (group_.spin_limit > 0) relax_cpu();
      else sched_yield();
    }
    agreed =
        agreed && plainly_agreed(true) &&
        (!moves_data(op.code) || all_awaited([&](int r) { return theirs(r).how == form::here; }));
  }
  if (agreed && take_small()) {
    desk_.counters.bytes_sent += bytes;
    reach(stage::released);
    return true;
  }
  std::exception_ptr thrown = std::exchange(failure, nullptr);
  begin(op, sequence);
  if (!shown) return false;
  desk_.counters.bytes_sent += bytes;
  unrung_ = true;
  phase_ = phase::agree;
  if (thrown != nullptr) {
    failure = std::move(thrown);
    own_failure_ = true;
    consume();
  }
  return false;
}

// Everything has come. False when a reduction of the program's threw: `failure`.
inline bool call::take_small() {
  const operation& op = *op_;
  const std::size_t element_bytes = size_of(op.type);
  std::byte* const out = op.receive.address;
  // Elements [first, first + count) of rank r go to place `to` of ours.
  const auto copy = [&](int r, std::int64_t first, std::int64_t to, std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * element_bytes;
    const std::byte* const all = r == rank_ ? op.send.address : theirs(r).data;
    const std::byte* const from = all + static_cast<std::size_t>(first) * element_bytes;
    std::byte* const place = out + static_cast<std::size_t>(to) * element_bytes;
    if (from != place) copy_short(place, from, bytes);
    if (r != rank_) desk_.counters.bytes_received += bytes;
  };
  switch (op.code) {
    case opcode::broadcast:
      if (!at_root()) copy(op.root, 0, 0, op.receive.elements());
      return true;
    case opcode::scatter:
      copy(op.root, rank_ * op.receive.elements(), 0, op.receive.elements());
      return true;
    case opcode::gather:
      if (!at_root()) return true;
      [[fallthrough]];
    case opcode::all_gather: {
      const std::int64_t share = op.receive.elements() / group_.size;
      for (int r = 0; r < group_.size; ++r) copy(r, 0, r * share, share);
      return true;
    }
    case opcode::reduce:
      if (!at_root()) return true;
      [[fallthrough]];
    case opcode::all_reduce:
      return attempt([&] {
        const std::int64_t n = op.receive.elements();
        if (group_.size == 2) {  // as `mover::fold` would, without its way there
          const std::byte* const other = theirs(1 - rank_).data;
          op.reduction.combine(out, rank_ == 0 ? op.send.address : other,
                               rank_ == 0 ? other : op.send.address, n, op.reduction.callable);
          desk_.counters.bytes_received += static_cast<std::size_t>(n) * element_bytes;
          return true;
        }
        const layout flat = layout::flat(n);
        const mover::place result{out, &flat};
        mover m(group_, rank_, desk_.counters);
        m.use_board_only();
        m.fold(
            op.reduction,
            [&](int r) -> mover::place {
              return {r == rank_ ? op.send.address : theirs(r).data, &flat};
            },
            {&result, 1}, 0, 0, n, element_bytes);
        return true;
      });
    default: return true;
  }
}

}  // namespace rankcast::inline v0::local
