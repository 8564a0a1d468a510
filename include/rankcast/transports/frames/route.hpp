/// Who gets the data of whom. Straight from where they lie, but for broadcasts to many: these go
/// along a binomial tree, so that the root sends to log2(n) ranks instead of n.
#pragma once

#include <cstdint>

#include "rankcast/core/agreement.hpp"
#include "rankcast/core/operation.hpp"

namespace rankcast::inline v0::frames {

/// Where `rank` gets a broadcast from `root` in a binomial tree: the rank whose number, counted
/// from the root, is its own without the lowest bit. -1 at the root. Source: MPICH,
/// MPIR_Bcast_intra_binomial.
[[nodiscard]] constexpr int tree_parent(int rank, int root, int size) noexcept {
  const int position = (rank - root + size) % size;
  if (position == 0) return -1;
  return ((position & (position - 1)) + root) % size;
}

/// True when the data of a call go along a tree: a broadcast of agreed size to more than
/// `flat_ranks`. (Messages do not: their segments end in objects, from where nobody can pass them
/// on.)
[[nodiscard]] constexpr bool along_tree(const call_record& r, int size, int flat_ranks) noexcept {
  return r.code == opcode::broadcast && !r.message && size > flat_ranks;
}

/// True when `to` cannot go on in this call before `from` has shown it: it reads its data.
[[nodiscard]] inline bool feeds(const call_record& r, int from, int to, int size,
                                int flat_ranks) noexcept {
  if (along_tree(r, size, flat_ranks)) return from == tree_parent(to, r.root, size);
  operation op;
  op.code = r.code;
  op.root = r.root;
  return needs(op, to, from);
}

}  // namespace rankcast::inline v0::frames
