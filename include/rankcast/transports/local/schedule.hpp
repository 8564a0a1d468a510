/// What each rank moves in each collective: every rank pulls what it needs from where it lies. The
/// slices of a large reduction belong to one rank each, which folds its slice of all ranks' data.
#pragma once

#include "rankcast/transports/local/call.hpp"

namespace rankcast::inline v0::local {

inline bool call::move_own_part() {
  mover m(group_, rank_, counters_);
  if (is_message(op_)) {
    if (op_.sink != nullptr) receive_messages(m);
    return false;
  }
  const std::size_t element_bytes = size_of(op_.type);
  std::byte* out = op_.receive.address;
  const layout& out_layout = op_.receive.elements_layout;
  const int n = group_.size;
  // Elements [from, from + count) of rank r's send buffer to position `to` of ours.
  const auto pull = [&](int r, std::int64_t from, std::int64_t to, std::int64_t count) {
    if (r == rank_) {  // our own: from the buffer itself, which may be where it is to go
      copy_elements(out, out_layout, to, op_.send.address, op_.send.elements_layout, from, count,
                    element_bytes);
      return;
    }
    const publication& theirs = group_.slot(r, sequence_);
    m.copy(out, out_layout, to, theirs.data, theirs.data_layout, from, count, element_bytes);
  };

  switch (op_.code) {
    case opcode::barrier:
    case opcode::close:
    case opcode::send:
    case opcode::receive: return false;

    case opcode::broadcast:
      if (!at_root()) pull(op_.root, 0, 0, op_.receive.elements());
      return false;

    case opcode::scatter: {
      if (!op_.receive.given) return false;
      const publication& root = group_.slot(op_.root, sequence_);
      const block b = root.counts.empty()
                          ? block{op_.receive.elements() * rank_, op_.receive.elements()}
                          : block_of(root.counts, 0, rank_, n);
      pull(op_.root, b.first, 0, b.count);
      return false;
    }

    case opcode::gather:
      if (!at_root()) return false;
      [[fallthrough]];
    case opcode::all_gather:
    case opcode::split:
      // Each rank begins with its neighbour, so that no one's memory is read by all at once.
      for (int i = 0; i < n; ++i) {
        const int r = (rank_ + i) % n;
        const block b = block_of(op_.counts, op_.receive.elements(), r, n);
        pull(r, 0, b.first, b.count);
      }
      return false;

    case opcode::all_to_all:
      for (int i = 0; i < n; ++i) {
        const int r = (rank_ + i) % n;
        const publication& theirs = group_.slot(r, sequence_);
        const block from = block_of(theirs.counts, op_.send.elements(), rank_, n);
        const block to = block_of(op_.receive_counts, op_.receive.elements(), r, n);
        if (r == rank_ && op_.send.address == op_.receive.address) {
          // In place: our own block may move too, so it comes from the copy in the slot.
          copy_elements(out, out_layout, to.first, theirs.data, theirs.data_layout, from.first,
                        to.count, element_bytes);
        } else {
          pull(r, from.first, to.first, to.count);
        }
      }
      return false;

    case opcode::reduce:
      if (at_root()) {
        m.fold(sequence_, op_.reduction, out, out_layout, 0, 0, op_.receive.elements(),
               element_bytes);
      }
      return false;

    case opcode::reduce_scatter: {
      const block b = block_of(op_.counts, op_.send.elements(), rank_, n);
      m.fold(sequence_, op_.reduction, out, out_layout, 0, b.first, b.count, element_bytes);
      return false;
    }

    case opcode::all_reduce: {
      if (small_) {  // cheaper than a second round: everyone folds everything
        m.fold(sequence_, op_.reduction, out, out_layout, 0, 0, op_.receive.elements(),
               element_bytes);
        return false;
      }
      const slice mine = partition(op_.receive.elements(), n, rank_);
      try {
        m.fold(sequence_, op_.reduction, out, out_layout, mine.first, mine.first, mine.count,
               element_bytes);
      } catch (const group_revoked&) {
        throw;
      } catch (...) {  // the others wait for the slice: they are to be told
        failure = std::current_exception();
      }
      return true;
    }
  }
  return false;
}

inline void call::collect_slices() {
  mover m(group_, rank_, counters_);
  const std::size_t element_bytes = size_of(op_.type);
  for (int i = 1; i < group_.size; ++i) {
    const int r = (rank_ + i) % group_.size;
    const publication& theirs = group_.slot(r, sequence_);
    if (!theirs.slice_failure.empty()) {
      if (failure == nullptr) {
        failure = std::make_exception_ptr(remote_error(call_text(group_.name, op_, sequence_) +
                                                           ": rank " + std::to_string(r) +
                                                           " failed: " + theirs.slice_failure,
                                                       r));
      }
      continue;
    }
    const slice s = partition(op_.receive.elements(), group_.size, r);
    m.copy(op_.receive.address, op_.receive.elements_layout, s.first, theirs.result,
           theirs.result_layout, s.first, s.count, element_bytes);
  }
  tell_failure();
}

inline void call::receive_messages(mover& m) {
  const auto receive = [&](int from) {
    const publication& theirs = group_.slot(from, sequence_);
    const auto which = static_cast<std::size_t>(op_.code == opcode::scatter ? rank_ : 0);
    const message& content = theirs.messages[which];
    shared_segments segments(m, content, [] { return true; });
    const std::uint64_t before = counters_.bytes_received;
    op_.sink->decode(from, content.header, segments);
    counters_.bytes_received += content.header.size();
    if (from == rank_) counters_.bytes_received = before;
  };
  if (has_root(op_.code) && op_.code != opcode::gather) {
    receive(op_.root);
  } else {
    for (int r = 0; r < group_.size; ++r) receive(r);
  }
}

}  // namespace rankcast::inline v0::local
