/// Reductions of what streams, and the slices of a large all_reduce: each rank folds one, whose
/// values the others have put into their rings, and leaves the result where the values stood, so
/// that its owner takes it back from there.
#pragma once

#include "rankcast/transports/local/call.hpp"

namespace rankcast::inline v0::local {

// `n` elements that have come of all ranks, in rank order. Of a slice of all_reduce, the result is
// also left where the others' values stood.
inline void call::fold_pieces(accumulator& sum, std::int64_t to_first, std::int64_t first,
                              std::int64_t n) {
  const layout flat = layout::flat(n);
  const auto from = [&](int r) { return streams_.in[static_cast<std::size_t>(r)].place(); };
  for (int r = 0; r < group_.size; ++r) {
    if (r == rank_) {
      sum.add(r == 0, op_->send.address, op_->send.elements_layout, first + folded_, n,
              element_bytes_);
    } else {
      sum.add(r == 0, from(r), flat, 0, n, element_bytes_);
    }
  }
  sum.store(op_->receive.address, op_->receive.elements_layout, to_first + folded_, n,
            element_bytes_);
  for (int r = 0; r < group_.size && slices_follow(); ++r) {
    if (r != rank_) sum.store(from(r), flat, 0, n, element_bytes_);
  }
}
// Two ranks' values that lie in one piece each are combined as they are; what is left for the other
// one is written where its value was read a moment ago (see copying.hpp).
inline void call::combine_pieces(std::int64_t to_first, std::int64_t first, std::int64_t n) {
  const auto size = static_cast<std::int64_t>(element_bytes_);
  const std::byte* const own = op_->send.address + (first + folded_) * size;
  std::byte* const other = streams_.in[static_cast<std::size_t>(1 - rank_)].place();
  std::byte* const result = op_->receive.address + (to_first + folded_) * size;
  std::byte* const at_once = slices_follow() ? other : result;
  op_->reduction.combine(at_once, rank_ == 0 ? own : other, rank_ == 0 ? other : own, n,
                         op_->reduction.callable);
  if (at_once != result) std::memcpy(result, at_once, static_cast<std::size_t>(n * size));
}

// Folds as many elements as have come of all ranks.
inline bool call::fold_streams(std::int64_t to_first, std::int64_t first, std::int64_t count) {
  const auto come = [&] {
    std::int64_t n = count - folded_;
    for (int r = 0; r < group_.size; ++r) {
      if (r == rank_) continue;
      inflow* f = inflow_from(r);  // also where nothing comes: it says so to the sender
      n = f == nullptr ? 0
                       : std::min(n, static_cast<std::int64_t>(f->front().size() / element_bytes_));
    }
    return n;
  };
  const bool two = group_.size == 2 && op_->send.elements_layout.is_contiguous() &&
                   op_->receive.elements_layout.is_contiguous();
  accumulator sum(op_->reduction);
  std::int64_t most = sum.capacity();
  if (two) most = slices_follow() ? static_cast<std::int64_t>(in_cache / element_bytes_) : count;
  for (std::int64_t ready = come(); ready > 0; ready = come()) {
    const std::int64_t n = std::min(ready, most);
    if (two) combine_pieces(to_first, first, n);
    else fold_pieces(sum, to_first, first, n);
    for (int r = 0; r < group_.size; ++r) {
      if (r == rank_) continue;
      streams_.in[static_cast<std::size_t>(r)].pop(static_cast<std::size_t>(n) * element_bytes_);
      desk_.counters.bytes_received += static_cast<std::uint64_t>(n) * element_bytes_;
    }
    folded_ += n;
    pump();
  }
  return folded_ == count;
}

// All have folded their slices, or say why not.
inline bool call::collect_slices() {
  bool finished = true;
  if (!direct()) {
    pump();
    finished = take_back();
    finished = streams_.all_out() && finished;
  }
  for (int r = 0; r < group_.size; ++r) {
    if (r == rank_) continue;
    if (ticks_of(r) < tick(sequence_, stage::slice_ready)) {
      finished = false;
      continue;
    }
    const detail_of_call& d = detail(r);
    if (d.slice_failed && failure == nullptr) {
      failure = std::make_exception_ptr(
          remote_error(text() + ": rank " + std::to_string(r) + " failed: " + get_text(d.text), r));
      finished = false;  // nothing more is taken back
    }
  }
  if (!finished) return false;
  if (direct() && failure == nullptr) {  // the others have written their slices here
    const std::int64_t own = partition(op_->receive.elements(), group_.size, rank_).count;
    desk_.counters.bytes_received +=
        static_cast<std::uint64_t>(op_->receive.elements() - own) * element_bytes_;
  }
  if (direct()) borrowed_ = false;  // all have read what they need of it
  return true;
}

// The slices that others have folded and left in our ring. True when all are here.
inline bool call::take_back() {
  if (!streams_.begun) return true;
  if (failure != nullptr) {
    desk_.streams.expect_nothing_back();
    return true;
  }
  bool finished = true;
  for (int r = 0; r < group_.size; ++r) {
    if (r == rank_) continue;
    inflow& f = streams_.back[static_cast<std::size_t>(r)];
    const std::int64_t to = partition(op_->receive.elements(), group_.size, r).first;
    finished = take(f, to) && finished;
  }
  return finished;
}

}  // namespace rankcast::inline v0::local
