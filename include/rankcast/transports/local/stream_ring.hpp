/// A rank's ring for large data, which go through it piece by piece: the owner's side and the
/// readers'.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "rankcast/transports/local/group.hpp"
#include "rankcast/transports/local/kept.hpp"
#include "rankcast/transports/local/stream_plan.hpp"

namespace rankcast::inline v0::local {

/// The owner's side of its stream ring; one stream at a time goes in.
class stream_space {
 public:
  stream_space(const group& g, int rank) noexcept : group_(g), rank_(rank) {}

  /// A stream of call `sequence` begins. Its readers find its begin in the slot. `returns`: they
  /// write into what they have taken, and its room is free when the owner has taken that back.
  std::uint64_t begin(std::uint64_t sequence, int reader, bool returns) {
    if (!reserved_) {
      group_.house->reserve(group_.lines.stream_offset(rank_), group_.ring_bytes);
      reserved_ = true;
    }
    find_tail();
    // Back to what is still in the cache. (Only where nothing is ever left behind at the end: how
    // far an owner runs ahead of its readers is a matter of chance, and so would be the memory in
    // use.)
    if (returns && tail_ == written_) {
      const std::uint64_t size = group_.ring_bytes;
      tail_ = written_ = (written_ + size - 1) / size * size;
    }
    held_.push({written_, written_, sequence, reader, returns});
    if (returns) back_.assign(static_cast<std::size_t>(group_.size), written_);
    return written_;
  }
  /// Up to where this rank has taken back what `reader` left, kept by who takes it.
  [[nodiscard]] std::uint64_t& taken_back(int reader) noexcept {
    return back_[static_cast<std::size_t>(reader)];
  }
  /// This rank does not want what the last stream's readers leave.
  void expect_nothing_back() noexcept { held_.back().returns = false; }

  /// True when `bytes` more fit.
  [[nodiscard]] bool fits(std::uint64_t bytes) noexcept {
    const std::uint64_t size = group_.ring_bytes;
    if (written_ + bytes - tail_ <= size) return true;
    find_tail();
    return written_ + bytes - tail_ <= size;
  }
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
  /// What the slowest reader has not taken yet.
  [[nodiscard]] std::uint64_t backlog() noexcept {
    find_tail();
    return written_ - tail_;
  }
  /// The piece of the ring at a position, as far as it goes in one piece.
  [[nodiscard]] std::span<std::byte> at(std::uint64_t position,
                                        std::uint64_t bytes) const noexcept {
    const std::uint64_t size = group_.ring_bytes;
    const std::uint64_t offset = position % size;
    return {group_.lines.stream_ring(rank_) + offset,
            static_cast<std::size_t>(std::min(bytes, size - offset))};
  }
  /// `bytes` more have been written.
  void advance(std::uint64_t bytes) noexcept {
    written_ += bytes;
    held_.back().end = written_;
    group_.of(rank_).streamed.store(written_, std::memory_order_seq_cst);
    group_.ring_others(rank_);
  }

  /// True when what was put in first waits for rank `r`.
  [[nodiscard]] bool waits_for(int r) const noexcept {
    return !held_.empty() && taken(held_.front(), r) < held_.front().end;
  }

 private:
  // Up to where rank r needs nothing of an entry.
  [[nodiscard]] std::uint64_t taken(const kept::entry& e, int r) const noexcept {
    if (r == rank_) return e.returns ? taken_back(e) : e.end;
    if (e.reader != all_readers && e.reader != r) return e.end;
    if (group_.of(r).ticks.load(std::memory_order_seq_cst) >= tick(e.sequence, stage::consumed)) {
      return e.end;
    }
    const std::uint64_t up_to = group_.lines.pair(rank_, r).taken.load(std::memory_order_seq_cst);
    return std::clamp(up_to, e.begin, e.end);
  }
  [[nodiscard]] std::uint64_t taken_back(const kept::entry& e) const noexcept {
    if (&e != &held_.back()) return e.end;  // its call is over
    std::uint64_t lowest = e.end;
    for (int r = 0; r < group_.size; ++r) {
      if (r != rank_) lowest = std::min(lowest, back_[static_cast<std::size_t>(r)]);
    }
    return lowest;
  }
  void find_tail() noexcept {
    for (;;) {
      if (held_.empty()) {
        tail_ = written_;
        return;
      }
      const kept::entry& e = held_.front();
      std::uint64_t lowest = e.end;
      for (int r = 0; r < group_.size; ++r) lowest = std::min(lowest, taken(e, r));
      tail_ = lowest;
      if (lowest < e.end || &e == &held_.back()) return;
      held_.pop();
    }
  }

  const group& group_;
  int rank_;
  kept held_;
  std::vector<std::uint64_t> back_;  // by reader
  std::uint64_t written_ = 0;
  std::uint64_t tail_ = 0;
  bool reserved_ = false;
};

/// The reader's side of a stream from another rank: the bytes that have come, in order. Also the
/// owner's side of what its readers have left there.
class inflow {
 public:
  /// `begin`: where it begins in the owner's ring; `takes`: nobody else reads what this rank reads,
  /// nor does it write there.
  void open(const group& g, int owner, int reader, const stream_plan& plan, std::uint64_t begin,
            bool takes) {
    start(g, owner, reader, plan, begin);
    come_ = &g.of(owner).streamed;
    takes_ = takes;
    if (finished()) pass_on();
  }
  /// What `reader` has left of a stream of this rank, the owner. `back`: of stream_space.
  void open_back(const group& g, int owner, int reader, const stream_plan& plan,
                 std::uint64_t begin, std::uint64_t& back) {
    start(g, owner, reader, plan, begin);
    come_ = &g.lines.pair(owner, reader).taken;
    back_ = &back;
    takes_ = true;
    if (finished()) pass_on();
  }
  [[nodiscard]] bool is_open() const noexcept { return group_ != nullptr; }
  /// All that it was to bring has been had in another way, or is not wanted.
  void skip() {
    if (group_ != nullptr && !finished()) pass_on();
    skipped_ = true;
  }

  [[nodiscard]] std::uint64_t total() const noexcept { return plan_->share(reader_); }
  [[nodiscard]] std::uint64_t consumed() const noexcept { return consumed_; }
  [[nodiscard]] bool finished() const noexcept {
    return skipped_ || (group_ != nullptr && consumed_ == plan_->share(reader_));
  }

  /// True when it cannot go on before the owner writes more.
  [[nodiscard]] bool starved() const noexcept {
    return !finished() && come_->load(std::memory_order_seq_cst) <= position();
  }

  /// What can be read in one piece now; empty when nothing has come.
  [[nodiscard]] std::span<const std::byte> front() noexcept {
    if (finished()) return {};
    const std::uint64_t bytes = plan_->bytes_of(reader_, round_);
    const std::uint64_t at = position();
    // The writer says so for each piece, or at the end of its round. (Who leaves something may say
    // so for all of a stream at once, before it is written: a rank that has failed does.)
    if (end_ < at + 1) {
      end_ = come_->load(std::memory_order_seq_cst);
      if (back_ != nullptr) end_ = std::min(end_, group_->of(owner_).streamed.load());
    }
    if (end_ <= at) return {};
    const std::uint64_t size = group_->ring_bytes;
    const std::uint64_t n = std::min({bytes - within_, end_ - at, size - at % size});
    return {place(), static_cast<std::size_t>(n)};
  }
  /// Where that is, for who leaves something there.
  [[nodiscard]] std::byte* place() const noexcept {
    return group_->lines.stream_ring(owner_) + position() % group_->ring_bytes;
  }
  /// The first `n` bytes of what can be read are not needed any more.
  void pop(std::size_t n) {
    if (takes_) take_lines(place(), n);
    pass(n);
  }
  /// Copies them first.
  void pop_to(std::byte* to, std::size_t n, way preferred = way::cached) {
    if (takes_) copy_and_take(to, place(), n, preferred);
    else if (preferred == way::past) copy_streaming(to, place(), n);
    else std::memcpy(to, place(), n);
    pass(n);
  }

 private:
  void start(const group& g, int owner, int reader, const stream_plan& plan, std::uint64_t begin) {
    *this = inflow{};
    group_ = &g;
    owner_ = owner;
    reader_ = reader;
    plan_ = &plan;
    round_begin_ = begin;
  }
  [[nodiscard]] std::uint64_t position() const noexcept {
    return round_begin_ + plan_->offset_of(reader_, round_) + within_;
  }
  void pass(std::size_t n) {
    consumed_ += n;
    within_ += n;
    if (within_ < plan_->bytes_of(reader_, round_)) {
      if (plan_->common()) tell(round_begin_ + within_);
      return;
    }
    within_ = 0;
    round_begin_ += plan_->round_bytes(round_);
    ++round_;
    if (finished()) pass_on();
    else tell(round_begin_);
  }
  // The rounds after our last are for others.
  void pass_on() {
    for (; round_ < plan_->rounds(); ++round_) round_begin_ += plan_->round_bytes(round_);
    tell(round_begin_);
  }
  void tell(std::uint64_t up_to) noexcept {
    if (back_ != nullptr) {
      *back_ = up_to;
      return;
    }
    group_->lines.pair(owner_, reader_).taken.store(up_to, std::memory_order_seq_cst);
    group_->ring(owner_);
  }

  const group* group_ = nullptr;
  int owner_ = 0;
  int reader_ = 0;
  const stream_plan* plan_ = nullptr;
  const std::atomic<std::uint64_t>* come_ = nullptr;  // up to where there is something
  std::uint64_t* back_ = nullptr;                     // where it is said, if to nobody else
  std::uint64_t round_begin_ = 0;
  std::uint64_t round_ = 0;
  std::uint64_t within_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t end_ = 0;
  bool skipped_ = false;
  bool takes_ = false;
};

}  // namespace rankcast::inline v0::local
