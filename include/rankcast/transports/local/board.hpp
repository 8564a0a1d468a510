/// The memory that the ranks of a group share, and its layout: for each rank a line per thing that
/// it tells the others, a ring of slots that show its calls, and two rings of payload. No pointers:
/// processes map it at different addresses. Zeroed memory is a board on which nothing has happened.
/// Every cache line has one writer, but for the state word, the doorbells and the claims, and the
/// lines of the rings, which their owner and a reader hand to each other.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "rankcast/core/operation.hpp"
#include "rankcast/core/revocation.hpp"
#include "rankcast/transports/local/copying.hpp"
#include "rankcast/transports/local/doorbell.hpp"
#include "rankcast/transports/local/loan.hpp"
#include "rankcast/transports/local/mark.hpp"

namespace rankcast::inline v0::local {

/// Calls a rank may be ahead of the slowest of its group.
inline constexpr std::uint64_t window = 64;
/// Two cache lines: what one rank writes is not fetched along with what another one writes.
inline constexpr std::size_t apart = 128;

/// Whether ranks compare their calls, keep a record of them, and look whether the group has ended.
/// Without, a program that is wrong in any way has no defined behaviour: it is for measuring what
/// the checks cost.
enum class checks : std::uint8_t { on, off };

/// Sizes that decide how data moves. Those of its first rank hold for a group.
struct settings {
  std::size_t slot_bytes = 272;          // up to here they stand beside the call itself
  std::size_t eager_bytes = 12 * 1024;   // up to here a sender does not wait for late readers
  std::size_t lend_bytes = 768;          // up to here data are copied before anybody asks (threads)
  std::size_t chunk_bytes = 256 * 1024;  // between two looks at the state word
  std::size_t stage_bytes = 128 * 1024;  // of small data of several calls, per rank
  std::size_t ring_bytes = 256 * 1024;   // of large data on their way, per rank (processes)
  std::size_t help_bytes = 24 * 1024;    // from here a sender copies along with its readers
  checks check = checks::on;
  std::size_t pipe_bytes = 32 * 1024;  // of messages on their way, per pair (processes)
};

/// Where a group has more ranks than CPUs its rings are so many times larger: a rank fills more of
/// one before another has to run.
inline constexpr std::size_t crowded = 16;

/// How the data of a call can be had from the rank that gives them.
enum class form : std::uint8_t {
  nothing,  // it gives none
  here,     // they stand in the slot
  staged,   // they lie in its stage ring
  lent,     // they lie in its own memory, which the others can read
  streams,  // they come through its stream ring
};

/// What a rank says of one call: all that a reader needs of a small one.
struct slot_head {
  std::uint64_t fingerprint;  // of what must agree, but for the elements
  std::int64_t elements;      // of this rank's own block
  std::uint64_t bytes;        // of all that it gives
  std::uint64_t place;  // staged: position in the ring; lent: the address of the data or message
  form how;
  bool plain;  // neither refused nor with counts of its own
  bool refused;
  bool flat;  // what is lent, and where the result goes, lie in one piece
};

/// What a rank shows of one call. Written before `sequence` says so, and but for a loan's word
/// unchanged until all ranks have released the call. The head, the sequence and the first data
/// share a line and are written last, all at once: a waiting reader would take the line away in
/// between.
struct alignas(64) slot : slot_head {
  static constexpr std::size_t room = 272;
  static constexpr std::size_t in_line = 16;  // of the data

  std::atomic<std::uint64_t> sequence;  // of the call, plus one
  alignas(8) std::byte data[room];

  /// Into `data`.
  void put(const std::byte* from, std::size_t n) noexcept {
    if (n > in_line) std::memcpy(data + in_line, from + in_line, n - in_line);
    copy_short(data, from, std::min(n, in_line));
  }
  void publish(const slot_head& head, std::uint64_t call) noexcept {
    static_cast<slot_head&>(*this) = head;
    sequence.store(call + 1, std::memory_order_release);
  }

  /// Of lent data, in the same line.
  struct lent_data {
    std::uint64_t result;  // the address of this rank's receive buffer
    loan here;
  };
  [[nodiscard]] lent_data& lent() noexcept { return *reinterpret_cast<lent_data*>(data); }
  [[nodiscard]] const lent_data& lent() const noexcept {
    return *reinterpret_cast<const lent_data*>(data);
  }
};
static_assert(sizeof(slot) == 320 && sizeof(slot_head) == 40);
static_assert(sizeof(slot::lent_data) == slot::in_line && slot::room == 320 - 64 + slot::in_line);

/// A text in a rank's table of names; 0 is none.
using name_place = std::uint32_t;

/// The rest of a call: what is read only where ranks disagree, or where data are lent. One line is
/// written for each call, so that 64 of them stay in the cache.
struct alignas(64) detail_of_call {
  std::atomic<std::uint64_t> sequence;  // of the call whose details are complete, plus one
  std::uint64_t reduction_hash;
  std::uint64_t type_hash;
  std::uint64_t counts_hash;
  std::int32_t root;
  std::int32_t line;
  name_place file;
  name_place reduction_name;
  name_place type_name;
  opcode code;
  dtype type;
  bool message;
  bool uneven;
  std::uint8_t dimensions;  // of the own block; one: as many as the slot says
  bool failed;              // `text` says how
  bool slice_failed;        // likewise, before the slices are exchanged

  alignas(64) std::atomic<std::uint64_t> stream_begin;  // where in the ring it begins, plus one
  std::int64_t shape[max_dimensions];
  layout given;    // of what is lent
  layout wanted;   // of the receive buffer
  char text[512];  // of a refusal or failure
};
static_assert(offsetof(detail_of_call, stream_begin) == 64);

/// Text that ranks read of each other: where calls stand, how reductions and types are called.
struct name_table {
  static constexpr std::size_t room = 8 * 1024;
  std::uint32_t used;
  char text[room - sizeof(std::uint32_t)];
};

/// Why a rank ended the group: `revocation`, as plain bytes. The ranks stand beside it.
struct shared_cause {
  std::atomic<bool> claimed;  // one thread of the rank at a time
  revocation::kind why;
  std::uint32_t ranks;
  std::uint64_t sequence;
  std::int64_t waited;
  std::int32_t code;
  char argument[32];
  char text[3 * 1024];
};

/// A rank's progress through call s, as one number that only grows: 3s + stage.
enum class stage : std::uint64_t {
  slice_ready = 1,  // all_reduce: its slice of the result is there
  consumed = 2,     // it reads no peer's memory of this call any more
  released = 3,     // it reads no slot of this call any more
};
[[nodiscard]] constexpr std::uint64_t tick(std::uint64_t sequence, stage s) noexcept {
  return 3 * sequence + static_cast<std::uint64_t>(s);
}

struct member {
  alignas(apart) std::atomic<std::uint64_t> ticks;
  alignas(apart) doorbell bell;
  alignas(apart) mark moving;                          // writes or reads a peer's memory right now
  alignas(apart) std::atomic<std::uint64_t> streamed;  // bytes put into its stream ring so far
  alignas(apart) std::atomic<bool> left;
  std::atomic<bool> closed;
  // The flight record: the last call this rank began, for the messages of others.
  std::atomic<std::uint64_t> last_sequence;  // plus one
  std::atomic<opcode> last_code;
  std::atomic<name_place> last_file;
  std::atomic<int> last_line;
  std::atomic<std::int64_t> last_time;  // monotonic clock, ns
  shared_cause cause;
  name_table names;
};

/// A copy from one rank's memory to another's on which both work, chunk by chunk. Written by the
/// reader, who posts it by setting the claim; each chunk belongs to whom the claim says.
struct shared_copy {
  alignas(apart) std::atomic<std::uint64_t> claim;  // number of the copy and chunks left
  std::uint64_t from;                               // of the first element
  std::uint64_t to;
  std::int64_t count;
  std::int64_t chunk;  // elements
  std::uint32_t chunks;
  std::uint32_t element_bytes;
  bool flat;  // both sides lie in one piece: all there is to know stands in this line
  bool past_caches;
  alignas(64) std::int64_t from_first;
  std::int64_t to_first;
  layout from_layout;
  layout to_layout;
  alignas(apart) std::atomic<std::uint64_t> helped;  // chunks the source has copied, of all copies
};

/// What one rank tells another one alone.
struct pair_line {
  shared_copy copy;                                 // from the owner's memory, posted by the reader
  alignas(apart) std::atomic<std::uint64_t> taken;  // of the owner's stream ring, by the reader
};

/// What belongs to no rank.
struct board_header {
  alignas(apart) std::atomic<int> state;     // 0: open; r + 1: revoked by rank r
  alignas(apart) std::atomic<int> departed;  // ranks that use the board no more
};

/// Where everything lies, for a number of ranks.
class board {
 public:
  board() = default;
  board(std::byte* memory, int ranks, const settings& s) noexcept
      : memory_(memory), ranks_(index(ranks)), sizes_(s) {
    members_ = line_up(sizeof(board_header));
    slots_ = line_up(members_ + ranks_ * sizeof(member));
    details_ = line_up(slots_ + ranks_ * window * sizeof(slot));
    counts_ = line_up(details_ + ranks_ * window * sizeof(detail_of_call));
    causes_ = line_up(counts_ + ranks_ * window * ranks_ * sizeof(std::int64_t));
    pairs_ = line_up(causes_ + ranks_ * ranks_ * sizeof(std::int32_t));
    stages_ = page_up(pairs_ + ranks_ * ranks_ * sizeof(pair_line));
    streams_ = stages_ + ranks_ * page_up(sizes_.stage_bytes);
  }

  /// Bytes of a board, a multiple of a page. The first `fixed_bytes` are used from the start, the
  /// payload rings from their first use.
  [[nodiscard]] static std::size_t bytes_needed(int ranks, const settings& s,
                                                bool with_streams) noexcept {
    const board b(nullptr, ranks, s);
    return b.streams_ +
           (with_streams ? b.ranks_ * page_up(s.ring_bytes * crowded) : std::size_t{0});
  }
  [[nodiscard]] std::size_t fixed_bytes() const noexcept { return stages_; }
  /// Changes when anything about the layout does, or about who writes what (the first number).
  [[nodiscard]] static constexpr std::uint64_t layout_hash() noexcept {
    std::uint64_t h = 0xcbf29ce484222325u;
    for (const std::uint64_t v :
         {std::uint64_t{3}, std::uint64_t{sizeof(slot)}, std::uint64_t{sizeof(detail_of_call)},
          std::uint64_t{offsetof(detail_of_call, text)}, std::uint64_t{sizeof(member)},
          std::uint64_t{sizeof(pair_line)}, window}) {
      h = (h ^ v) * 0x100000001b3u;
    }
    return h;
  }

  [[nodiscard]] board_header& header() const noexcept { return at<board_header>(0); }
  [[nodiscard]] member& of(int r) const noexcept {
    return at<member>(members_ + index(r) * sizeof(member));
  }
  [[nodiscard]] slot& slot_of(int r, std::uint64_t sequence) const noexcept {
    return at<slot>(slots_ + place(r, sequence) * sizeof(slot));
  }
  [[nodiscard]] detail_of_call& detail(int r, std::uint64_t sequence) const noexcept {
    return at<detail_of_call>(details_ + place(r, sequence) * sizeof(detail_of_call));
  }
  /// One number per rank of the group, of a call with counts of its own.
  [[nodiscard]] std::int64_t* counts(int r, std::uint64_t sequence) const noexcept {
    return &at<std::int64_t>(counts_ + place(r, sequence) * ranks_ * sizeof(std::int64_t));
  }
  /// The ranks that the cause of `r` names.
  [[nodiscard]] std::int32_t* cause_ranks(int r) const noexcept {
    return &at<std::int32_t>(causes_ + index(r) * ranks_ * sizeof(std::int32_t));
  }
  [[nodiscard]] pair_line& pair(int owner, int reader) const noexcept {
    return at<pair_line>(pairs_ + (index(owner) * ranks_ + index(reader)) * sizeof(pair_line));
  }
  [[nodiscard]] std::byte* stage_ring(int r) const noexcept { return memory_ + stage_offset(r); }
  [[nodiscard]] std::byte* stream_ring(int r) const noexcept { return memory_ + stream_offset(r); }
  /// Offsets of the rings, for those who reserve their memory.
  [[nodiscard]] std::size_t stage_offset(int r) const noexcept {
    return stages_ + index(r) * page_up(sizes_.stage_bytes);
  }
  [[nodiscard]] std::size_t stream_offset(int r) const noexcept {
    return streams_ + index(r) * page_up(sizes_.ring_bytes * crowded);
  }

  [[nodiscard]] static constexpr std::size_t page_up(std::size_t n) noexcept {
    return (n + 4095) / 4096 * 4096;
  }

 private:
  template <class T>
  [[nodiscard]] T& at(std::size_t offset) const noexcept {
    return *reinterpret_cast<T*>(memory_ + offset);
  }
  [[nodiscard]] static constexpr std::size_t index(int r) noexcept {
    return static_cast<std::size_t>(r);
  }
  [[nodiscard]] static constexpr std::size_t place(int r, std::uint64_t sequence) noexcept {
    return index(r) * window + static_cast<std::size_t>(sequence % window);
  }
  [[nodiscard]] static constexpr std::size_t line_up(std::size_t n) noexcept {
    return (n + apart - 1) / apart * apart;
  }

  std::byte* memory_ = nullptr;
  std::size_t ranks_ = 0;
  settings sizes_{};
  // Offsets.
  std::size_t members_ = 0;
  std::size_t slots_ = 0;
  std::size_t details_ = 0;
  std::size_t counts_ = 0;
  std::size_t causes_ = 0;
  std::size_t pairs_ = 0;
  std::size_t stages_ = 0;
  std::size_t streams_ = 0;
};

}  // namespace rankcast::inline v0::local
