/// Runs two to four threads in every order in which they can meet, and in every order in which
/// store buffers can show their writes. For protocols of a dozen steps that must hold always.
///
///   struct scenario {
///     static constexpr int threads = 2;
///     model::label at_flag{"flag"};            // what the next atomics are called in a schedule
///     model::Atomic<int> flag{0};
///     model::Plain<int> data{0};               // not atomic: a race on it is a failure
///     void thread(int t) { ... }               // the same steps whenever it sees the same values;
///                                              // it does not throw
///     void after() { model::require(...); }    // once all threads are through
///   };
///   const model::report r = model::explore<scenario>();
///
/// **How.** Threads are fibers, one runs at a time. Before each access that others can see it is
/// decided which thread goes on, or which store leaves a buffer; all decisions are tried, depth
/// first, by running again from the start. There is no bound on preemptions and no sampling: the
/// only thing left out is a state that was met before. What a thread does next depends on nothing
/// but what it has seen, so a state is: the values in memory and in the buffers, what each thread
/// has seen so far (as a hash of 64 bits, like the state as a whole), who sleeps, and what of the
/// clocks below can still matter. A scenario may say that a thread need not remember what it has
/// seen: `spin_until`, `retry_until`, `forget_all_but`.
///
/// **Memory.** Stores that are relaxed or release go into a buffer of their thread, which alone
/// sees them there, and reach memory at any later moment: a release store after all that were
/// before it, a relaxed one also before others, of other places. Sequentially consistent stores and
/// read-modify-writes wait until the buffer is empty, and are seen at once. A read-modify-write
/// that only releases waits likewise, a weaker one does not; what either writes goes through the
/// buffer, and until it is out nobody else writes there. That is what x86 does (TSO), and more:
/// there, relaxed stores do not overtake each other, and every read-modify-write is a fence.
///
/// Loads are not reordered, nor do they see old values. What a missing acquire or release does to
/// data that are not atomic is found all the same: `Plain` keeps vector clocks, and two accesses
/// that nothing of the C++ memory model puts in an order are a failure. That needs no decisions:
/// the order of the atomics tells.
///
/// **Sleep.** `Futex` is that of the kernel, without its time limits: who is not woken sleeps for
/// ever. When no thread can go on and not all are through, that is a lost wake-up: a failure.
/// `limits::early_returns` lets a number of sleeps end by themselves, at any moment.
/// A loop that only looks is written `spin_until(condition)`: it goes on when what it saw changes.
///
/// After a failure, and where a state was met before, the run is finished without decisions and
/// checks, so that every fiber comes to its end and all destructors run.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "model/engine.hpp"

namespace model {

[[nodiscard]] inline explorer& now() {
  return *explorer::current();
}

/// In front of members of a scenario: how they are called.
struct label {
  explicit label(const char* text) { now().name(text); }
};

/// True when this run has been decided: a loop that might not end otherwise should.
[[nodiscard]] inline bool finishing() {
  return now().finishing();
}

inline void require(bool holds, const char* what) {
  if (!holds) now().fail(what);
}
inline constexpr auto nothing = [] { return std::uint64_t{0}; };
/// A loop that only looks. `left()`: what a turn in which it did not find what it looks for leaves
/// behind in the thread, as a number; nothing else of it may matter.
template <class Condition, class Left = decltype(nothing)>
void spin_until(Condition&& condition, Left&& left = Left{}) {
  now().spin_until(condition, left);
}
/// Likewise, with something to do between two looks: `while (!condition()) pause();`
template <class Condition, class Pause, class Left = decltype(nothing)>
void retry_until(Condition&& condition, Pause&& pause, Left&& left = Left{}) {
  now().retry_until(condition, pause, left);
}
/// What this thread will do from here on depends on `values` and on nothing else that it has seen:
/// among them, the number of the turn in a loop. Makes states equal that would differ by the past.
template <class... Values>
void forget_all_but(Values... values) {
  now().forget_all_but(values...);
}

/// Takes the place of std::atomic in a template of the library.
template <class T>
class Atomic {
 public:
  Atomic(T value = T{}) : place_(now().add_place(coded(value))) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  [[nodiscard]] T load(std::memory_order o = std::memory_order_seq_cst) const {
    return decoded(now().load(place_, o));
  }
  void store(T value, std::memory_order o = std::memory_order_seq_cst) {
    now().store(place_, coded(value), o);
  }
  T fetch_add(T n, std::memory_order o = std::memory_order_seq_cst) {
    return change(o, [&](T old) { return static_cast<T>(old + n); });
  }
  T fetch_sub(T n, std::memory_order o = std::memory_order_seq_cst) {
    return change(o, [&](T old) { return static_cast<T>(old - n); });
  }
  T exchange(T value, std::memory_order o = std::memory_order_seq_cst) {
    return change(o, [&](T) { return value; });
  }
  bool compare_exchange_strong(T& expected, T wanted, std::memory_order o,
                               std::memory_order otherwise) {
    bool equal = false;
    const std::uint64_t old = now().rewrite(place_, o, otherwise, [&](std::uint64_t was) {
      equal = was == coded(expected);
      return equal ? std::optional(coded(wanted)) : std::nullopt;
    });
    expected = decoded(old);
    return equal;
  }
  bool compare_exchange_strong(T& expected, T wanted,
                               std::memory_order o = std::memory_order_seq_cst) {
    return compare_exchange_strong(expected, wanted, o,
                                   o == std::memory_order_acq_rel   ? std::memory_order_acquire
                                   : o == std::memory_order_release ? std::memory_order_relaxed
                                                                    : o);
  }
  bool compare_exchange_weak(T& expected, T wanted, std::memory_order o,
                             std::memory_order otherwise) {
    return compare_exchange_strong(expected, wanted, o, otherwise);
  }

 private:
  friend struct Futex;
  [[nodiscard]] static std::uint64_t coded(T value) { return static_cast<std::uint64_t>(value); }
  [[nodiscard]] static T decoded(std::uint64_t value) { return static_cast<T>(value); }
  template <class Change>
  T change(std::memory_order o, Change&& f) {
    return decoded(now().rewrite(
        place_, o, o, [&](std::uint64_t old) { return std::optional(coded(f(decoded(old)))); }));
  }
  std::size_t place_;
};

/// Memory that is not atomic.
template <class T>
class Plain {
 public:
  Plain(T value = T{}) : which_(now().add_data(static_cast<std::uint64_t>(value))) {}
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;

  [[nodiscard]] T get() const { return static_cast<T>(now().read(which_)); }
  void set(T value) { now().write_data(which_, static_cast<std::uint64_t>(value)); }
  /// From here on it is somebody else's: whoever touches it is at fault.
  void let_go() { now().write_data(which_, 0, true); }

 private:
  std::size_t which_;
};

struct Futex {
  static void wait(Atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds,
                   bool) {
    now().wait(word.place_, seen);
  }
  static void wake(Atomic<std::uint32_t>& word, bool) { now().wake(word.place_); }
};

template <class Scenario>
[[nodiscard]] report explore(const limits& l = {}) {
  explorer all(l, Scenario::threads, [](void* s, int t) { static_cast<Scenario*>(s)->thread(t); });
  do {
    all.clear();
    const auto scenario = std::make_unique<Scenario>();
    if (all.run(scenario.get())) scenario->after();
  } while (all.next());
  return all.result();
}

}  // namespace model
