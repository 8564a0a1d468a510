/// A block of memory with pipes between ranks that are threads, and how these sleep.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "rankcast/transports/local/doorbell.hpp"
#include "rankcast/transports/local/pipes.hpp"

namespace support {

class pipe_block {
 public:
  pipe_block(int ranks, std::size_t bytes_of_pipe)
      : size(ranks),
        pipe_bytes(bytes_of_pipe),
        bells(static_cast<std::size_t>(ranks)),
        lines_(rankcast::local::pipes::bytes_needed(ranks, pipe_bytes) / sizeof(line)) {}

  [[nodiscard]] std::byte* data() noexcept { return reinterpret_cast<std::byte*>(lines_.data()); }
  [[nodiscard]] rankcast::local::pipe_head& head(int from, int to) noexcept {
    return *reinterpret_cast<rankcast::local::pipe_head*>(
        data() + rankcast::local::pipes::pipe_offset(from, to, size, pipe_bytes));
  }

  const int size;
  const std::size_t pipe_bytes;
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
      : link(block->data(), rank, block->size, block->pipe_bytes, *this),
        block_(std::move(block)) {}

  void wake(int rank) noexcept override { bell(rank).ring(false); }

  void pause(int attempt, std::chrono::nanoseconds limit) override {
    if (attempt < 4) {
      sched_yield();
      return;
    }
    bell(link.rank()).sleep(limit, false, [this] { return !link.quiet(); });
  }

  rankcast::local::pipes link;

 private:
  [[nodiscard]] rankcast::local::doorbell& bell(int rank) noexcept {
    return block_->bells[static_cast<std::size_t>(rank)];
  }

  std::shared_ptr<pipe_block> block_;
};

}  // namespace support
