/// Do the ranks of a group make the same call? One comparison for all transports: each rank's call
/// is reduced to a record, and a difference becomes a sentence that names the argument, what each
/// rank gave, and the odd rank out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/operation.hpp"

namespace rankcast::inline v0 {

/// What must agree between ranks, small enough to travel in front of the data.
struct call_record {
  opcode code = opcode::barrier;
  bool message = false;  // of unknown size
  bool uneven = false;   // counts were given
  dtype type = dtype::bytes;
  int root = -1;
  std::int64_t elements = 0;  // of this rank's own block
  std::uint64_t reduction_hash = 0;
  std::uint64_t counts_hash = 0;
  std::string_view reduction_name = "";
  rankcast::message_type message_type{};
  layout shape = layout::flat(0);
  call_site where{};
};

[[nodiscard]] inline std::uint64_t hash_of_counts(std::span<const std::int64_t> counts) noexcept {
  std::uint64_t hash = 0;
  for (const std::int64_t c : counts) {
    hash = (hash ^ static_cast<std::uint64_t>(c)) * 0x100000001b3u + 1;
  }
  return hash;
}

/// The record of a call as `rank` makes it.
[[nodiscard]] inline call_record record_of(const operation& op, int size) {
  call_record r;
  r.code = op.code;
  r.message = is_message(op);
  r.uneven = !op.counts.empty();
  r.root = has_root(op.code) ? op.root : -1;
  r.reduction_hash = op.reduction.type_hash;
  r.reduction_name = op.reduction.name;
  r.message_type = op.message_type;
  r.where = op.where;
  const buffer& own = own_block(op);
  r.type = own.type;
  r.shape = own.elements_layout;
  r.elements = op.code == opcode::all_to_all ? own.elements() / size : own.elements();
  r.counts_hash = hash_of_counts(op.counts);
  return r;
}

/// A disagreement: the argument, the sentence, the ranks in the minority (on a tie, all compared).
struct disagreement {
  std::string argument;
  std::string text;
  std::vector<int> odd_ranks;
};

/// "rank 0", "ranks 1, 3"
[[nodiscard]] inline std::string rank_list(const std::vector<int>& ranks) {
  std::string s = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i != 0) s += ", ";
    s += std::to_string(ranks[i]);
  }
  return s;
}

namespace detail {

// One argument that has to agree: its name, a value to compare, and what it looks like to a person.
struct agreed_argument {
  const char* name;
  std::uint64_t (*value)(const call_record&);
  std::string (*text)(const call_record&);
};

inline std::string elements_text(const call_record& r) {
  return std::to_string(r.elements) + " elements (" + std::string(name(r.type)) + " " +
         r.shape.text() + ")";
}

inline constexpr agreed_argument agreed_arguments[] = {
    {"call", [](const call_record& r) { return static_cast<std::uint64_t>(r.code); },
     [](const call_record& r) { return std::string(name(r.code)); }},
    {"form", [](const call_record& r) { return std::uint64_t{r.message}; },
     [](const call_record& r) {
       return std::string(r.message ? "a message of its own size" : "a buffer of agreed size");
     }},
    {"root", [](const call_record& r) { return static_cast<std::uint64_t>(r.root); },
     [](const call_record& r) { return "root " + std::to_string(r.root); }},
    {"reduction", [](const call_record& r) { return r.reduction_hash; },
     [](const call_record& r) { return std::string(r.reduction_name); }},
    {"type", [](const call_record& r) { return r.message_type.hash; },
     [](const call_record& r) { return std::string(r.message_type.name); }},
    {"dtype",
     [](const call_record& r) {
       return r.message ? std::uint64_t{0} : static_cast<std::uint64_t>(r.type);
     },
     [](const call_record& r) {
       return std::string(name(r.type)) + " (" + std::to_string(r.elements) + " elements)";
     }},
    {"counts",
     [](const call_record& r) {
       const bool all_give = r.code == opcode::all_gather || r.code == opcode::reduce_scatter;
       return all_give ? r.counts_hash : std::uint64_t{0};
     },
     [](const call_record& r) {
       return std::string(r.uneven ? "counts of its own" : "equal shares");
     }},
    {"elements",
     [](const call_record& r) {
       return r.message ? std::uint64_t{0} : static_cast<std::uint64_t>(r.elements);
     },
     elements_text},
};

}  // namespace detail

/// Compares the calls of those ranks that have arrived (null where one has not). Elements are not
/// compared where shares are uneven: there each is held against the counts (`examine`); nor
/// where they may be, as long as the root of a scatter or gather has not come to say so.
/// Element counts must agree, shapes need not: (2,6) and (3,4) hold the same twelve elements.
[[nodiscard]] inline std::optional<disagreement> compare_calls(
    const std::vector<const call_record*>& calls) {
  bool uneven = false;
  for (const call_record* c : calls) {
    if (c == nullptr) continue;
    const bool root_counts = c->code == opcode::scatter || c->code == opcode::gather;
    if (c->uneven || (root_counts && calls[static_cast<std::size_t>(c->root)] == nullptr)) {
      uneven = true;
    }
  }
  for (const auto& argument : detail::agreed_arguments) {
    if (uneven && std::string_view(argument.name) == "elements") continue;
    const call_record* first = nullptr;
    bool agreed = true;
    for (const call_record* c : calls) {
      if (c == nullptr) continue;
      if (first == nullptr) first = c;
      else agreed = agreed && argument.value(*c) == argument.value(*first);
    }
    if (agreed) continue;
    std::vector<std::pair<std::uint64_t, std::vector<int>>> classes;
    for (std::size_t r = 0; r < calls.size(); ++r) {
      if (calls[r] == nullptr) continue;
      const std::uint64_t v = argument.value(*calls[r]);
      auto it =
          std::find_if(classes.begin(), classes.end(), [&](const auto& c) { return c.first == v; });
      if (it == classes.end()) it = classes.insert(classes.end(), {v, {}});
      it->second.push_back(static_cast<int>(r));
    }
    std::stable_sort(classes.begin(), classes.end(), [](const auto& a, const auto& b) {
      return a.second.size() > b.second.size();
    });
    const bool tie = classes[0].second.size() == classes[1].second.size();
    disagreement d;
    d.argument = argument.name;
    d.text = std::string("ranks disagree on the ") + argument.name + ": ";
    for (std::size_t i = 0; i < classes.size(); ++i) {
      const std::vector<int>& ranks = classes[i].second;
      if (i != 0) d.text += ", ";
      d.text += rank_list(ranks) + " gave " +
                argument.text(*calls[static_cast<std::size_t>(ranks.front())]);
      if (tie || i != 0) d.odd_ranks.insert(d.odd_ranks.end(), ranks.begin(), ranks.end());
    }
    if (!tie) d.text += "; odd: " + rank_list(d.odd_ranks);
    for (const auto& c : classes) {  // where the calls stand in the program
      const call_site& where = calls[static_cast<std::size_t>(c.second.front())]->where;
      if (where.line != 0) {
        d.text += "; " + rank_list({c.second.front()}) + " at " + where.file + ":" +
                  std::to_string(where.line);
      }
    }
    std::sort(d.odd_ranks.begin(), d.odd_ranks.end());
    return d;
  }
  return std::nullopt;
}

/// What one rank offers to a collective before any data: its call, its counts, or why it cannot
/// take part.
struct call_offer {
  call_record record{};
  std::vector<std::int64_t> counts;
  std::string refusal;  // not empty: the call could not be made
};

namespace detail {

// Uneven shares: `given` elements of rank `rank` against the `wanted` that the counts of
// `counting_rank` say.
[[nodiscard]] inline std::optional<disagreement> check_share(int rank, std::int64_t given,
                                                             int counting_rank,
                                                             std::int64_t wanted) {
  if (given == wanted) return std::nullopt;
  return disagreement{"counts",
                      "rank " + std::to_string(rank) + " has " + std::to_string(given) +
                          " elements, the counts of rank " + std::to_string(counting_rank) +
                          " say " + std::to_string(wanted),
                      {rank}};
}

// Uneven shares are held against the counts of the rank that gave them.
[[nodiscard]] inline std::optional<disagreement> compare_shares(
    const operation& op, int rank, const std::vector<const call_offer*>& offers) {
  const auto at = [&](int r) { return offers[static_cast<std::size_t>(r)]; };
  const auto sound = [&](int r) { return at(r) != nullptr && at(r)->refusal.empty(); };
  const int size = static_cast<int>(offers.size());
  if (op.code == opcode::all_to_all) {
    for (int r = 0; r < size; ++r) {
      if (!sound(r) || (op.receive_counts.empty() && at(r)->counts.empty())) continue;
      if (op.receive_counts.empty() != at(r)->counts.empty()) {
        return disagreement{"counts", "only some ranks give counts", {r, rank}};
      }
      auto d = check_share(rank, op.receive_counts[static_cast<std::size_t>(r)], r,
                           at(r)->counts[static_cast<std::size_t>(rank)]);
      if (d) return d;
    }
  } else if ((op.code == opcode::scatter || op.code == opcode::gather) && sound(op.root)) {
    const std::vector<std::int64_t>& counts = at(op.root)->counts;
    for (int r = 0; r < size && !counts.empty(); ++r) {
      if (!sound(r) || r == op.root) continue;
      auto d = check_share(r, at(r)->record.elements, op.root, counts[static_cast<std::size_t>(r)]);
      if (d) return d;
    }
  }
  return std::nullopt;
}

}  // namespace detail

/// What a rank finds when those it needs have arrived, before any data moves.
struct verdict {
  std::optional<disagreement> difference;
  int refuser = -1;  // a rank it needs that cannot take part
};

/// Compares the offers (null where a rank has not arrived). `needed(peer)`: this rank cannot do
/// without that one.
template <class Needed>
[[nodiscard]] verdict examine(const operation& op, int rank,
                              const std::vector<const call_offer*>& offers, Needed&& needed) {
  verdict v;
  std::vector<const call_record*> records(offers.size(), nullptr);
  for (std::size_t r = 0; r < offers.size(); ++r) {
    const int peer = static_cast<int>(r);
    if (offers[r] == nullptr) continue;
    if (offers[r]->refusal.empty()) {
      records[r] = &offers[r]->record;
    } else if (peer != rank && v.refuser < 0 && needed(peer)) {
      v.refuser = peer;
    }
  }
  v.difference = compare_calls(records);
  if (!v.difference && v.refuser < 0) v.difference = detail::compare_shares(op, rank, offers);
  return v;
}

}  // namespace rankcast::inline v0
