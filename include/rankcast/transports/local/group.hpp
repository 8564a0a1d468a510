/// What the ranks of one group share: a line per rank with its doorbell, its sequence numbers and
/// its publications, and the state word that revokes them all. Every field has one writer, but for
/// the state word and the mailboxes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/agreement.hpp"
#include "rankcast/core/operation.hpp"
#include "rankcast/core/revocation.hpp"
#include "rankcast/transports/local/doorbell.hpp"

namespace rankcast::inline v0::local {

/// Calls a rank may be ahead of the slowest of its group.
inline constexpr std::uint64_t window = 64;

/// Sizes that decide how data moves; the same for all ranks of a group.
struct settings {
  std::size_t eager_bytes = 16 * 1024;   // up to here a sender's data is copied and it goes on
  std::size_t chunk_bytes = 256 * 1024;  // between two looks at the state word
};

/// What a rank shows its peers of one collective call. Written before `published` counts it,
/// unchanged until all ranks have released the call.
struct publication : call_offer {
  const std::byte* data = nullptr;  // the send buffer, or `stage`
  layout data_layout = layout::contiguous({0});
  const std::byte* result = nullptr;  // all_reduce: where this rank's slice appears
  layout result_layout = layout::contiguous({0});
  std::vector<std::byte> stage;   // keeps its capacity from call to call
  std::vector<message> messages;  // instead of data: one for all readers, or one for each rank
  std::string slice_failure;      // all_reduce: written before the slice is announced
  std::string failure;            // written before the call is announced as consumed
};

/// A rank's progress through call s, as one number that only grows: 3s + stage.
enum class stage : std::uint64_t {
  slice_ready = 1,  // all_reduce: its slice of the result can be read
  consumed = 2,     // it reads no peer's memory of this call any more
  released = 3,     // it reads no publication of this call any more
};
[[nodiscard]] constexpr std::uint64_t tick(std::uint64_t sequence, stage s) noexcept {
  return 3 * sequence + static_cast<std::uint64_t>(s);
}

/// A message on its way from one rank to another.
struct envelope {
  enum class phase : std::uint8_t { posted, taken, done, withdrawn };

  int source = 0;
  int tag = 0;
  std::uint64_t number = 0;  // in the order of arrival at the mailbox
  call_record record{};
  const std::byte* data = nullptr;
  layout data_layout = layout::contiguous({0});
  std::vector<std::byte> stage;
  message content;      // instead of data
  std::string refusal;  // not empty: the sender could not encode it
  // Written by the receiver before `done`:
  std::string note;        // why it could not take it
  bool undecoded = false;  // because its decoder failed
  bool whole = true;       // false: the sender gave up while it was read
  std::atomic<phase> state{phase::posted};
  std::atomic<bool> cancelled{false};
};

struct mailbox {
  std::mutex mutex;
  std::deque<std::shared_ptr<envelope>> letters;
  std::uint64_t arrivals = 0;

  void post(const std::shared_ptr<envelope>& e) {
    const std::lock_guard lock(mutex);
    e->number = arrivals++;
    letters.push_back(e);
  }
  [[nodiscard]] std::uint64_t arrived() {
    const std::lock_guard lock(mutex);
    return arrivals;
  }
};

struct alignas(128) member {
  alignas(128) std::atomic<std::uint64_t> published{0};
  alignas(128) std::atomic<std::uint64_t> ticks{0};
  alignas(128) doorbell bell;
  alignas(128) std::atomic<bool> moving{false};  // copies from a peer's memory right now
  std::atomic<bool> left{false};
  std::atomic<bool> closed{false};
  // The flight record: the last call this rank began, for the messages of others.
  std::atomic<std::uint64_t> last_sequence{0};
  std::atomic<opcode> last_code{opcode::barrier};
  std::atomic<const char*> last_file{nullptr};
  std::atomic<int> last_line{0};
  std::atomic<std::int64_t> last_time{0};  // steady clock, ns

  std::vector<publication> slots{static_cast<std::size_t>(window)};
  revocation cause;  // written by the thread that set `claimed`, before the state word
  std::atomic<bool> claimed{false};
  mailbox mail;
};

struct group {
  group(int ranks, std::string text, settings s, int spins)
      : size(ranks),
        name(std::move(text)),
        sizes(s),
        spin_limit(spins),
        members(static_cast<std::size_t>(ranks)) {}

  [[nodiscard]] member& of(int rank) noexcept { return members[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const member& of(int rank) const noexcept {
    return members[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] publication& slot(int rank, std::uint64_t sequence) noexcept {
    return of(rank).slots[static_cast<std::size_t>(sequence % window)];
  }
  void ring_others(int self) noexcept {
    for (int r = 0; r < size; ++r) {
      if (r != self) of(r).bell.ring();
    }
  }

  const int size;
  const std::string name;  // "group 'tensor' [2,3]"
  const settings sizes;
  const int spin_limit;
  std::vector<member> members;
  alignas(128) std::atomic<int> state{0};  // 0: open; r + 1: revoked by rank r

  // Sub-groups that some of their members have asked for and others not yet.
  struct birth {
    std::shared_ptr<group> child;
    int awaited = 0;
  };
  std::mutex births_mutex;
  std::map<std::pair<std::uint64_t, int>, birth> births;  // by key and first rank
};

}  // namespace rankcast::inline v0::local
