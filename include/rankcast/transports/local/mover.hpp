/// Copies and folds that read a peer's memory. Before each chunk the mover raises its mark and
/// looks at the state word again, so that a rank that revokes the group knows, once the marks are
/// down, that nobody reads its buffers.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
#include "rankcast/transports/local/group.hpp"

namespace rankcast::inline v0::local {

/// Thrown inside the transport when the group is found revoked in the middle of a call; never
/// leaves it.
struct group_revoked {};

/// Likewise, when the sender of a letter withdraws it while it is read.
struct sender_gave_up {};

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
    accumulator sum(r);
    for (std::int64_t done = 0; done < count; done += sum.capacity()) {
      const std::int64_t n = std::min(sum.capacity(), count - done);
      guarded([&] {
        for (int p = 0; p < group_.size; ++p) {
          const publication& theirs = group_.slot(p, sequence);
          sum.add(p == 0, theirs.data, theirs.data_layout, first + done, n, element_bytes);
        }
        sum.store(to, to_layout, to_first + done, n, element_bytes);
      });
    }
    counters_.bytes_received += static_cast<std::uint64_t>(count) * element_bytes *
                                static_cast<std::uint64_t>(group_.size - 1);
  }

 private:
  group& group_;
  int rank_;
  transport_counters& counters_;
  steady_clock::time_point begin_;
};

/// The segments of a message that lies in a peer's memory. `proceed` as for mover::copy.
template <class Proceed>
class shared_segments final : public segment_reader {
 public:
  shared_segments(mover& m, const message& content, Proceed proceed)
      : mover_(m), content_(content), proceed_(std::move(proceed)) {
    for (const auto& s : content.segments) sizes_.push_back(s.size());
  }
  [[nodiscard]] std::span<const std::uint64_t> sizes() const noexcept override { return sizes_; }
  void read(std::span<std::byte> to) override {
    require_segment(sizes_, next_, to.size());
    const layout flat = layout::contiguous({static_cast<std::int64_t>(to.size())});
    const std::byte* from = content_.segments[next_++].data();
    if (!mover_.copy(to.data(), flat, 0, from, flat, 0, flat.elements(), 1, proceed_)) {
      throw sender_gave_up{};
    }
  }

 private:
  mover& mover_;
  const message& content_;
  Proceed proceed_;
  std::vector<std::uint64_t> sizes_;
  std::size_t next_ = 0;
};

}  // namespace rankcast::inline v0::local
