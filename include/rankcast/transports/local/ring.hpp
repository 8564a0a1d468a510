/// A rank's rings of payload: small data of many calls wait in the stage ring until their readers
/// have them, large data go through the stream ring piece by piece. Positions count bytes and are
/// never reset; what is kept for whom, only the owner knows.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "rankcast/transports/local/group.hpp"

namespace rankcast::inline v0::local {

inline constexpr int all_readers = -1;

/// What the owner has put into a ring and must keep: first in, first out, one entry a call.
class kept {
 public:
  struct entry {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t sequence = 0;
    int reader = all_readers;
    bool returns = false;  // the readers leave something there for the owner
  };

  [[nodiscard]] bool empty() const noexcept { return first_ == next_; }
  [[nodiscard]] bool full() const noexcept { return next_ - first_ == entries_.size(); }
  [[nodiscard]] const entry& front() const noexcept { return entries_[first_ % entries_.size()]; }
  [[nodiscard]] entry& back() noexcept { return entries_[(next_ - 1) % entries_.size()]; }
  [[nodiscard]] const entry& back() const noexcept {
    return entries_[(next_ - 1) % entries_.size()];
  }
  void push(const entry& e) noexcept {
    if (empty()) first_ = next_ = 0;  // the same few lines of memory as long as readers keep up
    entries_[next_++ % entries_.size()] = e;
  }
  void pop() noexcept { ++first_; }
  void pop_back() noexcept { --next_; }

 private:
  std::array<entry, 2 * window> entries_;  // a message has up to two
  std::uint64_t first_ = 0;
  std::uint64_t next_ = 0;
};

/// The owner's side of its stage ring.
class stage_space {
 public:
  stage_space(const group& g, int rank) noexcept : group_(g), rank_(rank) {}

  /// Room for `bytes` in one piece, kept until those who read call `sequence` are through with it;
  /// null when there is none yet.
  [[nodiscard]] std::byte* take(std::size_t bytes, std::uint64_t sequence, int reader,
                                std::uint64_t& position) {
    if (!reserved_) {
      group_.house->reserve(group_.lines.stage_offset(rank_), group_.sizes.stage_bytes);
      reserved_ = true;
    }
    const std::uint64_t size = group_.sizes.stage_bytes;
    const std::uint64_t room = (bytes + 63) / 64 * 64;
    std::uint64_t begin = next_;
    if (begin % size + room > warm_bytes) {  // back to what is still in the cache, if all is free
      while (!held_.empty() && let_go()) {
      }
      if (held_.empty()) begin = (begin + size - 1) / size * size;
    }
    if (begin % size + bytes > size) begin += size - begin % size;  // not around the corner
    const std::uint64_t end = begin + room;
    const auto no_room = [&] {
      return held_.full() || (!held_.empty() && end - held_.front().begin > size);
    };
    while (no_room()) {
      if (!let_go()) return nullptr;
    }
    held_.push({begin, end, sequence, reader});
    next_ = end;
    position = begin;
    return group_.lines.stage_ring(rank_) + begin % size;
  }

  /// The last that was taken needs less, or nothing.
  void keep(std::size_t bytes) noexcept {
    kept::entry& e = held_.back();
    e.end = e.begin + (bytes + 63) / 64 * 64;
    next_ = e.end;
    if (bytes == 0) held_.pop_back();
  }

  /// True when what was put in first waits for rank `r`.
  [[nodiscard]] bool waits_for(int r) const noexcept {
    return !held_.empty() && !through(held_.front(), r);
  }

 private:
  // The owner too may read what it has put there: its own object, in an all_gather.
  [[nodiscard]] bool through(const kept::entry& e, int r) const noexcept {
    if (r != rank_ && e.reader != all_readers && e.reader != r) return true;
    return group_.of(r).ticks.load(std::memory_order_seq_cst) >= tick(e.sequence, stage::consumed);
  }
  bool let_go() noexcept {
    for (int r = 0; r < group_.size; ++r) {
      if (!through(held_.front(), r)) return false;
    }
    held_.pop();
    return true;
  }

  // Of the ring, in use while readers keep up: what its owner has written a moment ago is in its
  // first cache yet, and is written again in a third of the time.
  static constexpr std::uint64_t warm_bytes = 12 * 1024;

  const group& group_;
  int rank_;
  kept held_;
  std::uint64_t next_ = 0;
  bool reserved_ = false;
};

/// How many bytes of a stream each reader gets, and in which order they come: in rounds of one
/// piece for each reader that has not got all of its own, beginning with the owner's neighbour. A
/// stream that is the same for all readers is one without rounds. Owner and readers compute the
/// same from the same numbers.
class stream_plan {
 public:
  stream_plan() = default;
  /// The same `bytes` for all readers, or for one.
  stream_plan(std::uint64_t bytes, int owner, int size, std::size_t piece) noexcept
      : owner_(owner), size_(size), piece_(piece), common_(true), most_(bytes) {}
  /// `share(r)`: bytes of each reader. The pieces of a round fit the ring several times.
  template <class Share>
  stream_plan(int owner, int size, std::size_t piece, Share&& share) noexcept
      : owner_(owner), size_(size), piece_(piece) {
    shares_.resize(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      shares_[static_cast<std::size_t>(r)] = r == owner ? 0 : share(r);
      most_ = std::max(most_, shares_[static_cast<std::size_t>(r)]);
    }
  }

  [[nodiscard]] bool common() const noexcept { return common_; }
  [[nodiscard]] std::uint64_t share(int r) const noexcept {
    return common_ ? most_ : shares_[static_cast<std::size_t>(r)];
  }
  [[nodiscard]] std::size_t piece() const noexcept { return piece_; }
  /// Rounds until every share is through.
  [[nodiscard]] std::uint64_t rounds() const noexcept { return (most_ + piece_ - 1) / piece_; }
  /// Bytes of a round in the ring.
  [[nodiscard]] std::uint64_t round_bytes(std::uint64_t round) const noexcept {
    if (common_) return spaced(piece_of(most_, round));
    std::uint64_t n = 0;
    for (const std::uint64_t s : shares_) n += spaced(piece_of(s, round));
    return n;
  }
  /// Where in its round the piece of `reader` begins.
  [[nodiscard]] std::uint64_t offset_of(int reader, std::uint64_t round) const noexcept {
    if (common_) return 0;
    std::uint64_t n = 0;
    for (int i = 1; i < size_; ++i) {
      const int r = (owner_ + i) % size_;
      if (r == reader) break;
      n += spaced(piece_of(shares_[static_cast<std::size_t>(r)], round));
    }
    return n;
  }
  [[nodiscard]] std::uint64_t bytes_of(int reader, std::uint64_t round) const noexcept {
    return piece_of(share(reader), round);
  }

 private:
  // Pieces begin on cache lines, so that no element lies across the end of the ring.
  [[nodiscard]] static std::uint64_t spaced(std::uint64_t n) noexcept { return (n + 63) / 64 * 64; }
  [[nodiscard]] std::uint64_t piece_of(std::uint64_t share, std::uint64_t round) const noexcept {
    const std::uint64_t done = round * piece_;
    return done >= share ? 0 : std::min<std::uint64_t>(piece_, share - done);
  }

  int owner_ = 0;
  int size_ = 0;
  std::uint64_t piece_ = 1;
  bool common_ = false;
  std::uint64_t most_ = 0;
  std::vector<std::uint64_t> shares_;
};

/// Bytes of a piece, so that `readers` of them fit a ring four times: while one is read the next
/// ones are written.
[[nodiscard]] inline std::size_t piece_bytes(const group& g, int readers,
                                             std::uint64_t total) noexcept {
  const std::size_t most =
      std::max<std::size_t>(g.ring_bytes / 4 / static_cast<std::size_t>(std::max(readers, 1)), 64);
  // A stream of few bytes is cut finer, so that its reader need not wait for all of it.
  const std::uint64_t fine =
      std::max(total / 8, std::clamp<std::uint64_t>(total / 4, 8 * 1024, 16 * 1024));
  const std::size_t n = std::min({most, g.sizes.chunk_bytes, static_cast<std::size_t>(fine)});
  return std::max<std::size_t>(n / 64 * 64, 64);
}

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
    if (tail_ == written_) {  // back to what is still in the cache
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
