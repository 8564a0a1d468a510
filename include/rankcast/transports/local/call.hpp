/// One collective call of one rank, from publication to completion, as a state machine that never
/// waits (but for a decoder that reads ahead of its sender): publish, agree, move, (all_reduce:
/// exchange slices,) consume, release, drain. How data move is said in direct.hpp, for ranks that
/// read each other's memory, and in streams.hpp, for those that do not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/partition.hpp"
#include "rankcast/core/transport.hpp"
#include "rankcast/transports/local/copying.hpp"
#include "rankcast/transports/local/flat_message.hpp"
#include "rankcast/transports/local/group.hpp"
#include "rankcast/transports/local/mover.hpp"
#include "rankcast/transports/local/offer.hpp"
#include "rankcast/transports/local/revoke.hpp"
#include "rankcast/transports/local/stage_ring.hpp"
#include "rankcast/transports/local/stream_ring.hpp"

namespace rankcast::inline v0::local {

/// Lets a decoder wait for more of its message.
class waiter {
 public:
  virtual ~waiter() = default;
  /// Waits for a sign of life while everything else goes on; throws when the group is over.
  virtual void wait_once(int attempt) = 0;
};

/// What a rank's calls on one group have in common.
struct desk {
  desk(group& g, int r, waiter& w)
      : shared(g), rank(r), texts(g.of(r).names), stage(g, r), streams(g, r), waits(w) {}

  group& shared;
  int rank;
  names texts;
  stage_space stage;
  stream_space streams;
  ring_filler stage_filler;
  ring_filler stream_filler;
  waiter& waits;
  transport_counters counters;
  std::vector<message> spare;       // memory of earlier messages
  std::vector<transfer> transfers;  // likewise
  std::uint64_t released_by_all = 0;
};

class call final : public flight {
 public:
  explicit call(desk& d) : desk_(d), group_(d.shared), rank_(d.rank) {}

  /// Becomes a call of the program's, whose operation lives until it is done.
  void begin(operation& op, std::uint64_t sequence) {
    op_ = &op;
    sequence_ = sequence;
    done = false;
    if (failure != nullptr) failure = nullptr;
    refusal_.clear();
    phase_ = phase::queued;
    message_ = is_message(op);
    encoded_ = false;
    borrowed_ = false;
    recallable_ = false;
    own_failure_ = false;
    streamed_ = false;
    looks_ = 0;
    if (op.send.given) op.type = op.send.type;
    else if (op.receive.given) op.type = op.receive.type;
    element_bytes_ = size_of(op.type);
    sent_ = op.send.given ? op.send.elements() : 0;
    send_bytes_ = static_cast<std::size_t>(sent_) * element_bytes_;
    flat_ = (!op.send.given || op.send.elements_layout.is_contiguous()) &&
            (!op.receive.given || op.receive.elements_layout.is_contiguous());
    everyone_ = op.completion == completion::everyone || op.code == opcode::close;
    awaits_ = everyone_ ? peers::all : awaited_by(op);
  }
  /// Becomes a call with an operation of its own.
  void begin_copy(const operation& op, std::uint64_t sequence) {
    own_ = op;
    counts_.assign(op.counts.begin(), op.counts.end());
    receive_counts_.assign(op.receive_counts.begin(), op.receive_counts.end());
    own_.counts = counts_;
    own_.receive_counts = receive_counts_;
    begin(own_, sequence);
  }

  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
  [[nodiscard]] std::string text() const { return call_text(group_.name, *op_, sequence_); }
  [[nodiscard]] const deadline& until() const noexcept { return op_->until; }
  void start_clock() noexcept { op_->start_clock(); }
  [[nodiscard]] bool released() const noexcept { return phase_ >= phase::drain; }
  /// Peers may be copying what it lent.
  [[nodiscard]] bool lends() const noexcept {
    return borrowed_ && !recallable_ && phase_ != phase::queued && phase_ != phase::complete;
  }

  /// Takes part only to tell the others that this rank cannot.
  void refuse(std::string text) { refusal_ = std::move(text); }

  /// Shows the call to the peers, once its slot is free. False when it is not yet.
  bool publish();

  /// Those who sleep learn of what was shown. (The exchange is there for its order: what was
  /// written before it is seen before the sleepers are looked for.)
  void ring_if_due() {
    if (!unrung_) return;
    std::atomic<std::uint64_t>& own = group_.of(rank_).ticks;
    own.exchange(own.load(std::memory_order_relaxed), std::memory_order_seq_cst);
    group_.ring_others(rank_);
    unrung_ = false;
  }

  /// True for calls that `run_small` is for.
  [[nodiscard]] bool is_small(const operation& op) const noexcept;
  /// Becomes a call of the program's and carries it out. False when that takes more than `looks`
  /// looks at the peers, or more than is said in small.hpp: the phases go on from where it is.
  bool run_small(operation& op, std::uint64_t sequence, int looks);

  /// Goes on as far as it can. `turn`: the calls before this one have been released.
  bool advance(bool turn);

  /// False when a look would find nothing new; cheaper than the look.
  [[nodiscard]] bool could_go_on() const noexcept {
    switch (phase_) {
      case phase::agree: return needed_arrived();
      case phase::verdict: return all_at(stage::consumed);
      default: return true;
    }
  }

  /// Goes on with what others wait for while a decoder of this call waits.
  bool pump();

  /// The group is revoked. True when this call was over by then: all ranks have finished it.
  bool settle() {
    if (phase_ == phase::verdict && all_at(stage::consumed)) hear_verdict();
    else if (phase_ != phase::drain || !readers_done()) return false;
    complete();
    return true;
  }

  /// Why this call can never complete, if so: its deadline has passed, or a rank it waits for has
  /// gone.
  [[nodiscard]] std::optional<revocation> hopeless() const;

  void fail(std::exception_ptr why) noexcept {
    if (failure == nullptr) failure = std::move(why);
    phase_ = phase::complete;
    done = true;
  }

 private:
  enum class phase : std::uint8_t { queued, agree, move, slices, verdict, drain, complete };

  [[nodiscard]] bool at_root() const noexcept { return rank_ == op_->root; }
  /// Whose call this rank has to see before it can go on.
  enum class peers : std::uint8_t { none, root, all };
  [[nodiscard]] peers awaited_by(const operation& op) const noexcept {
    switch (op.code) {
      case opcode::broadcast:
      case opcode::scatter: return rank_ == op.root ? peers::none : peers::root;
      case opcode::gather:
      case opcode::reduce: return rank_ == op.root ? peers::all : peers::none;
      default: return peers::all;
    }
  }
  /// True when `f` is of each of them.
  template <class F>
  [[nodiscard]] bool all_awaited(F&& f) const {
    if (awaits_ == peers::none) return true;
    if (awaits_ == peers::root) return f(op_->root);
    for (int r = 0; r < group_.size; ++r) {
      if (r != rank_ && !f(r)) return false;
    }
    return true;
  }
  /// Large data are read where they lie; between processes they stream.
  [[nodiscard]] bool direct() const noexcept {
    return !group_.across_processes || group_.size == 1;
  }
  [[nodiscard]] slot& own_slot() const noexcept { return theirs(rank_); }
  [[nodiscard]] slot& theirs(int r) const noexcept { return group_.lines.slot_of(r, sequence_); }
  [[nodiscard]] detail_of_call& own_detail() const noexcept { return detail(rank_); }
  [[nodiscard]] detail_of_call& detail(int r) const noexcept {
    return group_.lines.detail(r, sequence_);
  }
  [[nodiscard]] std::uint64_t ticks_of(int r) const noexcept {
    return group_.of(r).ticks.load(std::memory_order_seq_cst);
  }
  [[nodiscard]] bool arrived(int r) const noexcept {
    return theirs(r).sequence.load(std::memory_order_seq_cst) > sequence_;
  }

  void reach(stage s) {
    group_.of(rank_).ticks.store(tick(sequence_, s), std::memory_order_seq_cst);
    group_.ring_others(rank_);
    unrung_ = false;
  }

  [[nodiscard]] bool slot_free() noexcept {
    if (sequence_ < desk_.released_by_all + window) return true;
    std::uint64_t least = ~std::uint64_t{0};
    for (int r = 0; r < group_.size; ++r) least = std::min(least, ticks_of(r) / 3);
    desk_.released_by_all = least;
    return sequence_ < least + window;
  }

  [[nodiscard]] bool reads_from(int r) const noexcept { return needs(*op_, rank_, r); }
  [[nodiscard]] bool read_by(int r) const noexcept {
    return moves_data(op_->code) && needs(*op_, r, rank_);
  }
  /// Who reads what this rank gives: one rank, or all.
  [[nodiscard]] int reader() const noexcept {
    return op_->code == opcode::gather || op_->code == opcode::reduce ? op_->root : all_readers;
  }
  [[nodiscard]] bool gives() const noexcept {
    return (op_->source != nullptr || op_->send.given) && moves_data(op_->code) &&
           reader() != rank_;
  }

  /// What stands in the stage ring is read by one rank, which takes the lines.
  [[nodiscard]] bool stages_for_one() const noexcept {
    return (group_.size == 2 || reader() != all_readers) && op_->code != opcode::all_to_all &&
           !message_;
  }
  [[nodiscard]] ring_filler* stage_filler() noexcept {
    return stages_for_one() ? nullptr : &desk_.stage_filler;
  }

  static constexpr std::size_t most_small = 4096;  // of a buffer
  bool take_small();

  // What is read of a call only when something is wrong, or when counts differ.
  void tell_details(const slot_head& head) {
    detail_of_call& d = own_detail();
    const bool counts = op_->code == opcode::scatter || op_->code == opcode::gather;
    if (group_.sizes.check == checks::off && head.plain && !message_ && !counts) {
      d.failed = d.slice_failed = false;
      return;
    }
    show_detail(group_, rank_, sequence_, *op_, desk_.texts);
    d.sequence.store(sequence_ + 1, std::memory_order_release);
    note();
  }
  // The flight record, for the errors of others.
  void note() const noexcept {
    member& m = group_.of(rank_);
    m.last_code.store(op_->code, std::memory_order_relaxed);
    m.last_line.store(op_->where.line, std::memory_order_relaxed);
    m.last_time.store(coarse_nanoseconds(), std::memory_order_relaxed);
    m.last_file.store(own_detail().file, std::memory_order_release);
    m.last_sequence.store(sequence_ + 1, std::memory_order_relaxed);
  }

  // --- what this rank gives (give.hpp) ---

  bool offer(slot_head& head);
  bool put_on_board(slot_head& head, std::size_t bytes, std::byte*& place);
  void lend(slot_head& head);
  [[nodiscard]] bool recall();
  bool offer_message(slot_head& head);
  void encode(slot_head& head);
  void will_stream(slot_head& head);
  void copy_to(std::byte* to, const buffer& from, std::int64_t first, std::int64_t count,
               ring_filler* filler, bool ahead = true);
  [[nodiscard]] bool one_each() const noexcept { return op_->code == opcode::scatter; }

  // --- agreement (phases.hpp) ---

  [[nodiscard]] bool needed_arrived() const noexcept {
    return all_awaited([&](int r) { return arrived(r); });
  }
  [[nodiscard]] bool plainly_agreed(bool sized) const noexcept;
  bool agree();

  // --- data (direct.hpp, streams.hpp, slices.hpp) ---

  /// What the ranks read and write together, as far as this one can say; but for folds.
  [[nodiscard]] std::size_t footprint() const noexcept {
    const auto n = static_cast<std::size_t>(group_.size);
    const std::size_t received = op_->receive.given ? op_->receive.bytes() : 0;
    switch (op_->code) {
      case opcode::broadcast: return n * received;
      case opcode::scatter:
      case opcode::all_to_all: return 2 * n * received;
      case opcode::gather: return 2 * received;
      case opcode::all_gather:
      case opcode::split: return (n + 1) * received;
      default: return 0;
    }
  }

  enum class moved { all, own_slice, not_yet };
  moved move_direct();
  moved move_streams();
  bool collect_slices();
  void begin_streams();
  void copy_own_block();
  [[nodiscard]] stream_plan plan_of(int owner) const;
  void begin_stream();
  void fill(int reader, std::uint64_t first, std::span<std::byte> to, bool ahead);
  bool take_streams();
  bool take(int source, std::int64_t to_first);
  bool take(inflow& f, std::int64_t to_first);
  bool take_back();
  bool take_blocks(std::span<const std::int64_t> counts);
  bool fold_streams(std::int64_t to_first, std::int64_t first, std::int64_t count);
  void combine_pieces(std::int64_t to_first, std::int64_t first, std::int64_t n);
  void fold_pieces(accumulator& sum, std::int64_t to_first, std::int64_t first, std::int64_t n);
  [[nodiscard]] inflow* inflow_from(int source);
  /// No line of the stream is read by two ranks.
  [[nodiscard]] bool has_one_reader(const stream_plan& plan) const noexcept {
    return !plan.common() || group_.size == 2 || reader() != all_readers;
  }
  bool receive_streamed_messages();
  void skip_streams();
  // True when nothing streams to this rank, or from it.
  [[nodiscard]] bool nothing_streams() const noexcept {
    return own_slot().how != form::streams &&
           all_awaited([&](int r) { return theirs(r).how != form::streams || !reads_from(r); });
  }
  void decode_near(int from);
  friend class streamed_segments;

  // True when the small data of `r` are on the board.
  [[nodiscard]] static bool near(const slot& s) noexcept {
    return s.how == form::here || s.how == form::staged;
  }
  [[nodiscard]] block share_of_scatter() const {
    const auto counts = counts_of(group_, op_->root, sequence_);
    return counts.empty() ? block{op_->receive.elements() * rank_, op_->receive.elements()}
                          : block_of(counts, 0, rank_, group_.size);
  }
  [[nodiscard]] bool slices_follow() const noexcept {
    return op_->code == opcode::all_reduce && send_bytes_ > group_.lend_bytes;
  }

  void move_data() {
    const moved m = attempt_move();
    if (m == moved::not_yet) return;
    if (m == moved::all) {
      consume();
      return;
    }
    if (failure != nullptr) {
      put_text(own_detail().text, failure_text());
      own_detail().slice_failed = true;
    }
    reach(stage::slice_ready);
    phase_ = phase::slices;
  }
  moved attempt_move() {
    if (!direct()) return move_streams();
    if (failure == nullptr) {
      const bool moved_all = attempt([&] { return move_direct() == moved::all; });
      return moved_all || !slices_follow() ? moved::all : moved::own_slice;
    }
    return moved::all;
  }
  // What a callable, encoder or decoder of the program's throws is this rank's failure.
  template <class F>
  bool attempt(F&& f) {
    try {
      return f();
    } catch (const group_revoked&) {
      throw;
    } catch (...) {
      failure = std::current_exception();
      own_failure_ = true;
      return false;
    }
  }

  // --- the end ---

  void complete() {
    // What messages took is for the next one.
    if (op_->source != nullptr) desk_.spare.swap(messages_);
    phase_ = phase::complete;
    done = true;
  }

  [[nodiscard]] std::string failure_text() const {
    try {
      std::rethrow_exception(failure);
    } catch (...) {
      return current_exception_text();
    }
  }

  void consume() {
    if (own_failure_ && !own_detail().slice_failed) {
      put_text(own_detail().text,
               text() + ": rank " + std::to_string(rank_) + " failed: " + failure_text());
      own_detail().failed = true;
    }
    if (!everyone_) {
      release();
      return;
    }
    reach(stage::consumed);
    phase_ = phase::verdict;
  }

  void hear_verdict() {
    for (int r = 0; r < group_.size && failure == nullptr; ++r) {
      if (!detail(r).failed) continue;
      failure = std::make_exception_ptr(remote_error(get_text(detail(r).text), r));
    }
  }

  void release() {
    reach(stage::released);
    phase_ = phase::drain;
  }

  [[nodiscard]] bool all_at(stage s) const noexcept {
    for (int r = 0; r < group_.size; ++r) {
      if (ticks_of(r) < tick(sequence_, s)) return false;
    }
    return true;
  }

  [[nodiscard]] bool readers_done() const noexcept {
    if (!borrowed_) return true;
    for (int r = 0; r < group_.size; ++r) {
      if (read_by(r) && ticks_of(r) < tick(sequence_, stage::consumed)) return false;
    }
    return true;
  }

  // Small data are on loan for some hundred looks, microseconds; then readers are late.
  [[nodiscard]] bool looks_in_vain() noexcept {
    return recallable_ && ++looks_ > 200 && looks_ % 64 == 0;
  }

  // The ranks this call waits for now.
  [[nodiscard]] std::vector<int> awaited() const;

  desk& desk_;
  group& group_;
  int rank_;
  std::uint64_t sequence_ = 0;
  operation* op_ = nullptr;
  operation own_{};  // of a started call
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> receive_counts_;
  std::string refusal_;
  phase phase_ = phase::queued;
  bool encoded_ = false;
  bool unrung_ = false;       // sleepers do not know yet of what was shown
  bool borrowed_ = false;     // peers read the caller's memory
  bool recallable_ = false;   // it can be put on the board instead
  bool own_failure_ = false;  // `failure` happened here
  bool streamed_ = false;     // the streams below are this call's
  int looks_ = 0;             // at readers who have not come yet
  // What the operation says:
  bool message_ = false;
  bool everyone_ = false;
  bool flat_ = false;  // both buffers lie in one piece
  peers awaits_ = peers::all;
  std::size_t element_bytes_ = 1;
  std::int64_t sent_ = 0;  // elements
  std::size_t send_bytes_ = 0;
  std::vector<message> messages_;
  std::vector<std::byte> kept_;  // all_to_all in place: the data as they were

  // Streams: what this rank puts into its ring, and what it takes from others'.
  struct streaming {
    stream_plan plan;
    bool begun = false;
    std::uint64_t round = 0;
    std::vector<inflow> in;          // by rank
    std::vector<stream_plan> plans;  // likewise
    std::vector<inflow> back;        // all_reduce: the slices of others, left in our ring
    [[nodiscard]] bool all_out() const noexcept { return !begun || round == plan.rounds(); }
  };
  streaming streams_;
  std::int64_t folded_ = 0;
  int next_source_ = 0;  // of messages
  flat_reader intake_;
  std::vector<message_reader> out_;
};

}  // namespace rankcast::inline v0::local

#include "rankcast/transports/local/direct.hpp"
#include "rankcast/transports/local/give.hpp"
#include "rankcast/transports/local/phases.hpp"
#include "rankcast/transports/local/slices.hpp"
#include "rankcast/transports/local/small.hpp"
#include "rankcast/transports/local/streams.hpp"
