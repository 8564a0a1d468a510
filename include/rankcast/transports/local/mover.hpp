/// Copies and folds that touch a peer's memory. Before each chunk the mover raises its mark and
/// looks at the state word again (and where small data are), so that a rank that revokes the group,
/// or recalls a loan, knows once the marks have moved that nobody reads or writes its buffers.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/error.hpp"
#include "rankcast/core/layout.hpp"
#include "rankcast/core/message.hpp"
#include "rankcast/core/reduction.hpp"
#include "rankcast/core/timeout.hpp"
#include "rankcast/core/transport.hpp"
#include "rankcast/transports/local/claims.hpp"
#include "rankcast/transports/local/copying.hpp"
#include "rankcast/transports/local/group.hpp"
#include "rankcast/transports/local/revoke.hpp"

namespace rankcast::inline v0::local {

/// Likewise, when the sender of a letter withdraws it while it is read.
struct sender_gave_up {};

/// When all that the ranks of a call read and write together is as much as this, copies are written
/// past the caches, which they would only sweep empty: about the size of a last cache, and a fifth
/// to a third of the time from there on.
inline constexpr std::size_t past_caches_bytes = std::size_t{40} << 20;

/// Of a result that is stored twice: the second time it is still in the first cache.
inline constexpr std::size_t in_cache = 8 * 1024;

/// Elements of one memory that go to another.
struct transfer {
  int source = 0;
  const std::byte* from = nullptr;
  const layout* from_layout = nullptr;
  std::int64_t from_first = 0;
  std::byte* to = nullptr;
  const layout* to_layout = nullptr;
  std::int64_t to_first = 0;
  std::int64_t count = 0;
  std::size_t element_bytes = 1;
  bool past_caches = false;

  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(count) * element_bytes;
  }
};

class mover {
 public:
  mover(const group& g, int rank, transport_counters& counters) noexcept
      : group_(g), rank_(rank), counters_(counters) {}

  /// From now on all that is read lies on the board.
  void use_board_only() noexcept { only_board_ = true; }

  /// Runs `f` with the mark raised. Throws group_revoked.
  template <class F>
  void guarded(F&& f) {
    if (only_board_) {  // nobody's memory but ours
      f();
      return;
    }
    mark& own = group_.of(rank_).moving;
    if (!own.raise(group_.state())) throw group_revoked{};
    const struct lower {
      mark& m;
      ~lower() { m.lower(); }
    } at_the_end{own};
    f();
  }

  /// Copies from one of our buffers to another one.
  static void copy_own(const transfer& t) { copy_part(t, 0, t.count); }

  /// Copies from a peer's buffer to ours. `proceed()` is asked before each chunk; false stops the
  /// copy and is returned.
  template <class Proceed>
  bool copy(const transfer& t, Proceed&& proceed) {
    const auto chunk = chunk_elements(group_.sizes.chunk_bytes, t.element_bytes);
    for (std::int64_t done = 0; done < t.count; done += chunk) {
      if (!proceed()) return false;
      const std::int64_t n = std::min(chunk, t.count - done);
      guarded([&] { copy_part(t, done, n); });
    }
    counters_.bytes_received += t.bytes();
    return true;
  }

  /// Copies from peers whose buffers are lent to us, who copy along if they have nothing better to
  /// do. When it returns nobody copies any more.
  void copy_all(std::span<const transfer> transfers) {
    if (transfers.empty()) return;
    std::uint64_t helped_before[max_shared] = {};
    std::uint32_t mine[max_shared] = {};
    bool any_left[max_shared] = {};
    for (std::size_t begin = 0; begin < transfers.size(); begin += max_shared) {
      const auto part = transfers.subspan(begin, std::min(max_shared, transfers.size() - begin));
      for (std::size_t i = 0; i < part.size(); ++i) {
        any_left[i] = share(part[i], helped_before[i]);
        mine[i] = 0;
        if (!any_left[i]) copy(part[i], [] { return true; });
      }
      // A chunk of each in turn, so that every source has something to do.
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t i = 0; i < part.size(); ++i) {
          if (!any_left[i]) continue;
          any_left[i] = copy_claimed(part[i].source, rank_);
          if (any_left[i]) {
            ++mine[i];
            moved = true;
          }
        }
      }
      for (std::size_t i = 0; i < part.size(); ++i) {
        shared_copy& c = group_.lines.pair(part[i].source, rank_).copy;
        if (mine[i] == 0 && c.chunks == 0) continue;
        wait_for_help(c, helped_before[i] + c.chunks - mine[i], part[i]);
        c.chunks = 0;
      }
    }
  }

  /// Copies a chunk of what `reader` takes from us. False when there is none.
  bool help(int reader) {
    shared_copy& c = group_.lines.pair(rank_, reader).copy;
    if ((c.claim.load(std::memory_order_relaxed) & claims::most_chunks) == 0) return false;
    if (!copy_claimed(rank_, reader)) return false;
    c.helped.fetch_add(1, std::memory_order_release);
    return true;
  }

  /// Folds elements [first, first + count) of all ranks' data, in rank order, and stores them at
  /// `to_first` of each of the targets. `source(r)` tells where rank r's data are.
  struct place {
    std::byte* data;
    const layout* where;
  };
  template <class Source>
  void fold(const reduction& r, Source&& source, std::span<const place> targets,
            std::int64_t to_first, std::int64_t first, std::int64_t count,
            std::size_t element_bytes) {
    if (group_.size == 2 && fold_two(r, source, targets, to_first, first, count, element_bytes)) {
      return;
    }
    accumulator sum(r);
    for (std::int64_t done = 0; done < count; done += sum.capacity()) {
      const std::int64_t n = std::min(sum.capacity(), count - done);
      guarded([&] {
        for (int p = 0; p < group_.size; ++p) {
          const place theirs = source(p);
          sum.add(p == 0, theirs.data, *theirs.where, first + done, n, element_bytes);
        }
        for (const place& t : targets) {
          sum.store(t.data, *t.where, to_first + done, n, element_bytes);
        }
      });
    }
    counters_.bytes_received += static_cast<std::uint64_t>(count) * element_bytes *
                                static_cast<std::uint64_t>(group_.size - 1);
  }

 private:
  static constexpr std::size_t max_shared = 16;  // copies at once

  // Two ranks' values, which all lie in one piece, without a detour by an accumulator.
  template <class Source>
  bool fold_two(const reduction& r, Source& source, std::span<const place> targets,
                std::int64_t to_first, std::int64_t first, std::int64_t count,
                std::size_t element_bytes) {
    if (!source(0).where->is_contiguous() || !source(1).where->is_contiguous()) return false;
    for (const place& t : targets) {
      if (!t.where->is_contiguous()) return false;
    }
    const auto size = static_cast<std::int64_t>(element_bytes);
    // To the peer's buffer first: in place, its lines are read and written at once (see
    // copying.hpp).
    const place& nearest = targets[targets.size() > 1 ? static_cast<std::size_t>(1 - rank_) : 0];
    const std::int64_t chunk =
        chunk_elements(targets.size() > 1 ? in_cache : group_.sizes.chunk_bytes, element_bytes);
    for (std::int64_t done = 0; done < count; done += chunk) {
      const std::int64_t n = std::min(chunk, count - done);
      guarded([&] {
        std::byte* const result = nearest.data + (to_first + done) * size;
        r.combine(result, source(0).data + (first + done) * size,
                  source(1).data + (first + done) * size, n, r.callable);
        for (const place& t : targets) {
          std::byte* const to = t.data + (to_first + done) * size;
          if (to != result) std::memcpy(to, result, static_cast<std::size_t>(n * size));
        }
      });
    }
    counters_.bytes_received += static_cast<std::uint64_t>(count) * element_bytes;
    return true;
  }
  [[nodiscard]] static std::int64_t chunk_elements(std::size_t bytes,
                                                   std::size_t element_bytes) noexcept {
    return static_cast<std::int64_t>(std::max<std::size_t>(1, bytes / element_bytes));
  }

  static void copy_part(const transfer& t, std::int64_t done, std::int64_t n) {
    if (n == 0) return;  // there may be no address
    if (t.past_caches && t.from_layout->is_contiguous() && t.to_layout->is_contiguous()) {
      const auto size = static_cast<std::int64_t>(t.element_bytes);
      std::byte* const to = t.to + (t.to_first + done) * size;
      const std::byte* const from = t.from + (t.from_first + done) * size;
      if (to != from) copy_streaming(to, from, static_cast<std::size_t>(n * size));
      return;
    }
    copy_elements(t.to, *t.to_layout, t.to_first + done, t.from, *t.from_layout,
                  t.from_first + done, n, t.element_bytes);
  }

  // Posts a copy for its source to join in. False when it is too small for that.
  bool share(const transfer& t, std::uint64_t& helped_before) {
    shared_copy& c = group_.lines.pair(t.source, rank_).copy;
    c.chunks = 0;
    if (t.bytes() < group_.help_bytes) return false;
    const std::size_t chunk_bytes = std::clamp<std::size_t>(
        t.bytes() / 8, std::min<std::size_t>(16384, group_.sizes.chunk_bytes),
        group_.sizes.chunk_bytes);
    c.chunk = chunk_elements(chunk_bytes, t.element_bytes);
    while ((t.count + c.chunk - 1) / c.chunk > static_cast<std::int64_t>(claims::most_chunks)) {
      c.chunk *= 2;
    }
    c.chunks = static_cast<std::uint32_t>((t.count + c.chunk - 1) / c.chunk);
    c.count = t.count;
    c.element_bytes = static_cast<std::uint32_t>(t.element_bytes);
    c.past_caches = t.past_caches;
    c.flat = t.from_layout->is_contiguous() && t.to_layout->is_contiguous();
    const auto size = static_cast<std::int64_t>(t.element_bytes);
    c.from = reinterpret_cast<std::uintptr_t>(t.from + (c.flat ? t.from_first * size : 0));
    c.to = reinterpret_cast<std::uintptr_t>(t.to + (c.flat ? t.to_first * size : 0));
    if (!c.flat) {
      c.from_first = t.from_first;
      c.to_first = t.to_first;
      c.from_layout = *t.from_layout;
      c.to_layout = *t.to_layout;
    }
    helped_before = c.helped.load(std::memory_order_relaxed);
    claims::post(c.claim, c.chunks);
    group_.ring(t.source);
    return true;
  }

  // One chunk of what `reader` takes from `source`, for one of the two. The mark is up before the
  // claim, so that the reader cannot be told that all is over while a chunk is being written.
  bool copy_claimed(int source, int reader) {
    shared_copy& c = group_.lines.pair(source, reader).copy;
    bool copied = false;
    guarded([&] {
      const std::uint32_t left = claims::take(c.claim);
      if (left == 0) return;
      auto* const to = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(c.to));
      const auto* from = reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(c.from));
      const std::int64_t done = static_cast<std::int64_t>(c.chunks - left) * c.chunk;
      const std::int64_t n = std::min(c.chunk, c.count - done);
      if (c.flat) {
        const std::size_t bytes = static_cast<std::size_t>(n) * c.element_bytes;
        const std::int64_t at = done * static_cast<std::int64_t>(c.element_bytes);
        if (c.past_caches) copy_streaming(to + at, from + at, bytes);
        else std::memcpy(to + at, from + at, bytes);
      } else {
        copy_elements(to, c.to_layout, c.to_first + done, from, c.from_layout, c.from_first + done,
                      n, c.element_bytes);
      }
      copied = true;
    });
    return copied;
  }

  void wait_for_help(shared_copy& c, std::uint64_t until, const transfer& t) {
    for (int i = 0; c.helped.load(std::memory_order_acquire) != until; ++i) {
      if (revoked(group_)) throw group_revoked{};
      if (i < group_.spin_limit) relax_cpu();
      else sched_yield();
    }
    counters_.bytes_received += t.bytes();
  }

  const group& group_;
  int rank_;
  transport_counters& counters_;
  bool only_board_ = false;
};

/// The segments of a message that lies in a peer's memory. `proceed` as for mover::copy.
template <class Proceed>
class shared_segments final : public segment_reader {
 public:
  shared_segments(mover& m, int source, const message& content, Proceed proceed)
      : mover_(m), source_(source), content_(content), proceed_(std::move(proceed)) {
    std::size_t all = 0;
    for (const auto& s : content.segments) {
      sizes_.push_back(s.size());
      all += s.size();
    }
    past_caches_ = 2 * all >= past_caches_bytes;
  }
  [[nodiscard]] std::span<const std::uint64_t> sizes() const noexcept override { return sizes_; }
  void read(std::span<std::byte> to) override {
    require_segment(sizes_, next_, to.size());
    const layout flat = layout::flat(static_cast<std::int64_t>(to.size()));
    transfer t;
    t.source = source_;
    t.from = content_.segments[next_++].data();
    t.to = to.data();
    t.from_layout = t.to_layout = &flat;
    t.count = flat.elements();
    t.past_caches = past_caches_;
    if (source_ >= 0) mover_.copy_all({&t, 1});
    else if (!mover_.copy(t, proceed_)) throw sender_gave_up{};
  }

 private:
  mover& mover_;
  int source_;  // that may copy along; -1: none does
  const message& content_;
  Proceed proceed_;
  std::vector<std::uint64_t> sizes_;
  bool past_caches_ = false;
  std::size_t next_ = 0;
};

}  // namespace rankcast::inline v0::local
