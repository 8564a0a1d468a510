/// How data move between ranks that read and write each other's memory. Small data come from the
/// board, or from where they lie as long as they are lent. Of large data each rank takes what it
/// needs from where they lie, and who lent them copies along. The slices of a large reduction
/// belong to one rank each, which folds its slice of all ranks' data and stores it in all their
/// results.
#pragma once

#include <limits>

#include "rankcast/transports/local/call.hpp"

namespace rankcast::inline v0::local {

inline call::moved call::move_direct() {
  mover m(group_, rank_, desk_.counters);
  if (message_) {
    if (op_->sink == nullptr) return moved::all;
    if (has_root(op_->code) && op_->code != opcode::gather) {
      decode_near(op_->root);
    } else {
      for (int r = 0; r < group_.size; ++r) decode_near(r);
    }
    return moved::all;
  }
  const std::size_t element_bytes = element_bytes_;
  std::byte* out = op_->receive.address;
  const layout& out_layout = op_->receive.elements_layout;
  const int n = group_.size;
  // Of anything that lies in one piece, however long.
  const layout flat = layout::flat(std::numeric_limits<std::int64_t>::max());

  // Elements [from, from + count) of rank r's send buffer to position `to` of ours.
  std::vector<transfer>& large = desk_.transfers;
  large.clear();
  const bool past_caches = footprint() >= past_caches_bytes;
  const auto pull = [&](int r, std::int64_t from, std::int64_t to, std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count) * element_bytes;
    transfer t;
    t.source = r;
    t.from_first = from;
    t.to = out;
    t.to_layout = &out_layout;
    t.to_first = to;
    t.count = count;
    t.element_bytes = element_bytes;
    t.past_caches = past_caches;
    if (r == rank_) {  // our own: from the buffer itself, which may be where it is to go
      t.from = op_->send.address;
      t.from_layout = &op_->send.elements_layout;
      mover::copy_own(t);
      return;
    }
    const slot& s = theirs(r);
    if (bytes == 0) return;  // there may be no address
    const auto put = [&](const std::byte* all) {
      const std::byte* data = all + static_cast<std::size_t>(from) * element_bytes;
      if (flat_) std::memcpy(out + static_cast<std::size_t>(to) * element_bytes, data, bytes);
      else copy_elements(out, out_layout, to, data, layout::flat(count), 0, count, element_bytes);
      desk_.counters.bytes_received += bytes;
    };
    if (s.how == form::staged && stages_for_one()) {
      std::byte* const data =
          staged(group_, r, s.place) + static_cast<std::size_t>(from) * element_bytes;
      if (flat_) {
        copy_and_take(out + static_cast<std::size_t>(to) * element_bytes, data, bytes);
        desk_.counters.bytes_received += bytes;
      } else {
        put(data_on_board(group_, r, s));
        take_lines(data, bytes);
      }
      return;
    }
    if (near(s)) {
      put(data_on_board(group_, r, s));
      return;
    }
    if (s.flat && bytes <= group_.sizes.eager_bytes) {  // which may be recalled
      m.guarded([&] { put(data_lent(group_, r, s)); });
      return;
    }
    t.from = reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(s.place));
    t.from_layout = s.flat ? &flat : &detail(r).given;
    large.push_back(t);
  };
  // Where the data of all ranks are, for a fold, which asks with its mark raised.
  const auto source = [&](int r) -> mover::place {
    if (r == rank_) return {op_->send.address, &op_->send.elements_layout};
    const slot& s = theirs(r);
    if (near(s)) return {const_cast<std::byte*>(data_on_board(group_, r, s)), &flat};
    if (s.flat) return {const_cast<std::byte*>(data_lent(group_, r, s)), &flat};
    return {reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(s.place)), &detail(r).given};
  };
  // Folds elements [first, first + count) of all ranks into our own result.
  const auto fold = [&](std::int64_t first, std::int64_t count) {
    const mover::place result{out, &out_layout};
    m.fold(op_->reduction, source, {&result, 1}, 0, first, count, element_bytes);
    if (!stages_for_one()) return;
    for (int r = 0; r < n; ++r) {
      const slot& s = theirs(r);
      if (r == rank_ || s.how != form::staged) continue;
      take_lines(staged(group_, r, s.place) + static_cast<std::size_t>(first) * element_bytes,
                 static_cast<std::size_t>(count) * element_bytes);
    }
  };
  if (op_->reduction.fold != nullptr && all_awaited([&](int r) { return near(theirs(r)); })) {
    m.use_board_only();
  }

  switch (op_->code) {
    case opcode::barrier:
    case opcode::close:
    case opcode::send:
    case opcode::receive: return moved::all;

    case opcode::broadcast:
      if (!at_root()) pull(op_->root, 0, 0, op_->receive.elements());
      break;

    case opcode::scatter: {
      if (!op_->receive.given) return moved::all;
      const block b = share_of_scatter();
      pull(op_->root, b.first, 0, b.count);
      break;
    }

    case opcode::gather:
      if (!at_root()) return moved::all;
      [[fallthrough]];
    case opcode::all_gather:
    case opcode::split:
      // Each rank begins with its neighbour, so that no one's memory is read by all at once.
      for (int i = 1; i <= n; ++i) {
        const int r = (rank_ + i) % n;
        const block b = block_of(op_->counts, op_->receive.elements(), r, n);
        pull(r, 0, b.first, b.count);
      }
      break;

    case opcode::all_to_all:
      for (int i = 1; i <= n; ++i) {
        const int r = (rank_ + i) % n;
        const block from =
            block_of(counts_of(group_, r, sequence_), op_->send.elements(), rank_, n);
        const block to = block_of(op_->receive_counts, op_->receive.elements(), r, n);
        if (r == rank_ && op_->send.address == op_->receive.address) {
          // In place: our own block may move too, so it comes from the copy that the others read.
          const slot& s = own_slot();
          const std::byte* data = near(s) ? data_on_board(group_, rank_, s) : kept_.data();
          copy_elements(out, out_layout, to.first, data, flat, from.first, to.count, element_bytes);
        } else {
          pull(r, from.first, to.first, to.count);
        }
      }
      break;

    case opcode::reduce:
      if (at_root()) fold(0, op_->receive.elements());
      break;

    case opcode::reduce_scatter: {
      const block b = block_of(op_->counts, op_->send.elements(), rank_, n);
      fold(b.first, b.count);
      break;
    }

    case opcode::all_reduce: {
      if (!slices_follow()) {  // cheaper than a second round: everyone folds everything
        fold(0, op_->receive.elements());
        break;
      }
      std::vector<mover::place> results;
      for (int r = 0; r < n; ++r) {
        const slot& s = theirs(r);
        results.push_back(
            {reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(s.lent().result)),
             s.flat ? &flat : &detail(r).wanted});
      }
      const slice mine = partition(op_->receive.elements(), n, rank_);
      m.fold(op_->reduction, source, results, mine.first, mine.first, mine.count, element_bytes);
      return moved::own_slice;
    }
  }
  if (!large.empty()) m.copy_all(large);
  return moved::all;
}

inline void call::decode_near(int from) {
  const slot& s = theirs(from);
  const auto which = static_cast<std::size_t>(one_each() ? rank_ : 0);
  if (from == rank_) {  // nothing comes from anybody else
    const std::uint64_t before = desk_.counters.bytes_received;
    mover m(group_, rank_, desk_.counters);
    shared_segments segments(m, -1, messages_[which], [] { return true; });
    op_->sink->decode(from, messages_[which].head(), segments);
    desk_.counters.bytes_received = before;
    return;
  }
  if (near(s)) {
    const flat_view content({data_on_board(group_, from, s), static_cast<std::size_t>(s.bytes)},
                            static_cast<int>(which));
    flat_segments segments(content);
    op_->sink->decode(from, content.header, segments);
    desk_.counters.bytes_received += content.header.size() + content.segments.size();
    return;
  }
  const message& content =
      reinterpret_cast<const message*>(static_cast<std::uintptr_t>(s.place))[which];
  mover m(group_, rank_, desk_.counters);
  shared_segments segments(m, from, content, [] { return true; });
  op_->sink->decode(from, content.head(), segments);
  desk_.counters.bytes_received += content.head().size();
}

}  // namespace rankcast::inline v0::local
