/// What is behind explorer.hpp: the decisions, the memory with its buffers, the clocks that find
/// races, and the schedule for people.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "model/fiber.hpp"

namespace model {

inline constexpr int most_threads = 4;

struct limits {
  std::uint64_t most_states = 4'000'000;  // more are a failure: the scenario is too large
  int early_returns = 0;                  // of sleeps
  bool all_orders = false;                // also those that lead to a state that was met before
};

struct report {
  bool failed = false;
  std::string why;
  std::string schedule;  // of the run that failed, a step a line
  std::uint64_t states = 0;
  std::uint64_t runs = 0;
  std::uint64_t steps = 0;
};

/// What each thread has said (released) so far that is known here, as a count.
using clock = std::array<std::uint8_t, most_threads>;

enum class step_kind : std::uint8_t {
  load,
  store,    // visible at once
  buffer,   // into the buffer
  flush,    // out of it
  rewrite,  // a read-modify-write
  wait,     // a futex
  asleep,
  early,  // a sleep ends by itself
  wake,
  spin,
  read,  // not atomic
  write,
  let_go,
};

class explorer {
 public:
  explorer(const limits& l, int threads, void (*body)(void*, int))
      : limits_(l), body_(body), threads_(static_cast<std::size_t>(threads)) {
    current() = this;
    for (int t = 0; t < threads; ++t) {
      threads_[static_cast<std::size_t>(t)] = std::make_unique<thread>(*this, t);
    }
  }
  ~explorer() { current() = nullptr; }
  explorer(const explorer&) = delete;
  explorer& operator=(const explorer&) = delete;

  static explorer*& current() {
    static explorer* one = nullptr;
    return one;
  }

  // --- a run ---

  /// Before the scenario is made.
  void clear() {
    places_.clear();
    data_.clear();
    trace_.clear();
    label_ = "atomic";
    step_ = 0;
    finishing_ = false;
    early_left_ = limits_.early_returns;
    for (auto& t : threads_) t->clear();
  }
  /// True when it came to its end, false when it was left.
  bool run(void* scenario) {
    scenario_ = scenario;
    ++report_.runs;
    starting_ = true;  // up to the first step that others can see
    for (auto& t : threads_) enter(*t);
    starting_ = false;
    if (thread* first = decide()) enter(*first);
    running_ = nullptr;
    return !finishing_;
  }
  /// True when there is another run to make.
  bool next() {
    while (!path_.empty() && path_.back().taken + 1 == path_.back().options) path_.pop_back();
    if (path_.empty() || report_.failed) return false;
    ++path_.back().taken;
    path_.back().chosen.whose = nullptr;  // not known before its state is there again
    return true;
  }
  void fail(std::string why) {
    if (finishing_ || report_.failed) return;
    report_.failed = true;
    report_.why = std::move(why);
    report_.schedule = text();
    finish();
  }
  [[nodiscard]] bool finishing() const { return finishing_; }
  [[nodiscard]] report& result() { return report_; }

  // --- what atomics do ---

  void name(const char* label) { label_ = label; }
  [[nodiscard]] std::size_t add_place(std::uint64_t value) {
    places_.push_back({value, {}, label_});
    return places_.size() - 1;
  }
  [[nodiscard]] std::uint64_t load(std::size_t place, std::memory_order order) {
    location& l = places_[place];
    if (!checks()) return running_ == nullptr ? l.value : (arrive(step_kind::load, place), l.value);
    arrive(step_kind::load, place);
    thread& me = *running_;
    std::uint64_t value = l.value;
    const clock* said = &l.said;
    for (const buffered& b : me.buffer) {
      if (b.place != place) continue;
      value = b.value;
      said = &b.said;
    }
    if (acquires(order)) me.learn(*said);
    if (me.spinning) me.watched |= std::uint64_t{1} << (place % 64);
    observe(value);
    note(step_kind::load, place, value);
    return value;
  }
  void store(std::size_t place, std::uint64_t value, std::memory_order order) {
    if (!checks()) {
      if (running_ != nullptr) arrive(step_kind::store, place);
      places_[place].value = value;
      return;
    }
    if (order != std::memory_order_seq_cst) {  // nobody sees it yet: no decision
      thread& me = *running_;
      const bool releases = order == std::memory_order_release;
      me.buffer.push_back({place, value, releases, releases ? me.say() : clock{}, false});
      note(step_kind::buffer, place, value);
      return;
    }
    arrive(step_kind::store, place);
    observe(0);
    note(step_kind::store, place, value);
    write(place, value, running_->say());
  }
  /// `change(old)`: the new value, or nothing. Returns the old one.
  template <class Change>
  std::uint64_t rewrite(std::size_t place, std::memory_order order, std::memory_order otherwise,
                        Change&& change) {
    location& l = places_[place];
    if (running_ != nullptr) arrive(step_kind::rewrite, place, releases(order));
    const std::uint64_t old = l.value;
    const std::optional<std::uint64_t> changed = change(old);
    if (!checks()) {
      l.value = changed.value_or(old);
      return old;
    }
    thread& me = *running_;
    if (acquires(changed ? order : otherwise)) me.learn(l.said);
    observe(old);
    note(step_kind::rewrite, place, changed.value_or(old));
    if (changed) {  // goes on with what was said before it
      clock said = l.said;
      if (releases(order)) join(said, me.say());
      if (order == std::memory_order_seq_cst) write(place, *changed, said);
      else me.buffer.push_back({place, *changed, false, said, true});
    }
    return old;
  }
  void wait(std::size_t place, std::uint32_t seen) {
    if (running_ == nullptr) return;
    arrive(step_kind::wait, place);
    if (!checks()) return;
    note(step_kind::wait, place, seen);
    if (places_[place].value == seen) {
      arrive(step_kind::asleep, place);
      running_->woken = false;
    }
    observe(0);
  }
  void wake(std::size_t place) {
    if (running_ == nullptr) return;
    arrive(step_kind::wake, place);
    if (!checks()) return;
    observe(0);
    note(step_kind::wake, place, 0);
    for (auto& t : threads_) {
      if (t->next == step_kind::asleep && t->place == place) t->woken = true;
    }
  }
  template <class Condition, class Left>
  void spin_until(Condition&& condition, Left&& left) {
    if (running_ == nullptr) return;
    const std::uint64_t before = running_->seen;
    for (;;) {
      thread& me = *running_;
      me.spinning = true;
      me.changed = false;
      me.watched = 0;
      me.seen = mix(before, left());  // it may have looked, and is where it was
      const bool met = condition();
      if (met || finishing_) break;
      me.seen = mix(before, left());
      arrive(step_kind::spin, 0);
    }
    running_->spinning = false;
    running_->changed = false;
    running_->watched = 0;
  }

  template <class Condition, class Pause, class Left>
  void retry_until(Condition&& condition, Pause&& pause, Left&& left) {
    if (running_ == nullptr) return;
    const std::uint64_t before = running_->seen;
    for (;;) {
      running_->seen = mix(before, left());
      if (condition() || finishing_) return;
      pause();
    }
  }
  template <class... Values>
  void forget_all_but(Values... values) {
    if (running_ == nullptr) return;
    running_->seen = 0;
    (observe(static_cast<std::uint64_t>(values)), ...);
  }

  // --- what is not atomic ---

  [[nodiscard]] std::size_t add_data(std::uint64_t value) {
    data_.push_back({value, label_, -1, 0, {}, false});
    return data_.size() - 1;
  }
  [[nodiscard]] std::uint64_t read(std::size_t which) {
    datum& d = data_[which];
    if (!checks()) return d.value;
    note(step_kind::read, which, d.value);
    if (d.freed) fail("read after it was let go: " + name_of(d));
    else if (!knows_write(d)) fail("race, read and write: " + name_of(d));
    d.readers[running_->index()] = running_->known[running_->index()];
    observe(d.value);
    return d.value;
  }
  void write_data(std::size_t which, std::uint64_t value, bool let_go = false) {
    datum& d = data_[which];
    if (checks()) {
      thread& me = *running_;
      note(let_go ? step_kind::let_go : step_kind::write, which, value);
      bool ordered = knows_write(d);
      for (std::size_t t = 0; t < threads_.size(); ++t) {
        ordered = ordered && d.readers[t] <= me.known[t];
      }
      if (d.freed) fail("written after it was let go: " + name_of(d));
      else if (!ordered) fail((let_go ? "let go while in use: " : "race, write: ") + name_of(d));
      d.writer = static_cast<int>(me.index());
      d.written = me.known[me.index()];
      d.readers = {};
    }
    d.value = let_go ? d.value : value;
    d.freed = let_go;
  }

 private:
  struct location {
    std::uint64_t value;
    clock said;  // by whoever wrote it
    const char* label;
  };
  struct datum {
    std::uint64_t value;
    const char* label;
    int writer;
    std::uint8_t written;
    clock readers;
    bool freed;
  };
  struct buffered {
    std::size_t place;
    std::uint64_t value;
    bool release;
    clock said;
    bool exclusive;  // of a read-modify-write: until it is out nobody else writes the place
  };

  struct thread {
    thread(explorer& e, int number) : owner(e), id(number), stack(e.home_, &thread::main, this) {}
    [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(id); }
    void clear() {
      seen = 0;
      through = spinning = changed = woken = drained = false;
      watched = 0;
      known = {};
      known[index()] = 1;
      buffer.clear();
    }
    void learn(const clock& said) { join(known, said); }
    [[nodiscard]] clock say() {
      const clock said = known;
      if (++known[index()] == 255) owner.fail("too many steps for the clocks");
      return said;
    }
    static void main(void* self) {
      thread& me = *static_cast<thread*>(self);
      for (;;) {
        me.owner.body_(me.owner.scenario_, me.id);
        me.through = true;
        me.owner.leave(me);
      }
    }

    explorer& owner;
    int id;
    std::uint64_t seen = 0;  // a hash of all values it has been given
    bool through = false;
    step_kind next = step_kind::load;  // what it is about to do, and where
    std::size_t place = 0;
    bool drained = false;  // only with an empty buffer
    bool woken = false;
    bool spinning = false;
    bool changed = false;       // something that it saw in this turn of its loop
    std::uint64_t watched = 0;  // a bit for each place
    clock known{};
    std::vector<buffered> buffer;
    fiber stack;
  };

  // --- decisions ---

  struct option {
    step_kind what;  // flush, early, or anything else for a step of the thread
    thread* whose;
    std::size_t which = 0;  // in the buffer
  };
  struct decision {
    std::size_t taken;
    std::size_t options;
    option chosen;
  };

  [[nodiscard]] bool checks() const { return running_ != nullptr && !finishing_; }

  // Before a step that others can see: returns when it is this thread's turn.
  void arrive(step_kind what, std::size_t place, bool drained = true) {
    thread& me = *running_;
    me.next = what;
    me.place = place;
    me.drained = drained;
    if (starting_) {
      fiber::go(me.stack, home_);
      running_ = &me;
      return;
    }
    thread* const chosen = decide();
    if (chosen == &me) return;
    running_ = chosen;
    fiber::go(me.stack, chosen == nullptr ? home_ : chosen->stack);
    running_ = &me;
  }
  void leave(thread& me) {
    thread* const chosen = starting_ ? nullptr : decide();
    running_ = chosen;
    fiber::go(me.stack, chosen == nullptr ? home_ : chosen->stack);
    running_ = &me;
  }
  void enter(thread& t) {
    running_ = &t;
    fiber::go(home_, t.stack);
    running_ = nullptr;
  }

  // The thread that goes on; null when all are through.
  [[nodiscard]] thread* decide() {
    for (;;) {
      if (finishing_) return in_turn();
      if (step_ == path_.size()) {
        collect();
        if (!known_.insert(digest()).second && !limits_.all_orders) {
          finish();
          continue;
        }
        if (++report_.states > limits_.most_states) {
          fail("too many states");
          continue;
        }
        if (options_.empty()) {
          if (all_through()) return nullptr;
          fail("no thread can go on: a lost wake-up or a wait for what never comes");
          continue;
        }
        path_.push_back({0, options_.size(), options_.front()});
      } else if (path_[step_].chosen.whose == nullptr) {
        collect();
        path_[step_].chosen = options_[path_[step_].taken];
      }
      const option o = path_[step_++].chosen;
      ++report_.steps;
      if (o.what == step_kind::flush) {
        flush(*o.whose, o.which);
      } else if (o.what == step_kind::early) {
        o.whose->woken = true;
        --early_left_;
        trace_.push_back({o.whose->id, step_kind::early, o.whose->place, 0});
      } else {
        return o.whose;
      }
    }
  }
  // Every thread's step first, the running one's before all: that is the cheapest.
  void collect() {
    options_.clear();
    if (running_ != nullptr && can_go_on(*running_)) options_.push_back({running_->next, running_});
    for (auto& t : threads_) {
      if (t.get() != running_ && can_go_on(*t)) options_.push_back({t->next, t.get()});
    }
    for (auto& t : threads_) {
      for (std::size_t i = 0; i < t->buffer.size(); ++i) {
        if (can_leave(*t, i)) options_.push_back({step_kind::flush, t.get(), i});
      }
      if (early_left_ > 0 && !t->through && t->next == step_kind::asleep && !t->woken) {
        options_.push_back({step_kind::early, t.get()});
      }
    }
  }
  [[nodiscard]] bool can_go_on(const thread& t) const {
    if (t.through) return false;
    switch (t.next) {
      case step_kind::load: return true;
      case step_kind::asleep: return t.woken;
      case step_kind::spin: return t.changed;
      case step_kind::rewrite:
        if (held_by_other(t, t.place)) return false;
        if (t.drained) return t.buffer.empty();
        return std::none_of(t.buffer.begin(), t.buffer.end(),
                            [&](const buffered& b) { return b.place == t.place; });
      case step_kind::store: return t.buffer.empty() && !held_by_other(t, t.place);
      default: return t.buffer.empty();
    }
  }
  [[nodiscard]] bool can_leave(const thread& t, std::size_t i) const {
    const std::vector<buffered>& buffer = t.buffer;
    if (held_by_other(t, buffer[i].place)) return false;
    if (buffer[i].release) return i == 0;
    return std::none_of(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const buffered& b) { return b.place == buffer[i].place; });
  }
  [[nodiscard]] bool held_by_other(const thread& t, std::size_t place) const {
    for (const auto& u : threads_) {
      if (u.get() == &t) continue;
      for (const buffered& b : u->buffer) {
        if (b.exclusive && b.place == place) return true;
      }
    }
    return false;
  }
  [[nodiscard]] bool all_through() const {
    return std::all_of(threads_.begin(), threads_.end(), [](auto& t) { return t->through; });
  }

  void flush(thread& t, std::size_t i) {
    const buffered b = t.buffer[i];
    t.buffer.erase(t.buffer.begin() + static_cast<std::ptrdiff_t>(i));
    trace_.push_back({t.id, step_kind::flush, b.place, b.value});
    write(b.place, b.value, b.said);
  }
  void write(std::size_t place, std::uint64_t value, const clock& said) {
    location& l = places_[place];
    if (l.value != value) {
      for (auto& t : threads_) {
        if ((t->watched >> (place % 64)) & 1) t->changed = true;
      }
    }
    l.value = value;
    l.said = said;
  }

  // From here on nothing is decided or checked: the threads take turns until they are through.
  void finish() {
    finishing_ = true;
    for (auto& t : threads_) {
      for (const buffered& b : t->buffer) places_[b.place].value = b.value;
      t->buffer.clear();
    }
  }
  // Whoever runs goes on until it would wait, or has had its share.
  [[nodiscard]] thread* in_turn() {
    if (running_ != nullptr && !running_->through && running_->next != step_kind::wait &&
        ++steps_in_turn_ % 64 != 0) {
      return running_;
    }
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      turn_ = (turn_ + 1) % threads_.size();
      if (!threads_[turn_]->through) return threads_[turn_].get();
    }
    return nullptr;
  }

  // --- clocks ---

  static void join(clock& a, const clock& b) {
    for (std::size_t t = 0; t < a.size(); ++t) a[t] = std::max(a[t], b[t]);
  }
  [[nodiscard]] bool knows_write(const datum& d) const {
    return d.writer < 0 || d.written <= running_->known[static_cast<std::size_t>(d.writer)];
  }
  [[nodiscard]] static bool acquires(std::memory_order o) {
    return o == std::memory_order_acquire || o == std::memory_order_acq_rel ||
           o == std::memory_order_seq_cst;
  }
  [[nodiscard]] static bool releases(std::memory_order o) {
    return o == std::memory_order_release || o == std::memory_order_acq_rel ||
           o == std::memory_order_seq_cst;
  }

  // --- the state ---

  [[nodiscard]] static std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h = (h ^ v) + 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
  }
  void observe(std::uint64_t value) { running_->seen = mix(running_->seen, value); }

  // Of a clock nothing matters but which accesses to data it knows, of those that not all threads
  // know of. `ranks_[t][n]`: how many of thread t's are at or before its count n.
  void rank_accesses() {
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      auto& ranks = ranks_[t];
      const std::size_t last = threads_[t]->known[t];
      std::fill_n(ranks.begin(), last + 1, std::uint8_t{0});
      for (const datum& d : data_) {
        if (d.writer == static_cast<int>(t)) ranks[d.written] = 1;
        ranks[d.readers[t]] = 1;
      }
      std::size_t all_know = last;
      for (const auto& u : threads_) all_know = std::min<std::size_t>(all_know, u->known[t]);
      std::uint8_t count = 0;
      for (std::size_t n = 0; n <= last; ++n) {
        if (ranks[n] != 0 && n > all_know) ++count;
        ranks[n] = count;
      }
    }
  }
  [[nodiscard]] std::uint64_t packed(const clock& c) const {
    std::uint64_t n = 0;
    for (std::size_t t = 0; t < threads_.size(); ++t) n = n << 8 | ranks_[t][c[t]];
    return n;
  }
  [[nodiscard]] std::uint64_t digest() {
    rank_accesses();
    std::uint64_t h = mix(1, static_cast<std::uint64_t>(early_left_));
    for (const location& l : places_) h = mix(mix(h, l.value), packed(l.said));
    for (const datum& d : data_) {
      const std::size_t writer = d.writer < 0 ? 0 : static_cast<std::size_t>(d.writer);
      const std::uint64_t written = d.writer < 0 ? 0 : ranks_[writer][d.written];
      h = mix(mix(h, d.value), packed(d.readers));
      h = mix(h, (written == 0 ? 0 : (writer << 8 | written) << 1) | std::uint64_t{d.freed});
    }
    for (const auto& t : threads_) {
      h = mix(mix(mix(h, t->seen), t->watched), packed(t->known));
      h = mix(h, t->through ? 1 : static_cast<std::uint64_t>(t->next) << 8 | t->place << 16);
      h = mix(
          h, std::uint64_t{t->woken} << 1 | std::uint64_t{t->changed} << 2 | t->buffer.size() << 8);
      for (const buffered& b : t->buffer) {
        h = mix(h, b.place << 2 | std::uint64_t{b.exclusive} << 1 | std::uint64_t{b.release});
        h = mix(mix(h, b.value), packed(b.said));
      }
    }
    return h;
  }

  // --- the schedule, for people ---

  struct taken_step {
    int thread;
    step_kind what;
    std::size_t where;
    std::uint64_t value;
  };
  void note(step_kind what, std::size_t where, std::uint64_t value) {
    trace_.push_back({running_->id, what, where, value});
  }
  template <class Named>
  [[nodiscard]] std::string name_of(const std::vector<Named>& all, std::size_t which) const {
    std::size_t n = 0;  // of this label
    for (std::size_t i = 0; i < which; ++i) n += std::size_t{all[i].label == all[which].label};
    return all[which].label + ("." + std::to_string(n));
  }
  [[nodiscard]] std::string name_of(const datum& d) const {
    return name_of(data_, static_cast<std::size_t>(&d - data_.data()));
  }
  [[nodiscard]] std::string text() const {
    static constexpr std::array<const char*, 13> words{
        "loads",        "stores", "buffers",         "  (its buffer shows)", "rewrites",
        "waits, seen:", "sleeps", "wakes by itself", "wakes all of",         "looks again",
        "reads",        "writes", "lets go"};
    std::string all;
    for (const taken_step& s : trace_) {
      const bool plain = s.what >= step_kind::read;
      all += "  thread " + std::to_string(s.thread) + " " +
             words[static_cast<std::size_t>(s.what)] + " " +
             (plain ? name_of(data_, s.where) : name_of(places_, s.where)) + " = " +
             std::to_string(s.value) + "\n";
    }
    for (const auto& t : threads_) {
      all += "  thread " + std::to_string(t->id) +
             (t->through                     ? " is through\n"
              : t->next == step_kind::asleep ? " sleeps on " + name_of(places_, t->place) + "\n"
              : t->next == step_kind::spin   ? " spins\n"
                                             : " goes on\n");
    }
    return all;
  }

  limits limits_;
  void (*body_)(void*, int);
  void* scenario_ = nullptr;
  fiber home_;
  std::vector<std::unique_ptr<thread>> threads_;
  thread* running_ = nullptr;
  bool starting_ = false;
  bool finishing_ = false;
  std::size_t turn_ = 0;
  unsigned steps_in_turn_ = 0;
  int early_left_ = 0;

  std::vector<location> places_;
  std::vector<datum> data_;
  const char* label_ = "atomic";

  std::vector<option> options_;
  std::vector<decision> path_;
  std::size_t step_ = 0;
  std::unordered_set<std::uint64_t> known_;
  std::array<std::array<std::uint8_t, 256>, most_threads> ranks_{};
  std::vector<taken_step> trace_;
  report report_;
};

}  // namespace model
