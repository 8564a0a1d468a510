/// What a backend implements: one class per group and rank. It knows operations and buffers, never
/// a user's types.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rankcast/core/operation.hpp"

namespace rankcast::inline v0 {

/// Counted by the transport since the group was made; this rank's own share.
struct transport_counters {
  std::uint64_t operations = 0;
  std::uint64_t bytes_sent = 0;         // payload that this rank offered to others
  std::uint64_t bytes_received = 0;     // payload that this rank took from others
  std::chrono::nanoseconds waiting{0};  // inside calls, for peers
  // Inside calls, copying and folding; small calls may be left out, for looking at a clock takes
  // longer than they do.
  std::chrono::nanoseconds moving{0};
};

enum class rank_state : std::uint8_t { alive, left, closed };

struct revocation;

/// An operation in flight. Shared by the transport that advances it and the `work` that waits.
struct flight {
  bool done = false;
  std::exception_ptr failure{};        // set before done
  std::shared_ptr<const void> keep{};  // whatever the operation borrows from the library itself
};

class RANKCAST_API transport {
 public:
  virtual ~transport() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// Begins a checked operation. Operations of a group match by start order. Throws when the group
  /// is revoked or closed; never waits.
  virtual std::shared_ptr<flight> start(const operation& op) = 0;

  /// Carries a checked operation out to its end and throws its error. May put off reading the
  /// clock (`operation::start_clock`).
  virtual void run(operation& op);  // work.hpp: start, and wait for it

  /// Takes this rank's place in a collective that it cannot carry out (its arguments are wrong, its
  /// encoder threw): the others get remote_error with `text`, and the group goes on.
  virtual void refuse(const operation& op, const std::string& text) = 0;

  /// Advances what this rank has in flight as far as it goes without waiting. True if anything
  /// moved.
  virtual bool progress() = 0;

  /// Serves what peers ask for while a call of this group waits further up on this thread's stack,
  /// in the decoder of another group.
  virtual void listen() {}

  /// Waits for a sign of life from a peer, at most `limit`; may return at any time. `attempt`
  /// counts the calls since something moved, so that the first ones can spin.
  virtual void pause(int attempt, std::chrono::nanoseconds limit) = 0;

  /// True while something started here has not completed.
  [[nodiscard]] virtual bool busy() const noexcept = 0;

  /// A transport for some ranks of this group, called by each of them with the same `ranks` (in
  /// the order of their new numbers) and the same `key`. Does not communicate by itself.
  virtual std::shared_ptr<transport> subgroup(std::span<const int> ranks, std::uint64_t key,
                                              const std::string& group_name) = 0;

  /// Ends the group for all its ranks at once; the first cause wins. Does not communicate; returns
  /// when no peer reads this rank's buffers any more, at most one chunk later.
  virtual void revoke(const std::string& cause) noexcept = 0;

  /// The group is over, as another transport that serves the same group has found: what is in
  /// flight here fails with its cause. Tells nobody.
  virtual void end(const revocation&, int /*by*/) noexcept {}
  /// Likewise: a rank has gone without a word.
  virtual void lose(int /*rank*/) noexcept {}
  /// The other transport has slept: the next `progress` looks at the clock.
  virtual void look_at_clock() noexcept {}

  /// Gives up an operation in flight whose caller does not wait for it any more: revokes the group,
  /// or withdraws a send or receive. When it returns nobody touches the caller's buffers; that
  /// takes at most one chunk.
  virtual void abandon(flight& f) noexcept = 0;

  /// This rank says goodbye: it took part in the collective `close` and makes no further calls.
  virtual void close() noexcept = 0;

  /// Throws the first cause if the group was revoked, as far as is known here.
  virtual void check() = 0;

  [[nodiscard]] virtual std::vector<rank_state> health() const = 0;
  [[nodiscard]] virtual transport_counters counters() const noexcept = 0;
  virtual void add_waiting(std::chrono::nanoseconds time) noexcept = 0;

  /// What a reduction promises: the order in which ranks are folded.
  [[nodiscard]] virtual std::string_view reduction_guarantee() const noexcept {
    return "left fold in rank order, bit-identical on all ranks";
  }

  /// One thread at a time: a second thread, or a call from inside a callback of the same group, is
  /// refused.
  class entry {
   public:
    explicit entry(transport& t) : owner_(t) {
      const void* expected = nullptr;
      const void* const self = this_thread();
      if (!t.inside_.compare_exchange_strong(expected, self, std::memory_order_acquire)) {
        owner_entered_ = false;
        same_thread_ = expected == self;
      }
    }
    ~entry() {
      if (owner_entered_) owner_.inside_.store(nullptr, std::memory_order_release);
    }
    entry(const entry&) = delete;
    entry& operator=(const entry&) = delete;

    [[nodiscard]] bool entered() const noexcept { return owner_entered_; }
    /// Refused because this thread is inside already.
    [[nodiscard]] bool nested() const noexcept { return same_thread_; }
    /// Throws usage_error when refused; `call()` is the text of the call, made only then.
    template <class Text>
    void require(Text&& call) const {
      if (owner_entered_) return;
      throw usage_error(
          std::string(call()) +
          (same_thread_ ? ": called from inside a reduction, codec or hook of the same group"
                        : ": another thread is inside a call of this group; a second thread needs "
                          "a group of its own, from duplicate()"));
    }

   private:
    // Tells threads apart, without a call.
    RANKCAST_API static const void* this_thread() noexcept {
      static thread_local char own = 0;
      return &own;
    }

    transport& owner_;
    bool owner_entered_ = true;
    bool same_thread_ = false;
  };

 private:
  std::atomic<const void*> inside_{nullptr};
};

}  // namespace rankcast::inline v0
