/// Slots for large chunks in memory that all ranks of a block see. A chunk is written once; who is
/// to read it gets its number, and gives it back. Each rank has slots of its own to write to, and
/// hands out references to any.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "rankcast/core/error.hpp"
#include "rankcast/transports/frames/payload.hpp"
#include "rankcast/transports/local/copying.hpp"

namespace rankcast::inline v0::local {

/// The memory of slots, zero at first. It may have a different address in each process.
class RANKCAST_API slot_memory {
 public:
  virtual ~slot_memory() = default;
  [[nodiscard]] virtual std::byte* address() const noexcept = 0;
  /// Makes sure that a part of it is there. Throws transport_error.
  virtual void reserve(std::size_t offset, std::size_t bytes) = 0;
};

/// What stands for a slot in front of all of them.
struct slot_line {
  alignas(64) std::uint32_t references;  // 0: free
};
static_assert(std::is_trivial_v<slot_line> && sizeof(slot_line) == 64);

/// A part of a slot, as one rank names it to another.
struct slot_reference {
  std::uint32_t slot;  // of all ranks
  std::uint32_t offset;
  std::uint64_t bytes;
};
static_assert(std::is_trivially_copyable_v<slot_reference> && sizeof(slot_reference) == 16);

class slots final : public std::enable_shared_from_this<slots> {
 public:
  /// The same on all ranks of a block.
  struct form {
    int ranks = 1;
    std::size_t each = 32;                // slots of a rank
    std::size_t most_bytes = 128 * 1024;  // of a chunk
    std::size_t least_bytes = 12 * 1024;  // smaller ones are copied faster than they are named

    [[nodiscard]] std::size_t count() const noexcept {
      return static_cast<std::size_t>(ranks) * each;
    }
    /// Of the lines, which have to be there before any rank begins.
    [[nodiscard]] std::size_t line_bytes() const noexcept {
      return page_up(count() * sizeof(slot_line));
    }
    [[nodiscard]] std::size_t slot_bytes() const noexcept { return page_up(most_bytes); }
    [[nodiscard]] std::size_t all_bytes() const noexcept {
      return line_bytes() + count() * slot_bytes();
    }
  };

  slots(std::shared_ptr<slot_memory> memory, int rank, const form& f)
      : memory_(std::move(memory)),
        form_(f),
        first_(static_cast<std::size_t>(rank) * f.each),
        lines_(reinterpret_cast<slot_line*>(memory_->address())),
        data_(memory_->address() + f.line_bytes()) {}

  /// One of this rank's own slots. None when no slot is free, when there is no memory, or for what
  /// is too large or too small. Any thread may call it.
  [[nodiscard]] frames::room take(std::size_t bytes) {
    if (bytes < form_.least_bytes || bytes > form_.slot_bytes()) return {};
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < form_.each; ++i) {
      const std::size_t slot = first_ + i;
      // Whoever read it last has done so before it became free.
      if (references(slot).load(std::memory_order_acquire) != 0) continue;
      if (i >= reserved_ && !reserve_next()) return {};
      references(slot).store(1, std::memory_order_relaxed);
      std::byte* const data = data_ + slot * form_.slot_bytes();
      return {hold(slot, {data, bytes}), data};
    }
    return {};
  }

  /// A reference for another rank to a payload that lies in a slot, which this rank holds.
  [[nodiscard]] std::optional<slot_reference> refer(const frames::payload& p) noexcept {
    const std::byte* const at = p.bytes().data();
    const std::byte* const end = data_ + form_.count() * form_.slot_bytes();
    if (p.empty() || at < data_ || at >= end) return std::nullopt;
    const auto offset = static_cast<std::size_t>(at - data_);
    const std::size_t slot = offset / form_.slot_bytes();
    references(slot).fetch_add(1, std::memory_order_relaxed);
    return slot_reference{static_cast<std::uint32_t>(slot),
                          static_cast<std::uint32_t>(offset % form_.slot_bytes()), p.size()};
  }
  /// The other end takes it. Empty when no rank has written such a reference.
  [[nodiscard]] frames::payload attach(const slot_reference& r) {
    const std::size_t room = form_.slot_bytes();
    const bool sound = r.slot < form_.count() && r.offset < room && r.bytes != 0 &&
                       r.bytes <= room - r.offset &&
                       references(r.slot).load(std::memory_order_relaxed) != 0;
    if (!sound) return {};
    return hold(r.slot, {data_ + r.slot * room + r.offset, static_cast<std::size_t>(r.bytes)});
  }

  /// Slots that nobody holds, of all ranks.
  [[nodiscard]] std::size_t free() const noexcept {
    std::size_t n = 0;
    for (std::size_t s = 0; s < form_.count(); ++s) {
      if (references(s).load(std::memory_order_relaxed) == 0) ++n;
    }
    return n;
  }
  /// Slots of this rank that have been used until now.
  [[nodiscard]] std::size_t used() {
    const std::lock_guard lock(mutex_);
    return reserved_;
  }
  [[nodiscard]] const form& sizes() const noexcept { return form_; }

 private:
  [[nodiscard]] static std::size_t page_up(std::size_t n) noexcept {
    return (n + 4095) / 4096 * 4096;
  }
  [[nodiscard]] std::atomic_ref<std::uint32_t> references(std::size_t slot) const noexcept {
    return std::atomic_ref<std::uint32_t>(lines_[slot].references);
  }

  // Keeps the memory, too: a native library may use it longer than the link lives.
  [[nodiscard]] frames::payload hold(std::size_t slot, std::span<std::byte> bytes) {
    struct holder {
      std::shared_ptr<slots> home;
      std::size_t slot;
      std::span<std::byte> bytes;
      holder(std::shared_ptr<slots> h, std::size_t s, std::span<std::byte> b) noexcept
          : home(std::move(h)), slot(s), bytes(b) {}
      ~holder() { home->let_go(slot, bytes); }
      holder(const holder&) = delete;
      holder& operator=(const holder&) = delete;
    };
    return {std::make_shared<holder>(shared_from_this(), slot, bytes), bytes};
  }
  // The last reader takes the lines: they are written again soon (see copying.hpp).
  void let_go(std::size_t slot, std::span<std::byte> bytes) const noexcept {
    const std::atomic_ref<std::uint32_t> count = references(slot);
    const bool own = slot - first_ < form_.each;
    if (!own && count.load(std::memory_order_acquire) == 1) take_lines(bytes.data(), bytes.size());
    count.fetch_sub(1, std::memory_order_release);
  }

  // Memory of the slots is taken as they are needed.
  [[nodiscard]] bool reserve_next() noexcept {
    if (no_memory_) return false;
    const std::size_t offset = (first_ + reserved_) * form_.slot_bytes();
    try {
      memory_->reserve(form_.line_bytes() + offset, form_.slot_bytes());
      ++reserved_;
    } catch (...) {  // what there is has to do
      no_memory_ = true;
    }
    return !no_memory_;
  }

  const std::shared_ptr<slot_memory> memory_;
  const form form_;
  const std::size_t first_;  // of this rank's own
  slot_line* const lines_;
  std::byte* const data_;
  std::mutex mutex_;
  std::size_t reserved_ = 0;  // of this rank's own, from the first on
  bool no_memory_ = false;
};

}  // namespace rankcast::inline v0::local
