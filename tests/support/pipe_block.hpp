/// A block of memory with pipes between ranks that are threads, and how these sleep.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rankcast/transports/local/doorbell.hpp"
#include "rankcast/transports/local/pipes.hpp"

namespace support {

/// Memory for slots, of which only so much can be reserved.
class heap_slots final : public rankcast::local::slot_memory {
 public:
  explicit heap_slots(std::size_t bytes, std::size_t most_reserved = ~std::size_t{0})
      : lines_(bytes / sizeof(line)), most_reserved_(most_reserved) {}
  [[nodiscard]] std::byte* address() const noexcept override {
    return reinterpret_cast<std::byte*>(const_cast<line*>(lines_.data()));
  }
  void reserve(std::size_t, std::size_t bytes) override {
    if (reserved.fetch_add(bytes) + bytes > most_reserved_) {
      throw rankcast::transport_error("no more memory", ENOMEM);
    }
  }

  std::atomic<std::size_t> reserved{0};

 private:
  struct alignas(128) line {
    std::byte bytes[128] = {};
  };
  std::vector<line> lines_;
  std::size_t most_reserved_;
};

class pipe_block {
 public:
  /// `slots_each`: of a rank, for chunks of 16 to 4096 bytes.
  pipe_block(int ranks, std::size_t bytes_of_pipe, std::size_t slots_each = 0)
      : size(ranks),
        pipe_bytes(bytes_of_pipe),
        slot_form{ranks, slots_each, 4096, 16},
        slot_memory(std::make_shared<heap_slots>(slot_form.all_bytes())),
        bells(static_cast<std::size_t>(ranks)),
        lines_(rankcast::local::pipes::bytes_needed(ranks, pipe_bytes) / sizeof(line)) {}

  [[nodiscard]] std::byte* data() noexcept { return reinterpret_cast<std::byte*>(lines_.data()); }
  [[nodiscard]] rankcast::local::pipe_head& head(int from, int to) noexcept {
    return *reinterpret_cast<rankcast::local::pipe_head*>(
        data() + rankcast::local::pipes::pipe_offset(from, to, size, pipe_bytes));
  }

  const int size;
  const std::size_t pipe_bytes;
  const rankcast::local::slots::form slot_form;
  const std::shared_ptr<heap_slots> slot_memory;
  std::vector<rankcast::local::doorbell> bells;

 private:
  struct alignas(128) line {
    std::byte bytes[128] = {};
  };
  std::vector<line> lines_;
};

/// A rank's link on a block. Sleeps are never cut short but by a bell, so that a test hangs when
/// one is missing.
class pipe_end final : public rankcast::local::wakeups {
 public:
  pipe_end(std::shared_ptr<pipe_block> block, int rank)
      : slots(std::make_shared<rankcast::local::slots>(block->slot_memory, rank, block->slot_form)),
        link(block->data(), rank, block->size, block->pipe_bytes, *this, slots),
        block_(std::move(block)) {}

  void wake(int rank) noexcept override { bell(rank).ring(false); }

  void pause(int attempt, std::chrono::nanoseconds limit) override {
    if (attempt < 4) {
      sched_yield();
      return;
    }
    bell(link.rank()).sleep(limit, false, [this] { return !link.quiet(); });
  }

  const std::shared_ptr<rankcast::local::slots> slots;
  rankcast::local::pipes link;

 private:
  [[nodiscard]] rankcast::local::doorbell& bell(int rank) noexcept {
    return block_->bells[static_cast<std::size_t>(rank)];
  }

  std::shared_ptr<pipe_block> block_;
};

/// Ranks of several blocks leave together, when all that was sent has been read: what is queued
/// leaves only by calls of its rank.
class departure {
 public:
  explicit departure(int ranks) : ranks_(ranks) {}

  void leave(pipe_end& end) {
    ++finished_;
    progress_until(end, [&] { return finished_ == ranks_ && end.link.all_sent(); });
    ++sent_;
    progress_until(end, [&] { return sent_ == ranks_; });
    end.link.progress();
  }

 private:
  template <class Done>
  static void progress_until(pipe_end& end, Done&& done) {
    while (!done()) {
      if (!end.link.progress()) std::this_thread::yield();
    }
  }

  const int ranks_;
  std::atomic<int> finished_{0};
  std::atomic<int> sent_{0};
};

/// Throws when a slot is held after all ranks have left.
inline void require_free_slots(pipe_block& block) {
  const pipe_end end(std::shared_ptr<pipe_block>(&block, [](pipe_block*) {}), 0);
  const std::size_t held = block.slot_form.count() - end.slots->free();
  if (held != 0) throw std::logic_error(std::to_string(held) + " slots are held by nobody");
}

}  // namespace support
