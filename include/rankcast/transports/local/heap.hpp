/// The premises of ranks that are threads: memory of this process.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "rankcast/transports/local/group.hpp"

namespace rankcast::inline v0::local {

class heap_premises final : public premises {
 public:
  heap_premises(int ranks, const settings& s) : memory_(board::bytes_needed(ranks, s, false)) {}

  [[nodiscard]] std::byte* address() const noexcept override { return memory_.address(); }
  [[nodiscard]] bool across_processes() const noexcept override { return false; }

  [[nodiscard]] std::shared_ptr<group> found(group& parent, int, std::span<const int> ranks, int,
                                             std::uint64_t key, const std::string& name) override {
    const std::lock_guard lock(mutex_);
    const auto id = std::pair{key, ranks.front()};
    birth& b = births_[id];
    if (b.child == nullptr) {
      b.child = make(static_cast<int>(ranks.size()), name, parent.sizes, parent.spin_limit);
      b.awaited = static_cast<int>(ranks.size());
    }
    auto child = b.child;
    if (--b.awaited == 0) births_.erase(id);
    return child;
  }

  [[nodiscard]] static std::shared_ptr<group> make(int ranks, const std::string& name,
                                                   const settings& s, int spins) {
    return std::make_shared<group>(std::make_unique<heap_premises>(ranks, s), ranks, name, s,
                                   spins);
  }

 private:
  // Groups that some of their members have asked for and others not yet.
  struct birth {
    std::shared_ptr<group> child;
    int awaited = 0;
  };

  pages memory_;
  std::mutex mutex_;
  std::map<std::pair<std::uint64_t, int>, birth> births_;  // by key and first rank
};

}  // namespace rankcast::inline v0::local
