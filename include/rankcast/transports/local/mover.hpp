/// Copies and folds that read a peer's memory. Before each chunk the mover raises its mark and
/// looks at the state word again, so that a rank that revokes the group knows, once the marks are
/// down, that nobody reads its buffers.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "rankcast/core/layout.hpp"
#include "rankcast/core/reduction.hpp"
#include "rankcast/core/timeout.hpp"
#include "rankcast/core/transport.hpp"
#include "rankcast/transports/local/group.hpp"

namespace rankcast::inline v0::local {

/// Thrown inside the transport when the group is found revoked in the middle of a call; never
/// leaves it.
struct group_revoked {};

class mover {
 public:
  mover(group& g, int rank, transport_counters& counters) noexcept
      : group_(g), rank_(rank), counters_(counters), begin_(steady_clock::now()) {}
  ~mover() { counters_.moving += steady_clock::now() - begin_; }
  mover(const mover&) = delete;
  mover& operator=(const mover&) = delete;

  /// Runs `f` with the mark raised. Throws group_revoked.
  template <class F>
  void guarded(F&& f) {
    std::atomic<bool>& mark = group_.of(rank_).moving;
    const struct lower {
      std::atomic<bool>& m;
      ~lower() { m.store(false, std::memory_order_seq_cst); }
    } lower_mark{mark};
    mark.store(true, std::memory_order_seq_cst);
    if (group_.state.load(std::memory_order_seq_cst) != 0) throw group_revoked{};
    f();
  }

  /// Elements [from_first, from_first + count) of a peer's buffer to position `to_first` of ours.
  /// `proceed()` is asked before each chunk; false stops the copy and is returned.
  template <class Proceed>
  bool copy(std::byte* to, const layout& to_layout, std::int64_t to_first, const std::byte* from,
            const layout& from_layout, std::int64_t from_first, std::int64_t count,
            std::size_t element_bytes, Proceed&& proceed) {
    const auto chunk = static_cast<std::int64_t>(
        std::max<std::size_t>(1, group_.sizes.chunk_bytes / element_bytes));
    for (std::int64_t done = 0; done < count; done += chunk) {
      if (!proceed()) return false;
      const std::int64_t n = std::min(chunk, count - done);
      guarded([&] {
        copy_elements(to, to_layout, to_first + done, from, from_layout, from_first + done, n,
                      element_bytes);
      });
    }
    counters_.bytes_received += static_cast<std::uint64_t>(count) * element_bytes;
    return true;
  }
  void copy(std::byte* to, const layout& to_layout, std::int64_t to_first, const std::byte* from,
            const layout& from_layout, std::int64_t from_first, std::int64_t count,
            std::size_t element_bytes) {
    copy(to, to_layout, to_first, from, from_layout, from_first, count, element_bytes,
         [] { return true; });
  }

  /// Folds elements [first, first + count) of all ranks' publications of a call, in rank order,
  /// and stores them at position `to_first` of ours.
  void fold(std::uint64_t sequence, const reduction& r, std::byte* to, const layout& to_layout,
            std::int64_t to_first, std::int64_t first, std::int64_t count,
            std::size_t element_bytes) {
    alignas(64) std::byte accumulator[scratch_bytes];
    const auto chunk = static_cast<std::int64_t>(scratch_bytes / r.accumulator_bytes);
    const auto size = static_cast<std::int64_t>(element_bytes);
    for (std::int64_t done = 0; done < count; done += chunk) {
      const std::int64_t n = std::min(chunk, count - done);
      guarded([&] {
        for (int p = 0; p < group_.size; ++p) {
          const publication& theirs = group_.slot(p, sequence);
          each_run(theirs.data_layout, first + done, n,
                   [&](std::int64_t at, std::int64_t offset, std::int64_t run) {
                     std::byte* a =
                         accumulator + static_cast<std::size_t>(at) * r.accumulator_bytes;
                     const std::byte* v = theirs.data + offset * size;
                     if (p == 0) r.load(a, v, run);
                     else r.fold(a, v, run, r.callable);
                   });
        }
        each_run(to_layout, to_first + done, n,
                 [&](std::int64_t at, std::int64_t offset, std::int64_t run) {
                   r.store(to + offset * size,
                           accumulator + static_cast<std::size_t>(at) * r.accumulator_bytes, run);
                 });
      });
    }
    counters_.bytes_received += static_cast<std::uint64_t>(count) * element_bytes *
                                static_cast<std::uint64_t>(group_.size - 1);
  }

 private:
  static constexpr std::size_t scratch_bytes = 16 * 1024;  // stays in the L1 cache

  // f(position from the start, offset in the layout, length), in elements.
  template <class F>
  static void each_run(const layout& l, std::int64_t first, std::int64_t count, F&& f) {
    run_walker walker(l, first);
    for (std::int64_t at = 0; at < count;) {
      const std::int64_t n = std::min(walker.run(), count - at);
      f(at, walker.offset(), n);
      walker.advance(n);
      at += n;
    }
  }

  group& group_;
  int rank_;
  transport_counters& counters_;
  steady_clock::time_point begin_;
};

}  // namespace rankcast::inline v0::local
