/// What a transport does with a message, without one: its segments as a reader has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include "rankcast/object/frame.hpp"

namespace support {

class delivery final : public rankcast::segment_reader {
 public:
  explicit delivery(const rankcast::message& sent) : segments_(sent.segments) {
    for (const auto& segment : segments_) sizes_.push_back(segment.size());
  }
  [[nodiscard]] std::span<const std::uint64_t> sizes() const noexcept override { return sizes_; }
  void read(std::span<std::byte> to) override {
    const auto& from = segments_.at(next_);
    if (from.size() != to.size())
      throw std::logic_error("read with a size that is not the segment's");
    std::memcpy(to.data(), from.data(), to.size());
    ++next_;
  }
  [[nodiscard]] std::size_t read_so_far() const noexcept { return next_; }

 private:
  std::vector<std::span<const std::byte>> segments_;
  std::vector<std::uint64_t> sizes_;
  std::size_t next_ = 0;
};

/// Announces sizes that nobody has bytes for.
class false_announcement final : public rankcast::segment_reader {
 public:
  explicit false_announcement(std::vector<std::uint64_t> sizes) : sizes_(std::move(sizes)) {}
  [[nodiscard]] std::span<const std::uint64_t> sizes() const noexcept override { return sizes_; }
  void read(std::span<std::byte> to) override { std::memset(to.data(), 1, to.size()); }

 private:
  std::vector<std::uint64_t> sizes_;
};

template <class T>
void deliver(const rankcast::message& sent, T& to) {
  delivery segments(sent);
  rankcast::decode_frame(to, sent.header, &segments);
}

}  // namespace support
