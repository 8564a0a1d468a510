// Small data on loan whose lender does not want to wait: it moves them to the board and goes on,
// while a reader may be about to read them, or in the middle of it. Nobody reads the lender's
// memory after it has gone on, and every reader gets the data.
//
// The loan and the marks are the library's own; the lender's wait for the marks (wait_for_movers in
// revoke.hpp) and the reader's way (pull in direct.hpp) are mirrored.
#include "rankcast/transports/local/loan.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "model/expect.hpp"
#include "rankcast/transports/local/mark.hpp"

namespace {

using model::Atomic;
using model::expect_found;
using model::expect_holds;
using model::Plain;
using model::require;

using mark = rankcast::local::basic_mark<Atomic>;

enum class flaw {
  none,
  looks_first,     // a reader looks where the data are before its mark is up
  looks_never,     // or not at all
  says_release,    // the lender says so by a store that may wait in a buffer
  says_first,      // before the copy is there
  no_wait,         // and does not wait for the marks
  waits_for_some,  // or for all but one
};

template <flaw Flaw>
class broken_loan {
 public:
  void begin() { moved_.store(0, std::memory_order_relaxed); }
  void recall(std::uint64_t place) { moved_.store(place + 1, std::memory_order_release); }
  [[nodiscard]] std::uint64_t moved() const { return moved_.load(std::memory_order_seq_cst); }

 private:
  Atomic<std::uint64_t> moved_{0};
};

// Rank 0 lends, the others read, once each and at any moment.
template <flaw Flaw, std::size_t Readers = 1>
struct recalled {
  static constexpr int threads = 1 + static_cast<int>(Readers);
  static constexpr int value = 7;

  Atomic<int> state{0};  // nobody ends the group
  model::label at_marks{"mark"};
  mark marks[Readers];
  model::label at_loan{"loan"};
  std::conditional_t<Flaw == flaw::says_release, broken_loan<Flaw>,
                     rankcast::local::basic_loan<Atomic>>
      loan;
  model::label at_shown{"shown"};
  Atomic<int> shown{0};
  model::label at_data{"lent"};
  Plain<int> data;
  model::label at_stage{"stage"};
  Plain<int> stage;

  recalled() { data.set(value); }

  void thread(int t) {
    if (t == 0) lend();
    else read(static_cast<std::size_t>(t - 1));
  }
  void lend() {
    loan.begin();
    shown.store(1, std::memory_order_release);
    if (Flaw == flaw::says_first) loan.recall(0);
    stage.set(data.get());
    if (Flaw != flaw::says_first) loan.recall(0);
    if (Flaw != flaw::no_wait) {
      for (std::size_t r = Flaw == flaw::waits_for_some ? 1 : 0; r < Readers; ++r) {
        const std::uint32_t seen = marks[r].turns();
        model::spin_until([&] { return !mark::is_up(seen) || marks[r].turns() != seen; });
      }
    }
    data.let_go();
  }
  void read(std::size_t self) {
    model::spin_until([&] { return shown.load(std::memory_order_seq_cst) != 0; });
    std::uint64_t moved = Flaw == flaw::looks_first ? loan.moved() : 0;
    require(marks[self].raise(state), "thrown for nothing");
    if (Flaw != flaw::looks_first && Flaw != flaw::looks_never) moved = loan.moved();
    require((moved == 0 ? data : stage).get() == value, "read something else");
    marks[self].lower();
  }
  void after() {}
};

TEST(loan, is_read_in_the_one_place_or_the_other) {
  expect_holds<recalled<flaw::none>>();
  expect_holds<recalled<flaw::none, 2>>();
}

TEST(loan, broken_readers_are_found) {
  expect_found<recalled<flaw::looks_first>>("after it was let go");
  expect_found<recalled<flaw::looks_never>>("after it was let go");
}

TEST(loan, broken_lenders_are_found) {
  expect_found<recalled<flaw::says_release>>("let go");
  expect_found<recalled<flaw::says_first>>("stage");
  expect_found<recalled<flaw::no_wait>>("let go");
  expect_found<recalled<flaw::waits_for_some, 2>>("let go");
}

}  // namespace
