// A rank that publishes runs ahead of its readers through a ring of slots: no reader sees a slot
// that is half written or written again, and nobody waits for ever.
//
// `call` is no template on its atomics, so what runs here is a mirror of it: publish(),
// slot_free(), arrived() and reach() of call.hpp, with a window of one or two calls. The doorbells
// are the library's own, as are the ticks.
#include <gtest/gtest.h>

#include <algorithm>

#include "model/expect.hpp"
#include "rankcast/transports/local/board.hpp"
#include "rankcast/transports/local/doorbell.hpp"

namespace {

using model::Atomic;
using model::expect_found;
using model::expect_holds;
using model::lost_wake_up;
using model::Plain;
using model::require;
using rankcast::local::stage;
using rankcast::local::tick;

constexpr std::memory_order release = std::memory_order_release;
constexpr std::memory_order relaxed = std::memory_order_relaxed;
constexpr std::memory_order seq_cst = std::memory_order_seq_cst;

enum class flaw {
  none,
  a_call_early,      // takes a slot when the others have a call less behind them than it takes
  of_one_reader,     // looks at the ticks of one reader only
  shows_first,       // says that a slot is written before it is
  releases_first,    // says that it has read a slot before it has
  shows_relaxed,     // says so by a store that does not release
  releases_relaxed,  // likewise of what it has read
  rings_at_once,     // looks for sleepers while what was shown may be in a buffer still
  releases_release,  // likewise, of what it has read
  forgets_to_ring,   // a reader that releases does not ring
  arrived_if_other,  // takes any other number in a slot for that of its call
};

// Rank 0 publishes, the others read. Those of whom there is a bit in `Sleepers` sleep on their
// doorbells, the others spin.
template <std::size_t Size, std::uint64_t Slots, std::uint64_t Calls, flaw Flaw, unsigned Sleepers>
struct window {
  static constexpr int threads = static_cast<int>(Size);
  static constexpr int size = threads;

  struct slot {
    Atomic<std::uint64_t> sequence{0};
    Plain<std::uint64_t> data{0};
  };
  model::label at_slots{"slot"};
  slot ring[Slots];
  model::label at_ticks{"ticks"};
  Atomic<std::uint64_t> ticks[Size];
  model::label at_bells{"bell"};
  rankcast::local::basic_doorbell<Atomic, model::Futex> bells[Size];
  std::uint64_t released_by_all = 0;  // of rank 0

  [[nodiscard]] static bool sleeps(int rank) { return ((Sleepers >> rank) & 1) != 0; }
  void ring_others(int self) {
    for (int r = 0; r < size; ++r) {
      if (r != self && sleeps(r)) bells[r].ring(false);
    }
  }
  template <class Condition>
  void wait(int rank, Condition&& come) {
    if (!sleeps(rank)) {
      model::spin_until(come);
      return;
    }
    model::retry_until(come, [&] { bells[rank].sleep({}, false, come); });
  }

  // What it leaves in released_by_all when it fails does not help a later turn: it looks again.
  [[nodiscard]] bool slot_free(std::uint64_t sequence) {
    const std::uint64_t ahead = Slots + (Flaw == flaw::a_call_early ? 1 : 0);
    if (sequence < released_by_all + ahead) return true;
    std::uint64_t least = ~std::uint64_t{0};
    for (int r = 0; r < (Flaw == flaw::of_one_reader ? 2 : size); ++r) {
      least = std::min(least, ticks[r].load(seq_cst) / 3);
    }
    released_by_all = least;
    return sequence < least + ahead;
  }
  void publish(std::uint64_t sequence) {
    slot& mine = ring[sequence % Slots];
    if (Flaw != flaw::shows_first) mine.data.set(sequence + 100);
    mine.sequence.store(sequence + 1, Flaw == flaw::shows_relaxed ? relaxed : release);
    if (Flaw == flaw::shows_first) mine.data.set(sequence + 100);
  }
  // Who goes on at once rings when it has released; who has to wait rings before.
  void ring_if_due() {
    if (Flaw != flaw::rings_at_once) ticks[0].exchange(ticks[0].load(relaxed), seq_cst);
    ring_others(0);
  }
  [[nodiscard]] bool read_by_all(std::uint64_t sequence) {
    for (int r = 1; r < size; ++r) {
      if (ticks[r].load(seq_cst) < tick(sequence, stage::released)) return false;
    }
    return true;
  }
  [[nodiscard]] bool arrived(std::uint64_t sequence) {
    const std::uint64_t shown = ring[sequence % Slots].sequence.load(seq_cst);
    return Flaw == flaw::arrived_if_other ? shown != 0 : shown > sequence;
  }
  void reach(int rank, std::uint64_t sequence) {
    ticks[rank].store(tick(sequence, stage::released), Flaw == flaw::releases_relaxed   ? relaxed
                                                       : Flaw == flaw::releases_release ? release
                                                                                        : seq_cst);
    if (Flaw != flaw::forgets_to_ring) ring_others(rank);
  }
  void read(std::uint64_t sequence) {
    require(ring[sequence % Slots].data.get() == sequence + 100, "the data of another call");
  }

  void thread(int rank) {
    for (std::uint64_t s = 0; s < Calls; ++s) {
      model::forget_all_but(s, rank == 0 ? released_by_all : 0);
      if (rank == 0) {
        wait(rank, [&] { return slot_free(s); });
        publish(s);
        if (s % 4 == 3) {  // completion: everyone
          ring_if_due();
          wait(rank, [&] { return read_by_all(s); });
        }
        reach(rank, s);
      } else {
        wait(rank, [&] { return arrived(s); });
        if (Flaw == flaw::releases_first) reach(rank, s);
        read(s);
        if (Flaw != flaw::releases_first) reach(rank, s);
      }
    }
  }
  void after() {
    for (auto& t : ticks) require(t.load() == 3 * Calls, "not all have released all calls");
  }
};

template <flaw Flaw>
using two_readers = window<3, 2, 5, Flaw, 0>;
template <flaw Flaw>
using with_bells = window<2, 2, 4, Flaw, 0b11>;

TEST(window, no_slot_is_used_again_before_all_have_read_it) {
  expect_holds<two_readers<flaw::none>>();
}

TEST(window, nobody_sleeps_for_ever) {
  expect_holds<with_bells<flaw::none>>();
  expect_holds<window<2, 1, 3, flaw::none, 0b11>>({.early_returns = 1});
  expect_holds<window<3, 2, 3, flaw::none, 0b001>>();
  expect_holds<window<3, 1, 1, flaw::none, 0b110>>();
}

TEST(window, broken_ones_are_found) {
  expect_found<two_readers<flaw::a_call_early>>("race, write: slot");
  expect_found<two_readers<flaw::of_one_reader>>("race, write: slot");
  expect_found<two_readers<flaw::shows_first>>("race");
  expect_found<two_readers<flaw::releases_first>>("race");
  expect_found<two_readers<flaw::shows_relaxed>>("race, read and write: slot");
  expect_found<two_readers<flaw::releases_relaxed>>("race, write: slot");
  expect_found<two_readers<flaw::arrived_if_other>>("the data of another call");
}

// Without bells these orders are enough: it is the doorbell that wants more.
TEST(window, bells_want_sequential_consistency) {
  expect_holds<two_readers<flaw::rings_at_once>>();
  expect_holds<two_readers<flaw::releases_release>>();
  expect_found<with_bells<flaw::rings_at_once>>(lost_wake_up);
  expect_found<with_bells<flaw::releases_release>>(lost_wake_up);
  expect_found<with_bells<flaw::forgets_to_ring>>(lost_wake_up);
}

}  // namespace
