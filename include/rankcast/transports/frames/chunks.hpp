/// The last chunks of data that go to several ranks: each chunk is made, or comes in, once, and all
/// who are as far get it by reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "rankcast/transports/frames/payload.hpp"

namespace rankcast::inline v0::frames {

class chunks {
 public:
  /// Keeps a chunk that goes on where the last one ends; others are for one rank only.
  void add(std::uint64_t position, payload data) {
    if (data.empty() || (!kept_.empty() && position != end())) return;
    kept_.push_back({position, std::move(data)});
  }
  /// The bytes from `position` to the end of their chunk, none when they are not kept.
  [[nodiscard]] payload at(std::uint64_t position) const noexcept {
    if (kept_.empty() || position < kept_.front().position || position >= end()) return {};
    auto it = kept_.rbegin();
    while (it->position > position) ++it;
    const auto offset = static_cast<std::size_t>(position - it->position);
    return it->data.part(offset, it->data.size() - offset);
  }
  /// Nobody needs what comes before `position`.
  void drop_before(std::uint64_t position) noexcept {
    while (!kept_.empty() && kept_.front().position + kept_.front().data.size() <= position) {
      kept_.pop_front();
    }
  }
  void keep_last(std::size_t count) noexcept {
    while (kept_.size() > count) kept_.pop_front();
  }
  void clear() noexcept { kept_.clear(); }
  [[nodiscard]] std::size_t count() const noexcept { return kept_.size(); }

 private:
  struct chunk {
    std::uint64_t position = 0;
    payload data;
  };
  [[nodiscard]] std::uint64_t end() const noexcept {
    return kept_.back().position + kept_.back().data.size();
  }

  std::deque<chunk> kept_;
};

}  // namespace rankcast::inline v0::frames
