/// How data move between ranks that see of each other only the board. Each rank puts what it gives
/// into its stream ring, piece by piece, and its readers take it from there: two copies, the second
/// of them while the next piece is written.
#pragma once

#include "rankcast/transports/local/call.hpp"

namespace rankcast::inline v0::local {

/// The segments of a message that is still coming; reading waits for them.
class streamed_segments final : public segment_reader {
 public:
  streamed_segments(inflow& in, std::span<const std::uint64_t> sizes, desk& d) noexcept
      : in_(in), sizes_(sizes), desk_(d) {}
  [[nodiscard]] std::span<const std::uint64_t> sizes() const noexcept override { return sizes_; }
  void read(std::span<std::byte> to) override {
    require_segment(sizes_, next_++, to.size());
    for (int attempt = 0; !to.empty(); ++attempt) {
      const auto front = in_.front();
      if (front.empty()) {
        if (in_.finished()) throw decode_error("message: it is shorter than its table says");
        desk_.waits.wait_once(attempt);
        continue;
      }
      const std::size_t n = std::min(front.size(), to.size());
      in_.pop_to(to.data(), n);
      desk_.counters.bytes_received += n;
      to = to.subspan(n);
      attempt = 0;
    }
  }

 private:
  inflow& in_;
  std::span<const std::uint64_t> sizes_;
  desk& desk_;
  std::size_t next_ = 0;
};

inline void call::begin_streams() {
  streamed_ = true;
  const auto n = static_cast<std::size_t>(group_.size);
  streams_.begun = false;
  streams_.round = 0;
  streams_.in.assign(n, {});
  streams_.back.assign(n, {});
  streams_.plans.resize(n);
  folded_ = 0;
  next_source_ = 0;
  intake_.clear();
  out_.clear();
  if (own_slot().how != form::streams) return;
  for (const message& m : messages_) out_.emplace_back(m);
  begin_stream();
}

inline void call::begin_stream() {
  streaming& s = streams_;
  s.plan = plan_of(rank_);
  s.begun = true;
  const std::uint64_t begin = desk_.streams.begin(sequence_, reader(), slices_follow());
  for (int r = 0; r < group_.size && slices_follow(); ++r) {
    if (r == rank_) continue;
    s.back[static_cast<std::size_t>(r)].open_back(group_, rank_, r, s.plan, begin,
                                                  desk_.streams.taken_back(r));
  }
  own_detail().stream_begin.store(begin + 1, std::memory_order_seq_cst);
  group_.ring_others(rank_);
}

inline stream_plan call::plan_of(int owner) const {
  const int n = group_.size;
  const std::uint64_t element_bytes = size_of(op_->type);
  const auto to_all = [&](std::uint64_t bytes) {
    return stream_plan(bytes, owner, n, piece_bytes(group_, 1, bytes));
  };
  const auto to_each = [&](auto&& share) {
    std::uint64_t most = 0;
    for (int r = 0; r < n; ++r) most = std::max<std::uint64_t>(most, r == owner ? 0 : share(r));
    return stream_plan(owner, n, piece_bytes(group_, n - 1, most), share);
  };
  const std::uint64_t bytes = theirs(owner).bytes;
  if (message_) {
    if (!one_each()) return to_all(bytes);
    const std::int64_t* sizes = group_.lines.counts(owner, sequence_);
    return to_each([&](int r) { return static_cast<std::uint64_t>(sizes[r]); });
  }
  const auto elements = static_cast<std::int64_t>(bytes / element_bytes);
  const auto blocks = [&](std::span<const std::int64_t> counts) {
    return to_each([&](int r) {
      return static_cast<std::uint64_t>(block_of(counts, elements, r, n).count) * element_bytes;
    });
  };
  switch (op_->code) {
    case opcode::scatter:
    case opcode::all_to_all: return blocks(counts_of(group_, owner, sequence_));
    case opcode::reduce_scatter: return blocks(op_->counts);
    case opcode::all_reduce:
      return to_each([&](int r) {
        return static_cast<std::uint64_t>(partition(elements, n, r).count) * element_bytes;
      });
    default: return to_all(bytes);
  }
}

// Bytes of the stream to `reader`, from `first` on.
inline void call::fill(int reader, std::uint64_t first, std::span<std::byte> to, bool ahead) {
  if (!out_.empty()) {
    out_[one_each() ? static_cast<std::size_t>(reader) : 0].read(to);
    return;
  }
  const std::size_t element_bytes = size_of(op_->type);
  const int n = group_.size;
  buffer from = op_->send;
  std::int64_t begin = 0;
  if (!streams_.plan.common()) {
    begin = slices_follow() ? partition(from.elements(), n, reader).first
                            : block_of(op_->counts, from.elements(), reader, n).first;
  }
  if (!kept_.empty() && op_->code == opcode::all_to_all &&
      op_->send.address == op_->receive.address) {
    from.address = kept_.data();
    from.elements_layout = layout::flat(from.elements());
  }
  copy_to(to.data(), from, begin + static_cast<std::int64_t>(first / element_bytes),
          static_cast<std::int64_t>(to.size() / element_bytes),
          has_one_reader(streams_.plan) ? nullptr : &desk_.stream_filler, ahead);
}

inline bool call::pump() {
  if (!streamed_ || (phase_ != phase::move && phase_ != phase::slices)) return false;
  streaming& p = streams_;
  bool went_on = false;
  // At most a ring at a time: a reader that empties it meanwhile would keep this rank for ever.
  const std::uint64_t until = desk_.streams.written() + group_.ring_bytes;
  while (!p.all_out() && desk_.streams.written() < until) {
    const std::uint64_t bytes = p.plan.round_bytes(p.round);
    if (!desk_.streams.fits(bytes)) break;
    const std::uint64_t begin = desk_.streams.written();
    const bool ahead = desk_.streams.backlog() >= group_.ring_bytes / 2;
    const auto put = [&](int reader, std::uint64_t offset) {
      std::uint64_t at = begin + offset;
      std::uint64_t first = p.round * p.plan.piece();
      for (std::uint64_t left = p.plan.bytes_of(reader, p.round); left > 0;) {
        const std::span<std::byte> place = desk_.streams.at(at, left);
        fill(reader, first, place, ahead);
        at += place.size();
        first += place.size();
        left -= place.size();
      }
    };
    if (p.plan.common()) {
      put(0, 0);
    } else {
      for (int i = 1; i < group_.size; ++i) {
        const int r = (rank_ + i) % group_.size;
        put(r, p.plan.offset_of(r, p.round));
      }
    }
    ++p.round;
    desk_.streams.advance(bytes);
    went_on = true;
  }
  return went_on;
}

inline call::moved call::move_streams() {
  if (!moves_data(op_->code)) return moved::all;
  if (nothing_streams() && !slices_follow()) {
    if (failure == nullptr) attempt([&] { return move_direct() == moved::all; });
    return moved::all;
  }
  pump();
  bool taken = failure != nullptr;
  if (!taken) {
    taken = attempt([&] { return take_streams(); });
    pump();
  }
  if (failure != nullptr) {
    skip_streams();
    taken = true;
  }
  if (slices_follow()) {
    take_back();
    if (taken && (failure == nullptr || own_failure_)) return moved::own_slice;
  }
  return taken && streams_.all_out() ? moved::all : moved::not_yet;
}

// What others stream to this rank is passed over, so that they get on.
inline void call::skip_streams() {
  for (int r = 0; r < group_.size; ++r) {
    if (r == rank_ || !reads_from(r) || !arrived(r) || theirs(r).how != form::streams) continue;
    if (inflow* f = inflow_from(r)) f->skip();
  }
}

// The stream of a rank, once it has begun.
inline inflow* call::inflow_from(int source) {
  const auto i = static_cast<std::size_t>(source);
  inflow& f = streams_.in[i];
  if (f.is_open()) return &f;
  const std::uint64_t begin = detail(source).stream_begin.load(std::memory_order_seq_cst);
  if (begin == 0) return nullptr;
  streams_.plans[i] = plan_of(source);
  f.open(group_, source, rank_, streams_.plans[i], begin - 1,
         has_one_reader(streams_.plans[i]) && !slices_follow());
  return &f;
}

inline bool call::take_streams() {
  if (message_) return op_->sink == nullptr || receive_streamed_messages();
  copy_own_block();
  const int n = group_.size;
  const std::int64_t all = op_->receive.elements();
  switch (op_->code) {
    case opcode::broadcast: return at_root() || take(op_->root, std::int64_t{0});
    case opcode::scatter:
      return at_root() || !op_->receive.given || take(op_->root, std::int64_t{0});
    case opcode::gather: return !at_root() || take_blocks(op_->counts);
    case opcode::all_gather:
    case opcode::split: return take_blocks(op_->counts);
    case opcode::all_to_all: return take_blocks(op_->receive_counts);
    case opcode::reduce: return !at_root() || fold_streams(0, 0, all);
    case opcode::reduce_scatter: {
      const block b = block_of(op_->counts, op_->send.elements(), rank_, n);
      return fold_streams(0, b.first, b.count);
    }
    case opcode::all_reduce: {
      const slice s = partition(all, n, rank_);
      return fold_streams(s.first, s.first, s.count);
    }
    default: return true;
  }
}

// From the send to the receive buffer, once.
inline void call::copy_own_block() {
  inflow& own = streams_.in[static_cast<std::size_t>(rank_)];
  if (own.finished()) return;
  own.skip();
  if (!op_->send.given || !op_->receive.given) return;
  const std::int64_t sent = op_->send.elements();
  const std::int64_t received = op_->receive.elements();
  block from{0, sent};
  block to{0, received};
  switch (op_->code) {
    case opcode::scatter: from = block_of(op_->counts, sent, rank_, group_.size); break;
    case opcode::gather:
    case opcode::all_gather:
    case opcode::split: to = block_of(op_->counts, received, rank_, group_.size); break;
    case opcode::all_to_all:
      from = block_of(op_->counts, sent, rank_, group_.size);
      to = block_of(op_->receive_counts, received, rank_, group_.size);
      break;
    default: return;
  }
  const bool in_place =
      op_->code == opcode::all_to_all && op_->send.address == op_->receive.address;
  const std::byte* data = op_->send.address;
  layout l = op_->send.elements_layout;
  if (in_place) {
    data = near(own_slot()) ? data_on_board(group_, rank_, own_slot()) : kept_.data();
    l = layout::flat(sent);
  }
  transfer t;
  t.from = data;
  t.from_layout = &l;
  t.from_first = from.first;
  t.to = op_->receive.address;
  t.to_layout = &op_->receive.elements_layout;
  t.to_first = to.first;
  t.count = to.count;
  t.element_bytes = element_bytes_;
  t.past_caches = footprint() >= past_caches_bytes;
  mover::copy_own(t);
}

// Block by block from all peers; each is looked at, so that all of them go on.
inline bool call::take_blocks(std::span<const std::int64_t> counts) {
  bool finished = true;
  for (int i = 1; i < group_.size; ++i) {
    const int r = (rank_ + i) % group_.size;
    const block b = block_of(counts, op_->receive.elements(), r, group_.size);
    finished = take(r, b.first) && finished;
  }
  return finished;
}

// As much as has come of what `source` has for this rank.
inline bool call::take(int source, std::int64_t to_first) {
  if (theirs(source).how == form::streams) {
    inflow* f = inflow_from(source);
    return f != nullptr && take(*f, to_first);
  }
  inflow& f = streams_.in[static_cast<std::size_t>(source)];
  if (f.finished()) return true;
  f.skip();
  if (!near(theirs(source))) return true;  // it gives nothing
  block b{0, static_cast<std::int64_t>(theirs(source).bytes / element_bytes_)};
  if (op_->code == opcode::all_to_all) {
    b = block_of(counts_of(group_, source, sequence_), b.count, rank_, group_.size);
  } else if (op_->code == opcode::scatter) {
    b = share_of_scatter();
  }
  if (b.count != 0) {
    copy_elements(op_->receive.address, op_->receive.elements_layout, to_first,
                  data_on_board(group_, source, theirs(source)) +
                      static_cast<std::size_t>(b.first) * element_bytes_,
                  layout::flat(b.count), 0, b.count, element_bytes_);
    desk_.counters.bytes_received += static_cast<std::size_t>(b.count) * element_bytes_;
  }
  return true;
}
inline bool call::take(inflow& f, std::int64_t to_first) {
  const bool flat = op_->receive.elements_layout.is_contiguous();
  const way preferred = footprint() >= past_caches_bytes ? way::past : way::cached;
  for (auto front = f.front(); !front.empty(); front = f.front()) {
    const std::int64_t at = to_first + static_cast<std::int64_t>(f.consumed() / element_bytes_);
    if (flat) {
      f.pop_to(op_->receive.address + at * static_cast<std::int64_t>(element_bytes_), front.size(),
               preferred);
    } else {
      const auto count = static_cast<std::int64_t>(front.size() / element_bytes_);
      copy_elements(op_->receive.address, op_->receive.elements_layout, at, front.data(),
                    layout::flat(count), 0, count, element_bytes_);
      f.pop(front.size());
    }
    desk_.counters.bytes_received += front.size();
    pump();
  }
  return f.finished();
}

inline bool call::receive_streamed_messages() {
  const bool from_root = has_root(op_->code) && op_->code != opcode::gather;
  if (op_->code == opcode::gather && !at_root()) return true;
  for (; next_source_ < (from_root ? 1 : group_.size); ++next_source_) {
    const int from = from_root ? op_->root : next_source_;
    if (from == rank_ || theirs(from).how != form::streams) {
      decode_near(from);
      continue;
    }
    inflow* f = inflow_from(from);
    if (f == nullptr) return false;
    while (!intake_.complete()) {
      const auto front = f->front();
      if (front.empty()) {
        if (f->finished()) throw decode_error("message: it is shorter than its table says");
        return false;
      }
      const std::size_t n = std::min(front.size(), intake_.missing());
      intake_.add(front.first(n), f->total());
      f->pop(n);
      desk_.counters.bytes_received += n;
    }
    streamed_segments segments(*f, intake_.sizes(), desk_);
    op_->sink->decode(from, intake_.header(), segments);
    f->skip();
    intake_.clear();
  }
  return true;
}

}  // namespace rankcast::inline v0::local
