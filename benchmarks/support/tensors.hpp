// The collectives on tensors, the same for every peer. A peer is a class with
//
//   void broadcast(std::span<float> values, int root = 0);
//   void scatter(std::span<float> all, std::span<float> share);         // `all` is rank 0's
//   void gather(std::span<float> share, std::span<float> all);          // `all` is rank 0's
//   void all_gather(std::span<float> share, std::span<float> all);
//   void all_reduce(std::span<float> values);                           // sum, in place
//
// `bytes` of a point is what one rank ends up with: a share of a scatter, all that
// rank 0 of a gather, or each of an all_gather, collects. `rotating_broadcast` is broadcasts from
// one root after the other, without a pause, and counts as one of them.
#pragma once

#include <vector>

#include "measure.hpp"
#include "values.hpp"

namespace bench {

/// False when the point is none of these.
template <class Peer>
bool measure_tensors(stage& here, const command& given, const point& p, Peer& peer) {
  const int rank = here.rank();
  const auto ranks = static_cast<std::size_t>(here.ranks());
  std::vector<float> whole(p.bytes / sizeof(float));
  const auto share_of = [](std::vector<float>& all, std::size_t share, std::size_t r) {
    return std::span(all).subspan(r * share, share);
  };

  if (p.operation == "broadcast") {
    measure(
        here, given, p, [&](int i) { rank == 0 ? fill(whole, 0, i) : spoil(whole); },
        [&] { peer.broadcast(whole); }, [&](int i) { expect(whole, 0, i); });
  } else if (p.operation == "rotating_broadcast") {
    const int calls = 64;
    whole.resize(whole.size() * calls);
    const auto each = [&](auto body) {
      for (int c = 0; c < calls; ++c) {
        body(share_of(whole, whole.size() / calls, static_cast<std::size_t>(c)), c % here.ranks(),
             c);
      }
    };
    measure(
        here, given, p,
        [&](int i) {
          each([&](std::span<float> values, int root, int c) {
            rank == root ? fill(values, c, i) : spoil(values);
          });
        },
        [&] {
          each([&](std::span<float> values, int root, int) { peer.broadcast(values, root); });
        },
        [&](int i) { each([&](std::span<float> values, int, int c) { expect(values, c, i); }); },
        1.0 / calls);
  } else if (p.operation == "all_reduce") {
    measure(
        here, given, p, [&](int i) { fill(whole, rank, i); }, [&] { peer.all_reduce(whole); },
        [&](int i) { expect(whole, 0, i, here.ranks()); });
  } else if (p.operation == "scatter") {
    std::vector<float> all(rank == 0 ? whole.size() * ranks : 0);
    measure(
        here, given, p,
        [&](int i) {
          spoil(whole);
          for (std::size_t r = 0; r < ranks && rank == 0; ++r) {
            fill(share_of(all, whole.size(), r), static_cast<int>(r), i);
          }
        },
        [&] { peer.scatter(all, whole); }, [&](int i) { expect(whole, rank, i); });
  } else if (p.operation == "gather" || p.operation == "all_gather") {
    const bool to_one = p.operation == "gather";
    const bool collects = !to_one || rank == 0;
    std::vector<float> mine(whole.size() / ranks);
    if (!collects) whole.clear();
    measure(
        here, given, p,
        [&](int i) {
          spoil(whole);
          fill(mine, rank, i);
        },
        [&] { to_one ? peer.gather(mine, whole) : peer.all_gather(mine, whole); },
        [&](int i) {
          for (std::size_t r = 0; r < ranks && collects; ++r) {
            expect(share_of(whole, mine.size(), r), static_cast<int>(r), i);
          }
        });
  } else {
    return false;
  }
  return true;
}

}  // namespace bench
