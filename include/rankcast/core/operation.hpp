/// The narrow waist: one collective call as a plain value. Templates above fill it in, transports
/// below carry it out, and everything that watches calls (agreement checks, the flight record,
/// counters, test backends) reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rankcast/core/buffer.hpp"
#include "rankcast/core/config.hpp"
#include "rankcast/core/message.hpp"
#include "rankcast/core/reduction.hpp"
#include "rankcast/core/timeout.hpp"

namespace rankcast::inline v0 {

enum class opcode : std::uint8_t {
  barrier,
  broadcast,
  scatter,
  gather,
  all_gather,
  reduce,
  all_reduce,
  reduce_scatter,
  all_to_all,
  send,
  receive,
  split,
  close,
};

[[nodiscard]] constexpr std::string_view name(opcode code) noexcept {
  constexpr std::string_view names[] = {
      "barrier",        "broadcast",  "scatter", "gather",  "all_gather", "reduce", "all_reduce",
      "reduce_scatter", "all_to_all", "send",    "receive", "split",      "close"};
  return names[static_cast<int>(code)];
}

/// When a call returns. `local`: this rank's own part is done, so a root may run ahead of its
/// readers. `everyone`: every rank has taken part, and all agree that it went well. Each rank
/// chooses for itself.
enum class completion : std::uint8_t { group_default, local, everyone };

struct operation {
  opcode code = opcode::barrier;
  int root = -1;  // root, or the peer of send and receive; -1 where there is none
  int tag = 0;    // send and receive
  rankcast::dtype type = dtype::bytes;
  rankcast::reduction reduction{};
  buffer send{};
  buffer receive{};
  std::span<const std::int64_t> counts{};          // elements per rank; empty: equal shares
  std::span<const std::int64_t> receive_counts{};  // all_to_all only
  message_source* source = nullptr;  // instead of `send`, for data of a size of its own,
  message_sink* sink = nullptr;      // and instead of `receive`
  rankcast::message_type message_type{};
  call_site where{};
  timeout limit{};                   // of the whole call
  steady_clock::time_point begun{};  // the epoch: the clock has not been read yet
  deadline until{};                  // meaningful once the clock was read
  rankcast::completion completion = completion::local;

  /// Reads the clock, once: the call's time limit runs from here. A call of little data may put
  /// it off until it has to wait, for reading a clock takes longer than moving a cache line.
  void start_clock() noexcept {
    if (begun != steady_clock::time_point{}) return;
    begun = steady_clock::now();
    until = deadline::after(limit, begun);
  }
};

/// True when the call moves messages of their own size instead of buffers of an agreed one.
[[nodiscard]] constexpr bool is_message(const operation& op) noexcept {
  return op.source != nullptr || op.sink != nullptr;
}

/// True for calls in which one rank plays a part of its own.
[[nodiscard]] constexpr bool has_root(opcode code) noexcept {
  return code == opcode::broadcast || code == opcode::scatter || code == opcode::gather ||
         code == opcode::reduce;
}

/// True when rank `rank` cannot go on in this call before rank `peer` has arrived: it reads from
/// it.
[[nodiscard]] constexpr bool needs(const operation& op, int rank, int peer) noexcept {
  if (rank == peer) return false;
  switch (op.code) {
    case opcode::broadcast:
    case opcode::scatter: return peer == op.root;
    case opcode::gather:
    case opcode::reduce: return rank == op.root;
    default: return true;
  }
}

[[nodiscard]] constexpr bool moves_data(opcode code) noexcept {
  return code != opcode::barrier && code != opcode::close;
}

/// The buffer of this rank's own block: what ranks must agree on is about this one.
[[nodiscard]] inline const buffer& own_block(const operation& op) noexcept {
  const bool received = op.code == opcode::scatter || op.code == opcode::reduce_scatter ||
                        op.code == opcode::receive ||
                        (op.code == opcode::broadcast && op.receive.given);
  return received ? op.receive : op.send;
}

[[nodiscard]] constexpr bool is_point_to_point(opcode code) noexcept {
  return code == opcode::send || code == opcode::receive;
}

namespace detail {

inline std::string check_counts(std::span<const std::int64_t> counts, const char* what, int size) {
  if (counts.empty()) return {};
  if (counts.size() != static_cast<std::size_t>(size)) {
    return std::to_string(counts.size()) + " " + what + " given for a group of " +
           std::to_string(size);
  }
  std::int64_t total = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] < 0 || counts[r] > std::numeric_limits<std::int64_t>::max() - total) {
      return std::string(what) + " of rank " + std::to_string(r) + " is " +
             std::to_string(counts[r]);
    }
    total += counts[r];
  }
  return {};
}

inline std::int64_t total(std::span<const std::int64_t> counts) {
  std::int64_t n = 0;
  for (const std::int64_t c : counts) n += c;
  return n;
}

// A buffer that holds one block per rank: elements == sum of counts, or size times the block.
inline std::string check_blocks(const buffer& all, const buffer& own, const operation& op, int rank,
                                int size, const char* all_name, const char* own_name) {
  if (!all.given) return std::string(all_name) + " buffer is missing";
  if (op.counts.empty()) {
    if (own.given && all.elements() != own.elements() * size) {
      return std::string(all_name) + " buffer has " + std::to_string(all.elements()) +
             " elements, wanted " + std::to_string(size) + " times the " +
             std::to_string(own.elements()) + " of the " + own_name + " buffer";
    }
    if (all.elements() % size != 0) {
      return std::string(all_name) + " buffer has " + std::to_string(all.elements()) +
             " elements, which do not divide among " + std::to_string(size) + " ranks";
    }
    return {};
  }
  if (all.elements() != total(op.counts)) {
    return std::string(all_name) + " buffer has " + std::to_string(all.elements()) +
           " elements, counts add up to " + std::to_string(total(op.counts));
  }
  const std::int64_t share = op.counts[static_cast<std::size_t>(rank)];
  if (own.given && own.elements() != share) {
    return std::string(own_name) + " buffer has " + std::to_string(own.elements()) +
           " elements, counts give this rank " + std::to_string(share);
  }
  return {};
}

// Whether two buffers touch the same bytes. Exact also for interleaved strides.
inline bool overlap(const buffer& a, const buffer& b) {
  if (!a.given || !b.given || a.elements() == 0 || b.elements() == 0) return false;
  const auto range = [](const buffer& x) {
    const auto [low, high] = x.elements_layout.bounds();
    const auto size = static_cast<std::int64_t>(size_of(x.type));
    const auto base = reinterpret_cast<std::uintptr_t>(x.address);
    return std::array<std::uintptr_t, 2>{base + static_cast<std::uintptr_t>(low * size),
                                         base + static_cast<std::uintptr_t>(high * size)};
  };
  const auto ra = range(a);
  const auto rb = range(b);
  if (ra[1] <= rb[0] || rb[1] <= ra[0]) return false;
  if (a.elements_layout.is_contiguous() && b.elements_layout.is_contiguous()) return true;
  std::vector<bool> touched(ra[1] - ra[0]);
  const auto visit_bytes = [&](const buffer& x, auto&& f) {
    const auto size = static_cast<std::int64_t>(size_of(x.type));
    run_walker walker(x.elements_layout, 0);
    for (std::int64_t left = x.elements(); left > 0;) {
      const std::int64_t n = std::min(walker.run(), left);
      const auto first = reinterpret_cast<std::uintptr_t>(x.address) +
                         static_cast<std::uintptr_t>(walker.offset() * size);
      for (std::uintptr_t at = first; at < first + static_cast<std::uintptr_t>(n * size); ++at) {
        if (f(at)) return true;
      }
      walker.advance(n);
      left -= n;
    }
    return false;
  };
  visit_bytes(a, [&](std::uintptr_t at) {
    touched[at - ra[0]] = true;
    return false;
  });
  return visit_bytes(
      b, [&](std::uintptr_t at) { return at >= ra[0] && at < ra[1] && touched[at - ra[0]]; });
}

inline bool same_place(const buffer& a, const buffer& b) {
  return a.address == b.address && a.elements() == b.elements() &&
         a.elements_layout == b.elements_layout;
}

// The rank's own block inside a contiguous buffer of blocks.
inline bool is_own_block(const buffer& own, const buffer& all, std::int64_t first) {
  return own.elements_layout.is_contiguous() && all.elements_layout.is_contiguous() &&
         own.address == all.address + first * static_cast<std::int64_t>(size_of(all.type));
}

}  // namespace detail

/// First element and number of elements of `rank`'s block when `elements` are spread by `counts`
/// (empty: equal shares).
struct block {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
[[nodiscard]] inline block block_of(std::span<const std::int64_t> counts, std::int64_t elements,
                                    int rank, int size) noexcept {
  if (counts.empty()) return {elements / size * rank, elements / size};
  block b;
  for (int r = 0; r < rank; ++r) b.first += counts[static_cast<std::size_t>(r)];
  b.count = counts[static_cast<std::size_t>(rank)];
  return b;
}

namespace detail {

// A quick yes for calls on buffers that lie in one piece each; all others are looked at in detail.
[[nodiscard]] inline bool plainly_sound(const operation& op, int rank, int size) noexcept {
  if (!op.counts.empty() || is_message(op)) return false;
  if (has_root(op.code) && static_cast<unsigned>(op.root) >= static_cast<unsigned>(size)) {
    return false;
  }
  const auto flat = [](const buffer& b) {
    return b.given && b.memory == memory_kind::host && b.elements_layout.dimensions == 1 &&
           b.elements_layout.strides[0] == 1;
  };
  const std::int64_t sent = flat(op.send) ? op.send.elements_layout.shape[0] : -1;
  const std::int64_t received = flat(op.receive) ? op.receive.elements_layout.shape[0] : -1;
  const auto apart = [&] {
    const auto bytes = static_cast<std::int64_t>(size_of(op.send.type));
    return op.send.type == op.receive.type &&
           (op.send.address + sent * bytes <= op.receive.address ||
            op.receive.address + received * bytes <= op.send.address);
  };
  const bool at_root = rank == op.root;
  switch (op.code) {
    case opcode::barrier: return true;
    case opcode::broadcast:
      return (at_root ? sent : received) >= 0 && !(at_root ? op.receive : op.send).given;
    case opcode::scatter:
      return received >= 0 && (at_root ? sent == size * received && apart() : !op.send.given);
    case opcode::gather:
      return sent >= 0 && (at_root ? received == size * sent && apart() : !op.receive.given);
    case opcode::all_gather: return sent >= 0 && received == size * sent && apart();
    case opcode::reduce:
      if (!at_root) return sent >= 0 && !op.receive.given;
      [[fallthrough]];
    case opcode::all_reduce:
      return sent >= 0 && sent == received &&
             ((op.send.address == op.receive.address && op.send.type == op.receive.type) ||
              apart());
    default: return false;
  }
}

}  // namespace detail

/// What is wrong with a call as this rank made it, found without any communication; empty when
/// nothing is. (What ranks disagree on is found by `compare_calls`, agreement.hpp.)
[[nodiscard]] inline std::string check_operation(const operation& op, int rank, int size) {
  using detail::check_blocks;
  if (has_root(op.code) && (op.root < 0 || op.root >= size)) {
    return "root " + std::to_string(op.root) + " is outside of a group of " + std::to_string(size) +
           " (roots are numbered within the group)";
  }
  if (is_point_to_point(op.code)) {
    if (op.root < 0 || op.root >= size) {
      return "peer " + std::to_string(op.root) + " is outside of a group of " +
             std::to_string(size) + " (peers are numbered within the group)";
    }
    if (op.tag < 0) return "tag " + std::to_string(op.tag) + " is negative";
  }
  if (is_message(op)) return {};
  if (op.send.given && op.receive.given && op.send.type != op.receive.type) {
    return "sends " + std::string(name(op.send.type)) + " but receives " +
           std::string(name(op.receive.type));
  }
  for (const buffer* b : {&op.send, &op.receive}) {
    if (b->given && b->memory != memory_kind::host) {
      return "device memory given to a transport of host memory";
    }
  }
  std::string wrong;
  if (!op.counts.empty()) wrong = detail::check_counts(op.counts, "counts", size);
  if (!op.receive_counts.empty() && wrong.empty()) {
    wrong = detail::check_counts(op.receive_counts, "receive counts", size);
  }
  if (!wrong.empty()) return wrong;

  const bool at_root = rank == op.root;
  std::int64_t own_first = 0;
  switch (op.code) {
    case opcode::scatter:
      if (at_root) wrong = check_blocks(op.send, op.receive, op, rank, size, "send", "receive");
      if (wrong.empty() && !op.receive.given) wrong = "receive buffer is missing";
      break;
    case opcode::gather:
      if (at_root) wrong = check_blocks(op.receive, op.send, op, rank, size, "receive", "send");
      if (wrong.empty() && !op.send.given) wrong = "send buffer is missing";
      break;
    case opcode::all_gather:
      wrong = check_blocks(op.receive, op.send, op, rank, size, "receive", "send");
      if (wrong.empty() && !op.send.given) wrong = "send buffer is missing";
      break;
    case opcode::reduce_scatter:
      wrong = check_blocks(op.send, op.receive, op, rank, size, "send", "receive");
      if (wrong.empty() && !op.receive.given) wrong = "receive buffer is missing";
      break;
    case opcode::reduce:
    case opcode::all_reduce:
      if (!op.send.given) {
        wrong = "send buffer is missing";
      } else if (op.code == opcode::all_reduce || at_root) {
        if (!op.receive.given) {
          wrong = "receive buffer is missing";
        } else if (op.send.elements() != op.receive.elements()) {
          wrong = "sends " + std::to_string(op.send.elements()) + " elements but receives " +
                  std::to_string(op.receive.elements());
        }
      }
      break;
    case opcode::all_to_all:
      if (op.counts.empty() != op.receive_counts.empty()) {
        wrong = "send counts and receive counts are given both or not at all";
      } else if (!op.send.given || !op.receive.given) {
        wrong = "a buffer is missing";
      } else if (op.counts.empty()) {
        if (op.send.elements() != op.receive.elements() || op.send.elements() % size != 0) {
          wrong = "sends " + std::to_string(op.send.elements()) + " and receives " +
                  std::to_string(op.receive.elements()) +
                  " elements: both must be the same multiple of the " + std::to_string(size) +
                  " ranks";
        }
      } else if (op.send.elements() != detail::total(op.counts) ||
                 op.receive.elements() != detail::total(op.receive_counts)) {
        wrong = "send and receive buffers have " + std::to_string(op.send.elements()) + " and " +
                std::to_string(op.receive.elements()) + " elements, their counts add up to " +
                std::to_string(detail::total(op.counts)) + " and " +
                std::to_string(detail::total(op.receive_counts));
      }
      break;
    default: break;
  }
  if (!wrong.empty()) return wrong;

  if (op.receive.given && overlaps_itself(op.receive.elements_layout)) {
    return "the strides of the receive buffer visit an address twice";
  }
  if (op.send.given && op.receive.given && !detail::same_place(op.send, op.receive)) {
    const bool cuts = op.code == opcode::scatter || op.code == opcode::reduce_scatter;
    const bool joins = op.code == opcode::gather || op.code == opcode::all_gather;
    bool in_place = false;
    if (cuts || joins) {
      const buffer& all = cuts ? op.send : op.receive;
      own_first = block_of(op.counts, all.elements(), rank, size).first;
      in_place = detail::is_own_block(cuts ? op.receive : op.send, all, own_first);
    }
    if (!in_place && detail::overlap(op.send, op.receive)) {
      return "send and receive buffers overlap in part; only the very same range is allowed";
    }
  }
  return {};
}

}  // namespace rankcast::inline v0
