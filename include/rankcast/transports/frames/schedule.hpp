/// What each rank sends and takes in each collective: everything goes straight from where it lies
/// to where it is needed (but for broadcasts, route.hpp). The slices of a large reduction
/// belong to one rank each, which folds its slice of all ranks' data and sends the result to all.
#pragma once

#include "rankcast/transports/frames/call.hpp"

namespace rankcast::inline v0::frames {

inline supply call::share_for(int to) const {
  if (op_.source != nullptr) {
    return supply(messages_[op_.code == opcode::scatter ? static_cast<std::size_t>(to) : 0]);
  }
  if (!op_.send.given) return {};
  const std::int64_t all = op_.send.elements();
  switch (op_.code) {
    case opcode::scatter:
    case opcode::reduce_scatter: {
      const block b = block_of(op_.counts, all, to, group_.size);
      return {op_.send, b.first, b.count};
    }
    case opcode::all_to_all: {
      buffer from = op_.send;
      if (!stage_.empty()) {
        from.address = const_cast<std::byte*>(stage_.data());
        from.elements_layout = layout::flat(all);
      }
      const block b = block_of(op_.counts, all, to, group_.size);
      return {from, b.first, b.count};
    }
    case opcode::all_reduce:
      if (slices_follow()) {
        const slice s = partition(all, group_.size, to);
        return {op_.send, s.first, s.count};
      }
      [[fallthrough]];
    default: return {op_.send, 0, all};
  }
}

// This rank's own block, from its send to its receive buffer.
inline void call::move_own() {
  if (is_message(op_) || !op_.send.given || !op_.receive.given) return;
  const std::int64_t all_sent = op_.send.elements();
  const std::int64_t all_received = op_.receive.elements();
  const int me = group_.rank;
  block from{0, all_sent};
  block to{0, all_received};
  switch (op_.code) {
    case opcode::scatter: from = block_of(op_.counts, all_sent, me, group_.size); break;
    case opcode::gather:
    case opcode::all_gather:
    case opcode::split: to = block_of(op_.counts, all_received, me, group_.size); break;
    case opcode::all_to_all:
      from = block_of(op_.counts, all_sent, me, group_.size);
      to = block_of(op_.receive_counts, all_received, me, group_.size);
      break;
    default: return;
  }
  const bool staged = !stage_.empty();
  copy_elements(op_.receive.address, op_.receive.elements_layout, to.first,
                staged ? stage_.data() : op_.send.address,
                staged ? layout::flat(all_sent) : op_.send.elements_layout, from.first, to.count,
                size_of(op_.type));
}

inline bool call::move_data() {
  if (is_message(op_)) return op_.sink == nullptr || move_messages();
  const int n = group_.size;
  const std::int64_t all = op_.receive.elements();
  // Block by block from all peers; each is looked at, so that all of them go on.
  const auto take_blocks = [&](std::span<const std::int64_t> counts) {
    bool finished = true;
    for (int r = 0; r < n; ++r) {
      if (r == group_.rank) continue;
      const block b = block_of(counts, all, r, n);
      finished = take(r, 0, b.first, b.count) && finished;
    }
    return finished;
  };
  switch (op_.code) {
    case opcode::broadcast: {
      if (at_root()) return true;
      const bool finished = take(feeder(), 0, 0, all);
      for (outgoing& s : out_) {  // of those that are behind
        s.available = theirs(feeder()).streams[0].consumed();
        pump(s);
      }
      drop_chunks();
      return finished;
    }
    case opcode::scatter: return at_root() || !op_.receive.given || take(op_.root, 0, 0, all);
    case opcode::gather: return !at_root() || take_blocks(op_.counts);
    case opcode::all_gather:
    case opcode::split: return take_blocks(op_.counts);
    case opcode::all_to_all: return take_blocks(op_.receive_counts);
    case opcode::reduce: return !at_root() || fold(0, 0, all);
    case opcode::reduce_scatter: {
      const block b = block_of(op_.counts, op_.send.elements(), group_.rank, n);
      return fold(0, b.first, b.count);
    }
    case opcode::all_reduce: {
      if (!slices_follow()) return fold(0, 0, all);
      const slice s = partition(all, n, group_.rank);
      return fold(s.first, s.first, s.count);
    }
    default: return true;
  }
}

inline bool call::take(int from, std::uint8_t stream, std::int64_t to_first, std::int64_t count) {
  incoming& s = theirs(from).streams[stream];
  const std::size_t size = size_of(op_.type);
  if (s.total() != static_cast<std::uint64_t>(count) * size) {
    revocation why;
    why.sequence = sequence_;
    why.text = text() + ": rank " + std::to_string(from) + " announced " +
               std::to_string(s.total()) + " bytes for " + std::to_string(count) + " elements";
    claim(group_, std::move(why));
    throw group_revoked{};
  }
  group_.grant(from, sequence_, stream, s);
  while (!s.front().empty()) {
    const auto front = s.front();
    const auto n = static_cast<std::int64_t>(front.size() / size);
    copy_elements(op_.receive.address, op_.receive.elements_layout,
                  to_first + static_cast<std::int64_t>(s.consumed() / size), front.data(),
                  layout::flat(n), 0, n, size);
    group_.counters.bytes_received += front.size();
    s.pop(front.size(), *group_.lines);
    group_.grant(from, sequence_, stream, s);
  }
  return s.finished();
}

// Folds as many elements as have arrived of all ranks, in rank order.
inline bool call::fold(std::int64_t to_first, std::int64_t first, std::int64_t count) {
  const std::size_t size = size_of(op_.type);
  const auto arrived_elements = [&] {
    std::int64_t n = count - folded_;
    for (int r = 0; r < group_.size; ++r) {
      if (r == group_.rank) continue;
      incoming& s = theirs(r).streams[0];
      group_.grant(r, sequence_, 0, s);
      n = std::min(n, static_cast<std::int64_t>(s.front().size() / size));
    }
    return n;
  };
  accumulator sum(op_.reduction);
  for (std::int64_t ready = arrived_elements(); ready > 0; ready = arrived_elements()) {
    const std::int64_t n = std::min(ready, sum.capacity());
    try {
      for (int r = 0; r < group_.size; ++r) {
        if (r == group_.rank) {
          sum.add(r == 0, op_.send.address, op_.send.elements_layout, first + folded_, n, size);
        } else {
          sum.add(r == 0, theirs(r).streams[0].front().data(), layout::flat(n), 0, n, size);
        }
      }
    } catch (...) {  // the others are to be told
      fail_own(std::current_exception());
      return true;
    }
    sum.store(op_.receive.address, op_.receive.elements_layout, to_first + folded_, n, size);
    for (int r = 0; r < group_.size; ++r) {
      if (r == group_.rank) continue;
      theirs(r).streams[0].pop(static_cast<std::size_t>(n) * size, *group_.lines);
      group_.counters.bytes_received += static_cast<std::uint64_t>(n) * size;
    }
    folded_ += n;
  }
  return folded_ == count;
}

inline void call::announce_slice() {
  const slice s = partition(op_.receive.elements(), group_.size, group_.rank);
  const std::string note = failure == nullptr ? std::string() : failure_text();
  for (int r = 0; r < group_.size; ++r) {
    if (r == group_.rank) continue;
    group_.decline(r, sequence_, 0, theirs(r).streams[0]);  // where the fold has failed
    supply bytes = note.empty() ? supply(op_.receive, s.first, s.count) : supply();
    const bool whole = small(bytes);
    send_head(r, kind::slice, 1, std::move(bytes), whole,
              [&](frame& f) { detail::byte_writer(f).put_text(note); });
  }
  phase_ = phase::slices;
}

inline bool call::collect_slices() {
  bool finished = true;
  for (int r = 0; r < group_.size; ++r) {
    if (r == group_.rank) continue;
    peer_call& p = theirs(r);
    if (!p.streams[1].announced()) {
      finished = false;
    } else if (!p.slice_failure.empty()) {
      if (failure == nullptr) {
        failure = std::make_exception_ptr(remote_error(
            text() + ": rank " + std::to_string(r) + " failed: " + p.slice_failure, r));
      }
    } else {
      const slice s = partition(op_.receive.elements(), group_.size, r);
      finished = take(r, 1, s.first, s.count) && finished;
    }
  }
  return finished;
}

inline bool call::move_messages() {
  const bool from_root = has_root(op_.code) && op_.code != opcode::gather;
  const int sources = from_root ? 1 : group_.size;
  try {
    for (; next_source_ < sources; ++next_source_) {
      const int from = from_root ? op_.root : next_source_;
      if (from == group_.rank) {
        const message& own =
            messages_[op_.code == opcode::scatter ? static_cast<std::size_t>(from) : 0];
        own_segments segments(own);
        op_.sink->decode(from, own.head(), segments);
        continue;
      }
      const int feeds_us = from_root ? feeder() : from;
      incoming& s = theirs(feeds_us).streams[0];
      if (!intake_.step(group_, from, feeds_us, sequence_, 0, s, *op_.sink, waiter_)) return false;
      if (!relays()) group_.decline(from, sequence_, 0, s);
      intake_.clear();
    }
  } catch (const group_revoked&) {
    throw;
  } catch (...) {
    fail_own(std::current_exception());
    next_source_ = sources;
  }
  return !relays() || pass_rest_on();
}

// The decoder has done with the message, or failed. Other ranks want what may be left of it.
inline bool call::pass_rest_on() {
  incoming& s = theirs(feeder()).streams[0];
  if (std::all_of(out_.begin(), out_.end(), [](const outgoing& o) { return o.skipped; })) {
    return true;  // the rest will be declined
  }
  group_.grant(feeder(), sequence_, 0, s);
  while (!s.front().empty()) {
    s.pop(s.front().size(), *group_.lines);
    group_.grant(feeder(), sequence_, 0, s);
  }
  return s.finished();
}

}  // namespace rankcast::inline v0::frames
