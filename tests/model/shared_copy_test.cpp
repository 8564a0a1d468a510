// A copy from one rank's memory to another's on which both work, while a further rank may end the
// group: each chunk is copied once, and after a rank has returned or thrown nobody touches its
// memory, the helping source of the data (the root of a broadcast) least of all.
//
// The claims and the marks are the library's own. The rest of mover (guarded, share, copy_claimed,
// copy_all, help; mover.hpp), of revoke.hpp (wait_for_movers) and of the calls around them is no
// template on its atomics: what runs here is a mirror of it.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "model/expect.hpp"
#include "rankcast/transports/local/claims.hpp"
#include "rankcast/transports/local/mark.hpp"

namespace {

using model::Atomic;
using model::expect_found;
using model::expect_holds;
using model::Plain;
using model::require;

constexpr std::memory_order acquire = std::memory_order_acquire;
constexpr std::memory_order release = std::memory_order_release;
constexpr std::memory_order relaxed = std::memory_order_relaxed;
constexpr std::memory_order seq_cst = std::memory_order_seq_cst;

using claims = rankcast::local::basic_claims<Atomic>;
using mark = rankcast::local::basic_mark<Atomic>;

enum class flaw {
  none,
  // Of the mark:
  looks_first,     // looks at the state before it is raised
  raises_release,  // is raised by a store that may wait in a buffer
  lowers_relaxed,  // is lowered by a store that does not release what was copied
  lowers_first,    // is lowered before the chunk is copied
  // Of the claim:
  no_number,      // the chunks left and nothing else
  takes_in_two,   // taken by a load and a store
  takes_relaxed,  // by a read-modify-write that does not acquire what was posted
  posts_first,    // posted before what it is about has been written
  // Of the copy:
  reads_before,    // looks what there is to copy before it has claimed a chunk
  no_wait,         // the reader does not wait for the helper's chunks
  helped_first,    // the helper says that it has copied a chunk before it has
  helped_relaxed,  // says so without releasing what it has copied
  // Of the end:
  no_wait_at_end,  // who finds the group ended does not wait for the marks
  waits_for_some,  // waits for the marks of all but one
  source_leaves,   // the source does not wait until its readers are done
};

template <flaw Flaw>
class broken_mark {
 public:
  [[nodiscard]] bool raise(const Atomic<int>& state) {
    if (Flaw == flaw::looks_first) {
      if (state.load(seq_cst) != 0) return false;
      turn(seq_cst);
      return true;
    }
    turn(Flaw == flaw::raises_release ? release : seq_cst);
    if (state.load(seq_cst) == 0) return true;
    lower();
    return false;
  }
  void lower() { turn(Flaw == flaw::lowers_relaxed ? relaxed : release); }
  [[nodiscard]] std::uint32_t turns() const { return turns_.load(seq_cst); }

 private:
  void turn(std::memory_order order) { turns_.store(turns_.load(relaxed) + 1, order); }

  Atomic<std::uint32_t> turns_{0};
};
template <flaw Flaw>
using mark_with = std::conditional_t<Flaw == flaw::looks_first || Flaw == flaw::raises_release ||
                                         Flaw == flaw::lowers_relaxed,
                                     broken_mark<Flaw>, mark>;

template <flaw Flaw>
struct claims_with {
  static void post(Atomic<std::uint64_t>& word, std::uint32_t chunks) {
    if (Flaw == flaw::no_number) word.store(chunks, seq_cst);
    else claims::post(word, chunks);
  }
  [[nodiscard]] static std::uint32_t take(Atomic<std::uint64_t>& word) {
    if (Flaw == flaw::takes_in_two) {
      const std::uint64_t seen = word.load(acquire);
      if ((seen & claims::most_chunks) != 0) word.store(seen - 1, seq_cst);
      return static_cast<std::uint32_t>(seen & claims::most_chunks);
    }
    if (Flaw == flaw::takes_relaxed) {
      std::uint64_t seen = word.load(relaxed);
      while ((seen & claims::most_chunks) != 0) {
        if (word.compare_exchange_weak(seen, seen - 1, relaxed, relaxed)) {
          return static_cast<std::uint32_t>(seen & claims::most_chunks);
        }
      }
      return 0;
    }
    return claims::take(word);
  }
};

// Who ends the group.
enum class ends : std::uint8_t {
  nobody,
  one_more,     // a further rank, at any moment
  last_reader,  // when it has posted its copy and tried to copy a chunk: its time is over
};

// Rank 0 lends its memory and helps; each of the readers takes it, in `Copies` copies one after the
// other as of the segments of one message.
template <flaw Flaw, std::size_t Readers = 1, ends Who = ends::one_more, std::size_t Copies = 2,
          std::uint32_t Chunks = 2>
struct shared_copy {
  static constexpr std::size_t ranks = 1 + Readers;
  static constexpr int threads = static_cast<int>(ranks) + (Who == ends::one_more ? 1 : 0);

  model::label at_state{"state"};
  Atomic<int> state{0};
  model::label at_marks{"mark"};
  mark_with<Flaw> marks[ranks];  // the rank that only ends the group copies nothing
  model::label at_consumed{"consumed"};
  Atomic<int> consumed[ranks];
  // The callers' memory.
  model::label at_from{"lent"};
  Plain<int> from[Copies];
  struct result {
    Plain<int> chunk[Copies][Chunks];
  };
  model::label at_to{"result"};
  result to[ranks];
  // The lines of the pairs, on the board: they outlive the call.
  struct pair_line {
    model::label at_claim{"claim"};
    Atomic<std::uint64_t> claim{0};
    model::label at_helped{"helped"};
    Atomic<std::uint64_t> helped{0};
    model::label at_copy{"what to copy"};
    Plain<std::size_t> which{0};
    Plain<std::uint32_t> chunks{0};
  };
  pair_line pairs[ranks];  // by reader
  bool thrown[ranks]{};

  shared_copy() {
    for (std::size_t i = 0; i < Copies; ++i) from[i].set(value_of(i));
  }
  [[nodiscard]] static int value_of(std::size_t copy) { return static_cast<int>(copy) + 5; }

  [[nodiscard]] bool revoked() { return state.load(seq_cst) != 0; }
  void wait_for_movers(std::size_t self) {
    if (Flaw == flaw::no_wait_at_end) return;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (Flaw == flaw::waits_for_some && r == 1) continue;
      if (r == self) continue;
      const std::uint32_t seen = marks[r].turns();
      model::spin_until([&] { return !mark::is_up(seen) || marks[r].turns() != seen; });
    }
  }

  // A chunk of what `reader` takes, by it or by the source. False: the group is over.
  bool copy_claimed(std::size_t self, std::size_t reader, bool& copied) {
    copied = false;
    if (!marks[self].raise(state)) return false;
    pair_line& c = pairs[reader];
    std::size_t which = Flaw == flaw::reads_before ? c.which.get() : 0;
    const std::uint32_t left = claims_with<Flaw>::take(c.claim);
    if (left != 0) {
      if (Flaw == flaw::lowers_first) marks[self].lower();
      if (Flaw == flaw::helped_first && self == 0) c.helped.fetch_add(1, release);
      if (Flaw != flaw::reads_before) which = c.which.get();
      const std::uint32_t done = c.chunks.get() - left;
      require(done < Chunks, "a chunk that there is not");
      Plain<int>& place = to[reader].chunk[which][done % Chunks];
      place.set(place.get() + from[which].get());  // twice would show
      copied = true;
    }
    if (Flaw != flaw::lowers_first || !copied) marks[self].lower();
    return true;
  }

  void thread(int t) {
    const auto self = static_cast<std::size_t>(t);
    if (self == ranks) revoke(self);
    else thrown[self] = !(self == 0 ? lend() : take(self));
  }
  void revoke(std::size_t self) {
    int open = 0;
    state.compare_exchange_strong(open, static_cast<int>(self) + 1, seq_cst);
  }

  // The source copies along until its readers are done. True when it returns, false when it throws.
  bool lend() {
    bool whole = true;
    for (bool waits = Flaw != flaw::source_leaves; waits && whole;) {
      model::forget_all_but(0);
      bool over = false;
      bool work[ranks] = {};
      model::spin_until([&] {  // until there is something to do
        over = revoked();
        if (over) return true;
        waits = false;
        bool any = false;
        for (std::size_t r = 1; r < ranks; ++r) {
          waits = waits || consumed[r].load(seq_cst) == 0;
          work[r] = (pairs[r].claim.load(relaxed) & claims::most_chunks) != 0;
          any = any || work[r];
        }
        return any || !waits;
      });
      if (model::finishing()) break;
      whole = !over;
      for (std::size_t r = 1; r < ranks && whole; ++r) {
        bool copied = false;
        whole = !work[r] || copy_claimed(0, r, copied);
        if (copied && Flaw != flaw::helped_first) {
          pairs[r].helped.fetch_add(1, Flaw == flaw::helped_relaxed ? relaxed : release);
        }
      }
    }
    if (!whole) wait_for_movers(0);
    for (auto& f : from) f.let_go();
    return whole;
  }

  // Likewise a reader.
  bool take(std::size_t self) {
    bool whole = true;
    for (std::size_t copy = 0; copy < Copies && whole; ++copy) whole = take_copy(self, copy);
    if (whole) {
      for (std::size_t i = 0; i < Copies; ++i) {
        for (auto& chunk : to[self].chunk[i]) {
          require(chunk.get() == value_of(i), "a chunk was not copied, or twice");
        }
      }
      consumed[self].store(1, seq_cst);
    } else {
      wait_for_movers(self);
    }
    for (auto& copy : to[self].chunk) {
      for (auto& chunk : copy) chunk.let_go();
    }
    return whole;
  }
  bool take_copy(std::size_t self, std::size_t copy) {
    model::forget_all_but(copy);
    pair_line& c = pairs[self];
    if (Flaw == flaw::posts_first) claims_with<Flaw>::post(c.claim, Chunks);
    c.chunks.set(Chunks);
    c.which.set(copy);
    const std::uint64_t before = c.helped.load(relaxed);
    if (Flaw != flaw::posts_first) claims_with<Flaw>::post(c.claim, Chunks);
    std::uint64_t mine = 0;
    for (bool copied = true; copied;) {
      if (!copy_claimed(self, self, copied)) return false;
      if (copied) ++mine;
      if (Who == ends::last_reader && self == ranks - 1) {
        revoke(self);
        return false;
      }
    }
    if (Flaw == flaw::no_wait) return true;
    bool over = false;
    model::spin_until([&] {
      if (c.helped.load(acquire) == before + Chunks - mine) return true;
      return over = revoked();
    });
    return !over;
  }
  void after() {
    for (const bool t : thrown) require(Who != ends::nobody || !t, "thrown for nothing");
  }
};
template <flaw Flaw>
using undisturbed = shared_copy<Flaw, 1, ends::nobody>;

TEST(shared_copy, copies_each_chunk_once) {
  expect_holds<shared_copy<flaw::none, 1, ends::nobody, 2, 3>>();
  expect_holds<shared_copy<flaw::none, 1, ends::nobody, 3, 2>>();
}

TEST(shared_copy, touches_nothing_after_a_throw) {
  expect_holds<shared_copy<flaw::none>>();
  expect_holds<shared_copy<flaw::none, 1, ends::last_reader>>();
  expect_holds<shared_copy<flaw::none, 2, ends::last_reader, 1, 1>>();
}

TEST(shared_copy, broken_marks_are_found) {
  expect_found<shared_copy<flaw::looks_first>>("after it was let go");
  expect_found<shared_copy<flaw::raises_release>>("after it was let go");
  expect_found<shared_copy<flaw::lowers_relaxed>>("let go while in use");
  expect_found<shared_copy<flaw::lowers_first>>("let go while in use");
  expect_found<shared_copy<flaw::no_wait_at_end>>("let go while in use");
  expect_found<shared_copy<flaw::waits_for_some, 2, ends::last_reader, 1, 1>>(
      "let go while in use: lent");
}

TEST(shared_copy, broken_claims_are_found) {
  expect_found<undisturbed<flaw::takes_in_two>>("result");  // both copied the chunk
  expect_found<undisturbed<flaw::takes_relaxed>>("race, read and write: what to copy");
  expect_found<undisturbed<flaw::posts_first>>("race, read and write: what to copy");
  expect_found<undisturbed<flaw::reads_before>>("race, read and write: what to copy");
}

TEST(shared_copy, broken_copies_are_found) {
  expect_found<undisturbed<flaw::no_wait>>("race, write: what to copy");
  expect_found<undisturbed<flaw::helped_first>>("race, write: what to copy");
  expect_found<undisturbed<flaw::helped_relaxed>>("race, write: what to copy");
  expect_found<undisturbed<flaw::source_leaves>>("after it was let go");
}

// A helper that saw a copy claims a chunk of it, late. What it saw is over, unless the number that
// is in the word is the same.
template <flaw Flaw>
struct late_claim {
  static constexpr int threads = 2;
  model::label at_claim{"claim"};
  Atomic<std::uint64_t> claim{0};
  model::label at_copy{"what to copy"};
  Atomic<int> which{0};

  void thread(int t) {
    if (t == 0) {
      std::uint64_t seen = claim.load(acquire);
      const int copy = which.load(relaxed);
      if ((seen & claims::most_chunks) != 0 &&
          claim.compare_exchange_strong(seen, seen - 1, seq_cst)) {
        require(which.load(relaxed) == copy, "claimed a chunk of another copy than it saw");
      }
      return;
    }
    for (int copy = 1; copy <= 2; ++copy) {
      which.store(copy, relaxed);
      claims_with<Flaw>::post(claim, 1);
      if (copy == 1 && claims_with<Flaw>::take(claim) == 0) return;  // the helper has it
    }
  }
  void after() {}
};

TEST(shared_copy, a_number_tells_one_copy_from_the_next) {
  expect_holds<late_claim<flaw::none>>();
  expect_found<late_claim<flaw::no_number>>("claimed a chunk of another copy");
  // The mover looks what there is to copy when it has its chunk: it would do without.
  expect_holds<shared_copy<flaw::no_number>>();
}

}  // namespace
