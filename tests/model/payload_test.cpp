// Payload goes through two rings of its owner: small data of several calls through the stage ring,
// where an entry is let go when all who read it are through with its call; large data through the
// stream ring, piece by piece, each acknowledged. No reader sees a piece that is not written yet,
// or written again.
//
// stage_space, stream_space and inflow are no templates on their atomics, so what runs here is a
// mirror of them, line by line as far as orders matter. The list of what is kept, the plan of a
// stream, the ticks and the doorbell are the library's own.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "model/expect.hpp"
#include "rankcast/transports/local/kept.hpp"
#include "rankcast/transports/local/stream_plan.hpp"

namespace {

using model::Atomic;
using model::expect_found;
using model::expect_holds;
using model::lost_wake_up;
using model::Plain;
using model::require;
using rankcast::local::all_readers;
using rankcast::local::kept;
using rankcast::local::stage;
using rankcast::local::stream_plan;
using rankcast::local::tick;

constexpr std::memory_order release = std::memory_order_release;
constexpr std::memory_order relaxed = std::memory_order_relaxed;
constexpr std::memory_order seq_cst = std::memory_order_seq_cst;
constexpr std::uint64_t cell = 64;  // bytes; what the rings are divided into

enum class flaw {
  none,
  first_reader,      // lets an entry go when one of its readers is through
  a_cell_more,       // takes the ring for larger than it is
  told_first,        // the owner says that a piece is there before it is
  taken_first,       // a reader says that it has a piece before it has
  told_relaxed,      // says so by a store that does not release
  taken_relaxed,     // likewise
  taken_release,     // by a store that may be in a buffer still when it looks for sleepers
  consumed_first,    // a reader is through with a call before it has read its data
  forgets_the_last,  // a reader does not acknowledge the last piece of a stream
  one_takes,         // a reader writes to lines that others read, too
  not_taken_back,    // the owner writes again where it has not read yet what was left for it
  reads_ahead,       // the owner believes a reader that has passed on more than was written
};

// Ranks of which 0 owns the rings. Those of whom there is a bit in `Sleepers` sleep on their
// doorbells, the others spin.
template <std::size_t Size, unsigned Sleepers>
struct ranks {
  static constexpr int threads = static_cast<int>(Size);

  model::label at_ticks{"ticks"};
  Atomic<std::uint64_t> ticks[Size];
  model::label at_bells{"bell"};
  rankcast::local::basic_doorbell<Atomic, model::Futex> bells[Size];

  [[nodiscard]] static bool sleeps(int rank) { return ((Sleepers >> rank) & 1) != 0; }
  void ring(int rank) {
    if (sleeps(rank)) bells[rank].ring(false);
  }
  void ring_others(int self) {
    for (int r = 0; r < threads; ++r) {
      if (r != self) ring(r);
    }
  }
  template <class Condition, class Left = decltype(model::nothing)>
  void wait(int rank, Condition&& come, Left&& left = Left{}) {
    if (!sleeps(rank)) {
      model::spin_until(come, left);
      return;
    }
    model::retry_until(
        come, [&] { bells[rank].sleep({}, false, come); }, left);
  }
  [[nodiscard]] bool consumed(int rank, std::uint64_t sequence) {
    return ticks[rank].load(seq_cst) >= tick(sequence, stage::consumed);
  }
  void reach(int rank, std::uint64_t sequence) {
    ticks[rank].store(tick(sequence, stage::released), seq_cst);
    ring_others(rank);
  }
};

// --- the stage ring ---

// Up to four calls; of the second one, only rank 1 reads. The ring has three cells, and the third
// entry does not fit behind the second: it begins at the corner.
template <flaw Flaw, std::size_t Size = 3, unsigned Sleepers = 0, std::uint64_t Calls = 4>
struct staged : ranks<Size, Sleepers> {
  using all = ranks<Size, Sleepers>;
  static constexpr std::array<std::uint64_t, 4> bytes{128, 64, 128, 64};
  static constexpr std::array<int, 4> reader{all_readers, 1, all_readers, all_readers};
  static constexpr std::uint64_t ring_bytes = 3 * cell;

  struct slot {
    Atomic<std::uint64_t> sequence{0};
    Plain<std::uint64_t> place{0};
  };
  model::label at_slots{"slot"};
  slot slots[Calls];
  model::label at_ring{"ring"};
  Plain<std::uint64_t> cells[3];
  // Of the owner:
  kept held;
  std::uint64_t next = 0;
  std::uint64_t let_go_so_far = 0;

  [[nodiscard]] bool take(std::uint64_t sequence, std::uint64_t& position) {
    const std::uint64_t size = ring_bytes + (Flaw == flaw::a_cell_more ? cell : 0);
    const std::uint64_t n = bytes[sequence];
    std::uint64_t begin = next;
    if (begin % ring_bytes + n > ring_bytes) begin += ring_bytes - begin % ring_bytes;
    const std::uint64_t end = begin + n;
    while (!held.empty() && end - held.front().begin > size && let_go()) {
    }
    if (held.full() || (!held.empty() && end - held.front().begin > size)) return false;
    held.push({begin, end, sequence, reader[sequence]});
    next = end;
    position = begin;
    return true;
  }
  [[nodiscard]] bool through(const kept::entry& e, int r) {
    if (r == 0 || (e.reader != all_readers && e.reader != r)) return true;
    return this->consumed(r, e.sequence);
  }
  bool let_go() {
    for (int r = 0; r < all::threads; ++r) {
      if (Flaw == flaw::first_reader && r == 2) continue;
      if (!through(held.front(), r)) return false;
    }
    held.pop();
    ++let_go_so_far;
    return true;
  }

  void thread(int rank) {
    for (std::uint64_t s = 0; s < Calls; ++s) {
      model::forget_all_but(s, rank == 0 ? let_go_so_far : 0);
      if (rank == 0) own(s);
      else read(rank, s);
    }
  }
  void own(std::uint64_t s) {
    std::uint64_t position = 0;
    bool taken = false;  // perhaps by the last look before it would have slept
    this->wait(
        0, [&] { return taken = taken || take(s, position); },
        [&] { return let_go_so_far << 1 | std::uint64_t{taken}; });
    const auto write = [&] {
      for (std::uint64_t at = position; at < position + bytes[s]; at += cell) {
        cells[at % ring_bytes / cell].set(s + 100);
      }
    };
    slots[s].place.set(position);
    if (Flaw != flaw::told_first) write();
    slots[s].sequence.store(s + 1, Flaw == flaw::told_relaxed ? relaxed : seq_cst);
    if (Flaw == flaw::told_first) write();
    this->ring_others(0);
    this->reach(0, s);
  }
  void read(int rank, std::uint64_t s) {
    if (reader[s] == all_readers || reader[s] == rank) {
      this->wait(rank, [&] { return slots[s].sequence.load(seq_cst) > s; });
      if (Flaw == flaw::consumed_first) this->reach(rank, s);
      const std::uint64_t position = slots[s].place.get();
      for (std::uint64_t at = position; at < position + bytes[s]; at += cell) {
        require(cells[at % ring_bytes / cell].get() == s + 100, "the data of another call");
      }
    }
    if (Flaw != flaw::consumed_first) this->reach(rank, s);
  }
  void after() {}
};

TEST(stage_ring, keeps_an_entry_until_its_readers_are_through) {
  expect_holds<staged<flaw::none>>();
  expect_holds<staged<flaw::none, 2, 0b11>>();
  expect_holds<staged<flaw::none, 3, 0b001, 3>>();
}

TEST(stage_ring, broken_ones_are_found) {
  expect_found<staged<flaw::first_reader>>("race");
  expect_found<staged<flaw::a_cell_more>>("race");
  expect_found<staged<flaw::told_first>>("race");
  expect_found<staged<flaw::told_relaxed>>("race");
  expect_found<staged<flaw::consumed_first>>("race");
}

// --- the stream ring ---

// Calls with a stream of `Pieces` each, through a ring of two pieces. With `Passes`, the last rank
// takes nothing of the first one: it is through with the call and says no more. A reader that is
// alone writes to what it has read.
template <flaw Flaw, std::size_t Size = 3, unsigned Sleepers = 0, std::uint64_t Calls = 2,
          std::uint64_t Pieces = 2, bool Passes = false>
struct streamed : ranks<Size, Sleepers> {
  using all = ranks<Size, Sleepers>;
  static constexpr std::uint64_t ring_bytes = 2 * cell;

  model::label at_begin{"begin"};
  Atomic<std::uint64_t> stream_begin[Calls];
  model::label at_streamed{"streamed"};
  Atomic<std::uint64_t> put{0};
  model::label at_taken{"taken"};
  Atomic<std::uint64_t> taken_by[Size];
  model::label at_ring{"ring"};
  Plain<std::uint64_t> cells[2];
  const stream_plan plan{Pieces * cell, 0, all::threads, cell};
  // Of the owner:
  kept held;
  std::uint64_t written = 0;
  std::uint64_t tail = 0;
  std::uint64_t let_go_so_far = 0;

  [[nodiscard]] bool fits(std::uint64_t n) {
    const std::uint64_t size = ring_bytes + (Flaw == flaw::a_cell_more ? cell : 0);
    if (written + n - tail <= size) return true;
    find_tail();
    return written + n - tail <= size;
  }
  [[nodiscard]] std::uint64_t taken(const kept::entry& e, int r) {
    if (r == 0 || (e.reader != all_readers && e.reader != r)) return e.end;
    if (this->consumed(r, e.sequence)) return e.end;
    return std::clamp(taken_by[r].load(seq_cst), e.begin, e.end);
  }
  void find_tail() {
    for (;;) {
      if (held.empty()) {
        tail = written;
        return;
      }
      const kept::entry& e = held.front();
      std::uint64_t lowest = e.end;
      for (int r = 0; r < (Flaw == flaw::first_reader ? 2 : all::threads); ++r) {
        lowest = std::min(lowest, taken(e, r));
      }
      tail = lowest;
      if (lowest < e.end || &e == &held.back()) return;
      held.pop();
      ++let_go_so_far;
    }
  }
  void advance(std::uint64_t n) {
    written += n;
    held.back().end = written;
    put.store(written, Flaw == flaw::told_relaxed ? relaxed : seq_cst);
    this->ring_others(0);
  }

  void thread(int rank) {
    for (std::uint64_t s = 0; s < Calls; ++s) {
      if (rank == 0) own(s);
      else if (!Passes || s != 0 || rank != all::threads - 1) read(rank, s);
      this->reach(rank, s);
    }
  }
  void own(std::uint64_t s) {
    held.push({written, written, s, all_readers});
    stream_begin[s].store(written + 1, seq_cst);
    this->ring_others(0);
    for (std::uint64_t round = 0; round < plan.rounds(); ++round) {
      const auto left = [&] { return tail << 8 | let_go_so_far; };
      model::forget_all_but(s, round, left());
      const std::uint64_t n = plan.round_bytes(round);
      this->wait(
          0, [&] { return fits(n); }, left);
      const auto place = written % ring_bytes / cell;
      const std::uint64_t value = 100 * (s + 1) + round;
      if (Flaw != flaw::told_first) {
        cells[place].set(value);
        advance(n);
      } else {
        advance(n);
        cells[place].set(value);
      }
    }
  }
  void read(int rank, std::uint64_t s) {
    std::uint64_t begin = 0;
    model::forget_all_but(s);
    this->wait(rank, [&] { return (begin = stream_begin[s].load(seq_cst)) != 0; });
    std::uint64_t at = begin - 1;
    std::uint64_t end = 0;  // how far the owner was when we last looked
    for (std::uint64_t round = 0; round < plan.rounds(); ++round) {
      model::forget_all_but(s, round, at, end);
      this->wait(
          rank,
          [&] {
            if (end < at + 1) end = put.load(seq_cst);
            return end > at;
          },
          [&] { return end; });
      const std::uint64_t next = at + plan.round_bytes(round);
      if (Flaw == flaw::taken_first) tell(rank, next, round);
      require(cells[at % ring_bytes / cell].get() == 100 * (s + 1) + round, "another piece");
      if (Size == 2 || (Flaw == flaw::one_takes && rank == 1)) {
        cells[at % ring_bytes / cell].set(0);
      }
      if (Flaw != flaw::taken_first) tell(rank, next, round);
      at = next;
    }
  }
  void tell(int rank, std::uint64_t up_to, std::uint64_t round) {
    if (Flaw == flaw::forgets_the_last && round + 1 == plan.rounds()) return;
    taken_by[rank].store(up_to, Flaw == flaw::taken_relaxed   ? relaxed
                                : Flaw == flaw::taken_release ? release
                                                              : seq_cst);
    this->ring(0);
  }
  void after() { require(put.load() == Calls * Pieces * cell, "not all was streamed"); }
};

template <flaw Flaw>
using one_sleeps = streamed<Flaw, 2, 0b01, 1, 4>;

TEST(stream_ring, keeps_a_piece_until_all_readers_have_it) {
  expect_holds<streamed<flaw::none>>();
  expect_holds<streamed<flaw::none, 3, 0, 3, 2, true>>();
  expect_holds<streamed<flaw::none, 3, 0, 1, 5>>();
}

TEST(stream_ring, nobody_sleeps_for_ever) {
  expect_holds<streamed<flaw::none, 2, 0b11, 1, 4>>();
  expect_holds<streamed<flaw::none, 3, 0b001, 1, 3>>();
}

TEST(stream_ring, broken_ones_are_found) {
  expect_holds<one_sleeps<flaw::none>>();
  expect_found<streamed<flaw::first_reader>>("another piece");
  expect_found<streamed<flaw::a_cell_more>>("another piece");
  expect_found<streamed<flaw::told_first>>("race");
  expect_found<streamed<flaw::told_relaxed>>("race");
  expect_found<streamed<flaw::taken_first>>("race");
  expect_found<streamed<flaw::taken_relaxed>>("race");
  expect_found<streamed<flaw::one_takes>>("race");
  expect_found<one_sleeps<flaw::taken_release>>(lost_wake_up);
  // The end of a call acknowledges the rest of its stream.
  expect_holds<streamed<flaw::forgets_the_last>>();
}

// --- streams that return ---

// The reader of a stream writes into what it has taken, and the owner reads that. Each rank owns a
// ring, of two pieces, and is the reader of the other's. With `Fails`, rank 1 reads nothing and
// passes all of it on at once.
template <flaw Flaw, unsigned Sleepers = 0, std::uint64_t Pieces = 3, bool Fails = false>
struct returned : ranks<2, Sleepers> {
  static constexpr std::uint64_t ring_bytes = 2 * cell;
  static constexpr std::uint64_t all = Pieces * cell;

  struct ring_of_one {
    model::label at_streamed{"streamed"};
    Atomic<std::uint64_t> streamed{0};
    model::label at_taken{"taken"};
    Atomic<std::uint64_t> taken{0};
    Plain<std::uint64_t> cells[2];
  };
  model::label at_rings{"ring"};
  ring_of_one rings[2];
  struct progress {
    std::uint64_t written = 0, back = 0, read = 0;
  };

  static std::uint64_t value(int owner, std::uint64_t at) {
    return owner == 0 ? 1000 + at : 2000 + at;
  }

  // Goes on with whatever can go on, as the phases of a call do.
  bool step(int rank, progress& p) {
    ring_of_one& own = rings[rank];
    ring_of_one& other = rings[1 - rank];
    bool moved = false;
    const std::uint64_t kept = Flaw == flaw::not_taken_back ? own.taken.load(seq_cst) : p.back;
    if (p.written < all && p.written + cell - kept <= ring_bytes) {
      own.cells[p.written % ring_bytes / cell].set(value(rank, p.written));
      p.written += cell;
      own.streamed.store(p.written, Flaw == flaw::told_relaxed ? relaxed : seq_cst);
      this->ring(1 - rank);
      moved = true;
    }
    if (Fails && rank == 1 && p.read < all) {
      p.read = all;
      other.taken.store(all, seq_cst);
      this->ring(0);
      moved = true;
    }
    if (p.read < all && other.streamed.load(seq_cst) > p.read) {
      auto& place = other.cells[p.read % ring_bytes / cell];
      require(place.get() == value(1 - rank, p.read), "another piece");
      if (Flaw != flaw::taken_first) place.set(value(1 - rank, p.read) + 500);
      p.read += cell;
      other.taken.store(p.read, Flaw == flaw::taken_relaxed ? relaxed : seq_cst);
      if (Flaw == flaw::taken_first) place.set(value(1 - rank, p.read - cell) + 500);
      this->ring(1 - rank);
      moved = true;
    }
    while (p.back < (Flaw == flaw::reads_ahead ? all : p.written) &&
           own.taken.load(seq_cst) > p.back) {
      const std::uint64_t left = Fails && rank == 0 ? 0 : 500;
      require(own.cells[p.back % ring_bytes / cell].get() == value(rank, p.back) + left,
              "another result");
      p.back += cell;
      moved = true;
    }
    return moved;
  }
  void thread(int rank) {
    progress p;
    const auto here = [&] { return p.written << 16 | p.back << 8 | p.read; };
    while (p.back < all || p.read < all) {
      model::forget_all_but(here());
      bool moved = false;  // perhaps by the last look before it would have slept
      this->wait(
          rank, [&] { return moved = moved || step(rank, p); },
          [&] { return here() << 1 | std::uint64_t{moved}; });
    }
  }
  void after() {
    for (ring_of_one& r : rings) require(r.taken.load() == all, "not all was taken");
  }
};

TEST(returning_streams, bring_back_what_readers_left) {
  expect_holds<returned<flaw::none>>();
  expect_holds<returned<flaw::none, 0b01>>();
  expect_holds<returned<flaw::none, 0b11, 2>>();
  expect_holds<returned<flaw::none, 0b01, 3, true>>();
}

TEST(returning_streams, broken_ones_are_found) {
  expect_found<returned<flaw::not_taken_back>>("another result");
  expect_found<returned<flaw::reads_ahead, 0, 3, true>>("another result");
  expect_found<returned<flaw::told_relaxed>>("race");
  expect_found<returned<flaw::taken_first>>("race");
  expect_found<returned<flaw::taken_relaxed>>("race");
}

}  // namespace
