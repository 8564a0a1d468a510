/// Time limits of operations: `timeout` is how long, `deadline` is until when, and
/// `scoped_timeout` says where another limit holds.
///
/// The limit of a call is the first that is set of: the call's own option, the innermost
/// `scoped_timeout` of this thread for this group, the group's default, the library's default.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "rankcast/core/config.hpp"
#include "rankcast/core/error.hpp"

namespace rankcast::inline v0 {

class RANKCAST_API communicator;

using steady_clock = std::chrono::steady_clock;

/// How long a call may take: unset (the next outer rule decides), a duration, or `no_timeout`.
class timeout {
 public:
  constexpr timeout() noexcept = default;

  /// Throws usage_error when negative. Zero is legal: the call succeeds only if nothing is missing.
  template <class Rep, class Period>
  constexpr timeout(std::chrono::duration<Rep, Period> limit)  // NOLINT: implicit on purpose
      : state_(state::limited), limit_(saturate(limit)) {
    if (limit < limit.zero()) throw usage_error("timeout: a time limit cannot be negative");
  }

  static constexpr timeout none() noexcept {
    timeout t;
    t.state_ = state::none;
    return t;
  }

  [[nodiscard]] constexpr bool is_set() const noexcept { return state_ != state::unset; }
  [[nodiscard]] constexpr bool is_none() const noexcept { return state_ == state::none; }
  /// Meaningful when set and not none.
  [[nodiscard]] constexpr std::chrono::nanoseconds limit() const noexcept { return limit_; }

  /// This limit when set, else `outer`.
  [[nodiscard]] constexpr timeout or_else(timeout outer) const noexcept {
    return is_set() ? *this : outer;
  }

  friend constexpr bool operator==(const timeout&, const timeout&) noexcept = default;

 private:
  enum class state : std::uint8_t { unset, limited, none };

  // hours(1'000'000) is legal although its nanoseconds do not fit.
  template <class Rep, class Period>
  static constexpr std::chrono::nanoseconds saturate(std::chrono::duration<Rep, Period> d) {
    using wide = std::chrono::duration<long double, std::nano>;
    if (wide(d) >= wide(std::chrono::nanoseconds::max())) return std::chrono::nanoseconds::max();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(d);
  }

  state state_ = state::unset;
  std::chrono::nanoseconds limit_{0};
};

/// Wait for as long as it takes. Always explicit, never a default.
inline constexpr timeout no_timeout = timeout::none();

namespace detail {
inline std::atomic<std::int64_t> library_timeout_nanoseconds RANKCAST_API{60'000'000'000};
}

/// The limit of groups that have none of their own: 60 s unless changed.
[[nodiscard]] inline timeout library_timeout() noexcept {
  const auto n = detail::library_timeout_nanoseconds.load(std::memory_order_relaxed);
  return n < 0 ? no_timeout : timeout(std::chrono::nanoseconds(n));
}

/// Changes the library's default for the whole process; calls in flight keep theirs.
inline void set_library_timeout(timeout limit) {
  if (!limit.is_set()) throw usage_error("set_library_timeout: the limit is unset");
  detail::library_timeout_nanoseconds.store(limit.is_none() ? -1 : limit.limit().count(),
                                            std::memory_order_relaxed);
}

/// A point in time after which a call gives up. Fixed when the call starts; a call of several
/// steps spends one deadline.
class deadline {
 public:
  constexpr deadline() noexcept = default;  // never

  static deadline after(timeout limit, steady_clock::time_point begin) noexcept {
    deadline d;
    if (!limit.is_set() || limit.is_none()) return d;
    d.at_ = limit.limit() >= steady_clock::time_point::max() - begin
                ? steady_clock::time_point::max()
                : begin + limit.limit();
    return d;
  }
  static deadline after(timeout limit) noexcept { return after(limit, steady_clock::now()); }

  [[nodiscard]] bool never() const noexcept { return at_ == steady_clock::time_point::max(); }
  [[nodiscard]] bool expired() const noexcept { return !never() && steady_clock::now() >= at_; }
  [[nodiscard]] steady_clock::time_point at() const noexcept { return at_; }
  /// What is left, as a limit to hand to an inner call. Zero once expired.
  [[nodiscard]] timeout remaining() const noexcept {
    if (never()) return no_timeout;
    const auto now = steady_clock::now();
    return now >= at_ ? timeout(std::chrono::nanoseconds(0)) : timeout(at_ - now);
  }

 private:
  steady_clock::time_point at_ = steady_clock::time_point::max();
};

/// While it lives, calls of this thread on this group (through any copy of the handle) have this
/// limit. Scopes nest, the innermost wins, and the outer one holds again when it ends, also by an
/// exception. Other threads, other groups and sub-groups are not touched.
class RANKCAST_API scoped_timeout {
 public:
  scoped_timeout(const communicator& group, timeout limit);  // defined in communicator.hpp

  ~scoped_timeout() {
    for (scoped_timeout** link = &innermost_; *link != nullptr; link = &(*link)->outer_) {
      if (*link == this) {
        *link = outer_;
        return;
      }
    }
  }

  scoped_timeout(const scoped_timeout&) = delete;
  scoped_timeout& operator=(const scoped_timeout&) = delete;

  /// The innermost scope's limit for a group on this thread; unset when there is none.
  [[nodiscard]] static timeout find(std::uint64_t group_id) noexcept {
    for (const scoped_timeout* s = innermost_; s != nullptr; s = s->outer_) {
      if (s->group_id_ == group_id) return s->limit_;
    }
    return {};
  }

 private:
  static inline thread_local scoped_timeout* innermost_ = nullptr;

  std::uint64_t group_id_;
  timeout limit_;
  scoped_timeout* outer_;
};

}  // namespace rankcast::inline v0
