/// Who gets the data of whom. Straight from where they lie, but for broadcasts, which enter each
/// place once: the root sends to the ranks of its own place and to one leader of every other one,
/// which passes on what it gets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rankcast/core/agreement.hpp"
#include "rankcast/core/operation.hpp"

namespace rankcast::inline v0::frames {

/// Where the ranks of a group are. Ranks of one place (a host) reach each other more cheaply than
/// others; numbers of places count from 0, in the order of their lowest ranks.
class places {
 public:
  /// `of_rank`: for each rank any number, the same for ranks of one place.
  explicit places(std::span<const int> of_rank) {
    std::vector<int> known;
    for (std::size_t r = 0; r < of_rank.size(); ++r) {
      const auto found = std::find(known.begin(), known.end(), of_rank[r]);
      of_.push_back(static_cast<int>(found - known.begin()));
      if (found != known.end()) continue;
      known.push_back(of_rank[r]);
      leaders_.push_back(static_cast<int>(r));
    }
  }

  [[nodiscard]] int count() const noexcept { return static_cast<int>(leaders_.size()); }
  [[nodiscard]] bool has(int rank) const noexcept {
    return rank >= 0 && rank < static_cast<int>(of_.size());
  }
  [[nodiscard]] int of(int rank) const noexcept { return of_[static_cast<std::size_t>(rank)]; }
  /// The lowest rank of a place.
  [[nodiscard]] int leader(int place) const noexcept {
    return leaders_[static_cast<std::size_t>(place)];
  }

 private:
  std::vector<int> of_;
  std::vector<int> leaders_;
};

/// Where node `node` gets a broadcast from `root` in a binomial tree: the one whose number, counted
/// from the root, is its own without the lowest bit. -1 at the root. Source: MPICH,
/// MPIR_Bcast_intra_binomial.
[[nodiscard]] constexpr int tree_parent(int node, int root, int size) noexcept {
  const int position = (node - root + size) % size;
  if (position == 0) return -1;
  return ((position & (position - 1)) + root) % size;
}

/// The rank that sends `rank` the data of a broadcast from `root`, -1 at the root. Between more
/// than `flat_places` places they go along a binomial tree of their leaders.
[[nodiscard]] inline int feeder_of(const places& where, int rank, int root,
                                   int flat_places) noexcept {
  if (rank == root) return -1;
  const int here = where.of(rank);
  const int origin = where.of(root);
  if (here == origin) return root;
  if (rank != where.leader(here)) return where.leader(here);
  const int from = where.count() > flat_places ? tree_parent(here, origin, where.count()) : origin;
  return from == origin ? root : where.leader(from);
}

/// True when ranks may get the data of a call from others than the rank they belong to.
[[nodiscard]] inline bool passed_on(const call_record& r, const places& where) noexcept {
  return r.code == opcode::broadcast && where.has(r.root);
}

/// True when `to` cannot go on in this call before `from` has shown it: it reads its data.
[[nodiscard]] inline bool feeds(const call_record& r, int from, int to, const places& where,
                                int flat_places) noexcept {
  if (passed_on(r, where)) return from == feeder_of(where, to, r.root, flat_places);
  operation op;
  op.code = r.code;
  op.root = r.root;
  return needs(op, to, from);
}

}  // namespace rankcast::inline v0::frames
