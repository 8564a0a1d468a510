/// Frames between ranks, threads or processes, that see one block of memory: a ring of bytes for
/// each ordered pair of ranks. A frame is its length and its bytes, one behind the other; one that
/// is larger than the ring flows through it in pieces. A chunk that lies in a slot stays there:
/// what goes through the ring is a reference to it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rankcast/core/error.hpp"
#include "rankcast/transports/frames/link.hpp"
#include "rankcast/transports/local/copying.hpp"
#include "rankcast/transports/local/slots.hpp"

namespace rankcast::inline v0::local {

/// How ranks sleep and wake each other: a matter of who owns the block.
class RANKCAST_API wakeups {
 public:
  /// Wakes all threads of that rank which sleep; cheap when none does. Comes after what it is about
  /// has been written, with sequentially consistent order: who raises its sign of sleep in that
  /// order too, and finds the link `quiet` after that, misses nothing. May be called by any thread,
  /// with locks of the link held. The rank may be the caller's own, for its other threads.
  virtual void wake(int rank) noexcept = 0;
  /// As transport::pause.
  virtual void pause(int attempt, std::chrono::nanoseconds limit) = 0;

 protected:
  ~wakeups() = default;
};

/// What stands before the bytes of a ring, zero at first. Positions count the bytes since the
/// beginning and are never reset; each line of memory has one writer.
struct pipe_head {
  alignas(128) std::uint64_t written;  // by the sender, as is
  std::uint32_t wants_room;            // 1: wake the sender when there is some
  alignas(128) std::uint64_t read;     // by the receiver
};
static_assert(std::is_trivial_v<pipe_head> && sizeof(pipe_head) == 256);
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free &&
              std::atomic_ref<std::uint32_t>::is_always_lock_free);

class pipes final : public frames::link {
 public:
  /// A length beyond this is none that a rank has written.
  static constexpr std::uint64_t most_frame_bytes = std::uint64_t{1} << 32;

  /// Bytes of the block for all ranks; `pipe_bytes`: of each ring, rounded up to lines of memory.
  [[nodiscard]] static std::size_t bytes_needed(int ranks, std::size_t pipe_bytes) noexcept {
    return static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks - 1) *
           stride(pipe_bytes);
  }
  /// Where in the block the `pipe_head` of a pair is, and behind it the ring.
  [[nodiscard]] static std::size_t pipe_offset(int from, int to, int ranks,
                                               std::size_t pipe_bytes) noexcept {
    const int row = to > from ? to - 1 : to;
    return static_cast<std::size_t>(from * (ranks - 1) + row) * stride(pipe_bytes);
  }

  /// One link per rank, of the same sizes on all. The block starts at a multiple of 128 bytes, is
  /// zero before the first rank uses it, and outlives the link, as `w` does; it may have a
  /// different address in each process. `large`: of the same block, or none on any rank. Throws
  /// usage_error.
  pipes(std::byte* block, int rank, int ranks, std::size_t pipe_bytes, wakeups& w,
        std::shared_ptr<slots> large = nullptr)
      : rank_(rank),
        size_(ranks),
        slots_(std::move(large)),
        capacity_(ring_bytes(pipe_bytes)),
        piece_(std::max<std::size_t>(capacity_ / 4, 64)),
        wakeups_(w),
        outlets_(others(rank, ranks)),
        inlets_(others(rank, ranks)) {
    if (reinterpret_cast<std::uintptr_t>(block) % alignof(pipe_head) != 0) {
      throw usage_error("pipes: the block must start at a multiple of 128 bytes");
    }
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      outlet& o = outlets_[slot(peer)];
      inlet& i = inlets_[slot(peer)];
      o.to = i.from = peer;
      attach(o, block + pipe_offset(rank, peer, ranks, pipe_bytes));
      attach(i, block + pipe_offset(peer, rank, ranks, pipe_bytes));
      o.written = word(o.head->written).load();
      o.at = static_cast<std::size_t>(o.written % capacity_);
      o.seen_read = o.written - capacity_;  // no room until the first look
      i.published = word(i.head->read).load();
      i.at = static_cast<std::size_t>(i.published % capacity_);
      i.position.store(i.published, std::memory_order_relaxed);
    }
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] int place_of(int) const noexcept override { return 0; }
  [[nodiscard]] frames::room shared_room(std::size_t bytes) override {
    return slots_ == nullptr ? frames::room{} : slots_->take(bytes);
  }

  /// Throws usage_error when the frame has more than `most_frame_bytes`. Costs one copy when there
  /// is room.
  void post(int to, frames::frame f, frames::unsent_count unsent = {}) override {
    if (to == rank_) {
      deliver(std::move(f));
      wakeups_.wake(rank_);
      return;
    }
    if (f.size() + f.shared.size() > most_frame_bytes) {
      throw usage_error("pipes: a frame of " + std::to_string(f.size() + f.shared.size()) +
                        " bytes is too large");
    }
    const std::lock_guard lock(send_mutex_);
    outlet& o = outlets_[slot(to)];
    outgoing next{std::move(f), {}, 0, {}};
    if (slots_ != nullptr) next.reference = slots_->refer(next.data.shared);
    if (o.queue.empty() && room(o, next.total()) >= next.total()) {
      write(o, next);
      recycle(std::move(next.data));
      return;
    }
    // Queued before anything of it is written: without memory no half of a frame is left there.
    next.unsent = std::move(unsent);
    o.queue.push_back(std::move(next));
    if (o.queue.back().unsent != nullptr) {
      o.queue.back().unsent->fetch_add(1, std::memory_order_relaxed);
    }
    if (o.queue.size() > 1) return;
    queued_.fetch_add(1, std::memory_order_relaxed);
    flush(o);
  }

  /// Costs one load per peer when there is nothing to do. Throws transport_error, from then on each
  /// time, when a peer has written what no rank writes; all others are served before.
  bool progress() override {
    bool moved = false;
    if (queued_.load(std::memory_order_relaxed) != 0) moved = flush_all();
    if (anything_arrived()) moved = receive_all() || moved;
    if (const int peer = corrupt_.load(std::memory_order_relaxed); peer != nobody) {
      throw transport_error("pipes: rank " + std::to_string(rank_) + " cannot read what rank " +
                                std::to_string(peer) +
                                " has written into the memory that they share",
                            EPROTO);
    }
    return moved;
  }

  void pause(int attempt, std::chrono::nanoseconds limit) override {
    wakeups_.pause(attempt, limit);
  }

  /// True when `progress` would find nothing to do: what to look at between the sign of sleep and
  /// the sleep. Takes no lock.
  [[nodiscard]] bool quiet() const noexcept {
    if (corrupt_.load(std::memory_order_relaxed) != nobody || anything_arrived()) return false;
    return queued_.load(std::memory_order_relaxed) == 0 ||
           std::none_of(outlets_.begin(), outlets_.end(), [this](const outlet& o) {
             if (word(o.head->wants_room).load(std::memory_order_relaxed) == 0) return false;
             const std::uint64_t read = word(o.head->read).load();
             return word(o.head->written).load() - read <= capacity_ - length_bytes;
           });
  }

  /// True when everything posted is in the rings: what the owner waits for before it ends.
  [[nodiscard]] bool all_sent() const noexcept {
    return queued_.load(std::memory_order_relaxed) == 0;
  }

 private:
  static constexpr std::size_t length_bytes = sizeof(std::uint64_t);
  static constexpr std::size_t at_once = std::size_t{1} << 20;
  static constexpr std::uint64_t with_reference = std::uint64_t{1} << 63;  // in a length
  static constexpr int nobody = -1;

  // Its length, its own bytes, and its payload or a reference to that.
  struct outgoing {
    frames::frame data;
    std::optional<slot_reference> reference;
    std::size_t sent = 0;
    frames::unsent_count unsent;

    [[nodiscard]] std::span<const std::byte> tail() const noexcept {
      return reference ? std::as_bytes(std::span(&*reference, 1)) : data.shared.bytes();
    }
    [[nodiscard]] std::size_t total() const noexcept {
      return length_bytes + data.size() + tail().size();
    }
  };
  struct end {
    pipe_head* head = nullptr;
    std::byte* ring = nullptr;
    std::size_t at = 0;  // of the position in the ring
  };
  struct outlet : end {
    int to = 0;
    bool wants_room = false;
    std::uint64_t written = 0;
    std::uint64_t seen_read = 0;  // the receiver's position at the last look
    std::deque<outgoing> queue;
  };
  struct inlet : end {
    int from = 0;
    bool inside = false;     // a frame, of which data.size() bytes have been read
    bool referring = false;  // they end in a reference
    bool broken = false;
    std::uint64_t length = 0;
    std::uint64_t published = 0;             // the position as the sender can see it
    std::atomic<std::uint64_t> position{0};  // written with the lock, compared without
    frames::frame data;
  };

  // Sequentially consistent, as all that a sleeping peer may depend on.
  template <class T>
  [[nodiscard]] static std::atomic_ref<T> word(T& shared) noexcept {
    return std::atomic_ref<T>(shared);
  }
  [[nodiscard]] static std::size_t ring_bytes(std::size_t pipe_bytes) noexcept {
    return std::max<std::size_t>((pipe_bytes + 127) / 128, 1) * 128;
  }
  [[nodiscard]] static std::size_t stride(std::size_t pipe_bytes) noexcept {
    return sizeof(pipe_head) + ring_bytes(pipe_bytes);
  }
  [[nodiscard]] static std::size_t others(int rank, int ranks) {
    if (rank < 0 || rank >= ranks) {
      throw usage_error("pipes: rank " + std::to_string(rank) + " is none of " +
                        std::to_string(ranks));
    }
    return static_cast<std::size_t>(ranks - 1);
  }
  [[nodiscard]] std::size_t slot(int peer) const noexcept {
    return static_cast<std::size_t>(peer > rank_ ? peer - 1 : peer);
  }
  static void attach(end& e, std::byte* at) noexcept {
    e.head = reinterpret_cast<pipe_head*>(at);
    e.ring = at + sizeof(pipe_head);
  }

  void note_corrupt(int peer) noexcept {
    int expected = nobody;
    corrupt_.compare_exchange_strong(expected, peer, std::memory_order_relaxed);
  }

  // Bytes that can be written; looks at the receiver's line only if those known are not enough.
  [[nodiscard]] std::size_t room(outlet& o, std::size_t wanted) noexcept {
    if (capacity_ - (o.written - o.seen_read) < wanted) {
      const std::uint64_t read = word(o.head->read).load();
      if (o.written - read > capacity_) {  // read before it was written
        note_corrupt(o.to);
        return 0;
      }
      o.seen_read = read;
    }
    return capacity_ - static_cast<std::size_t>(o.written - o.seen_read);
  }

  void put(outlet& o, const std::byte* from, std::size_t bytes) const noexcept {
    if (bytes == 0) return;
    const std::size_t first = std::min(bytes, capacity_ - o.at);
    copy_to_taker(o.ring + o.at, from, first);
    if (first != bytes) copy_to_taker(o.ring, from + first, bytes - first);
    o.at = (o.at + bytes) < capacity_ ? o.at + bytes : o.at + bytes - capacity_;
    o.written += bytes;
  }

  // Goes on with a frame as far as there is room. True when all of it is in. A length is written as
  // a whole; a large frame in pieces, so that its receiver reads one while the next is written.
  bool write(outlet& o, outgoing& f) noexcept {
    const std::size_t total = f.total();
    const std::uint64_t length = (total - length_bytes) | (f.reference ? with_reference : 0);
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&length, 1)), f.data,
                                                f.tail()};
    while (f.sent != total) {
      const std::size_t wanted = std::min(total - f.sent, piece_);
      const std::size_t n = std::min(wanted, room(o, wanted));
      if (n == 0 || (f.sent == 0 && n < length_bytes)) return false;
      std::size_t begin = 0;
      for (const auto& part : parts) {
        const std::size_t first = std::clamp(f.sent, begin, begin + part.size());
        const std::size_t last = std::clamp(f.sent + n, begin, begin + part.size());
        put(o, part.data() + (first - begin), last - first);
        begin += part.size();
      }
      f.sent += n;
      word(o.head->written).store(o.written);
      wakeups_.wake(o.to);
    }
    return true;
  }

  // Where something stays behind, the receiver has been asked for a sign, and there was still no
  // room after that. True if anything moved.
  bool flush(outlet& o) noexcept {
    const std::uint64_t before = o.written;
    while (!o.queue.empty()) {
      outgoing& front = o.queue.front();
      if (write(o, front)) {
        if (front.unsent != nullptr) front.unsent->fetch_sub(1, std::memory_order_relaxed);
        recycle(std::move(front.data));
        o.queue.pop_front();
        continue;
      }
      if (o.wants_room) return o.written != before;
      o.wants_room = true;
      word(o.head->wants_room).store(1);
    }
    if (o.wants_room) word(o.head->wants_room).store(0, std::memory_order_relaxed);
    o.wants_room = false;
    queued_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

  bool flush_all() {
    const std::unique_lock lock(send_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;  // another thread is at it
    bool moved = false;
    for (outlet& o : outlets_) {
      if (!o.queue.empty()) moved = flush(o) || moved;
    }
    return moved;
  }

  [[nodiscard]] bool anything_arrived() const noexcept {
    return std::any_of(inlets_.begin(), inlets_.end(), [](const inlet& i) {
      return word(i.head->written).load() != i.position.load(std::memory_order_relaxed);
    });
  }

  bool receive_all() {
    const std::unique_lock lock(receive_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;  // another thread is at it
    bool moved = false;
    for (inlet& i : inlets_) moved = receive(i) || moved;
    if (moved) wakeups_.wake(rank_);  // it may be for a group of another thread
    return moved;
  }

  // Reads what there is at the beginning, no more, so that no peer keeps the others from being
  // served.
  bool receive(inlet& i) {
    std::uint64_t position = i.position.load(std::memory_order_relaxed);
    const std::uint64_t until = word(i.head->written).load();
    if (position == until || i.broken) return false;
    i.broken = until - position > capacity_;
    while (!i.broken && position != until) {
      const auto there = static_cast<std::size_t>(until - position);
      position += i.inside ? read_bytes(i, there) : read_length(i, there);
      i.position.store(position, std::memory_order_relaxed);
      if (position - i.published >= piece_ || position == until) free_room(i, position);
      if (i.inside && i.data.size() == i.length) {
        i.inside = false;
        if (!i.referring || attach(i.data)) deliver(std::move(i.data));
        else i.broken = true;
      }
    }
    if (i.broken) note_corrupt(i.from);
    return true;
  }

  [[nodiscard]] std::size_t read_length(inlet& i, std::size_t there) {
    std::uint64_t length = 0;
    if (there >= length_bytes) get(i, &length, length_bytes);
    i.referring = (length & with_reference) != 0;
    length &= ~with_reference;
    i.broken = there < length_bytes || length > most_frame_bytes ||
               (i.referring && (slots_ == nullptr || length < sizeof(slot_reference)));
    if (i.broken) return 0;
    i.data = buffer();
    i.length = length;
    i.inside = true;
    return length_bytes;
  }

  [[nodiscard]] std::size_t read_bytes(inlet& i, std::size_t there) {
    const std::size_t before = i.data.size();
    const std::size_t n = std::min({there, static_cast<std::size_t>(i.length) - before, piece_});
    // Memory for a large frame is taken as its bytes come, whatever its length says.
    if (i.data.capacity() < before + n) {
      i.data.reserve(
          std::min(static_cast<std::size_t>(i.length), std::max(at_once, 2 * (before + n))));
    }
    i.data.resize(before + n);
    get(i, i.data.data() + before, n);
    return n;
  }

  // The payload that a frame refers to. False when there is none such.
  [[nodiscard]] bool attach(frames::frame& f) {
    slot_reference r;
    const std::size_t rest = f.size() - sizeof r;
    std::memcpy(&r, f.data() + rest, sizeof r);
    f.resize(rest);
    f.shared = slots_->attach(r);
    return !f.shared.empty();
  }

  void get(inlet& i, void* to, std::size_t bytes) const noexcept {
    const std::size_t first = std::min(bytes, capacity_ - i.at);
    auto* const place = static_cast<std::byte*>(to);
    if (bytes < line_bytes) {
      std::memcpy(place, i.ring + i.at, first);
      std::memcpy(place + first, i.ring, bytes - first);
    } else {
      copy_and_take(place, i.ring + i.at, first);
      copy_and_take(place + first, i.ring, bytes - first);
    }
    i.at = (i.at + bytes) < capacity_ ? i.at + bytes : i.at + bytes - capacity_;
  }

  void free_room(inlet& i, std::uint64_t position) noexcept {
    i.published = position;
    word(i.head->read).store(position);
    if (word(i.head->wants_room).load() != 0) wakeups_.wake(i.from);
  }

  const int rank_;
  const int size_;
  const std::shared_ptr<slots> slots_;
  const std::size_t capacity_;  // bytes of a ring
  const std::size_t piece_;     // bytes moved between two looks of the other side
  wakeups& wakeups_;
  std::atomic<int> corrupt_{nobody};  // the first peer that wrote what no rank writes
  std::atomic<int> queued_{0};        // peers for whom something waits

  std::mutex send_mutex_;
  std::vector<outlet> outlets_;  // by slot, without this rank
  std::mutex receive_mutex_;
  std::vector<inlet> inlets_;
};

}  // namespace rankcast::inline v0::local
