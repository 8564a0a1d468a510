/// What both fuzzers ask of an object that was decoded: it can be encoded, and is the same again.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "object/everything.hpp"

namespace support {

/// Not assert(), which a build type may take away.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzzer: %s\n", what);
  std::abort();
}

/// Hash tables give their elements in an order of their own, so it is compared what they hold.
inline bool same(const everything& a, const everything& b) {
  const auto bytes = [](const rankcast::tensor& t) {
    std::vector<std::byte> encoded;
    rankcast::save_object(t, encoded);
    return encoded;
  };
  return a.text == b.text && a.numbers == b.numbers && a.bits == b.bits && a.leaves == b.leaves &&
         a.table == b.table && a.leaf_of == b.leaf_of && a.many == b.many && a.words == b.words &&
         a.hashed == b.hashed && a.ids == b.ids && a.queue == b.queue && a.list == b.list &&
         a.flags == b.flags && a.array == b.array && a.set == b.set && a.maybe == b.maybe &&
         a.one_of == b.one_of && a.both == b.both && a.time == b.time && !a.owned == !b.owned &&
         (!a.owned || *a.owned == *b.owned) && a.empties == b.empties && a.tree == b.tree &&
         bytes(a.tensor) == bytes(b.tensor) && a.fixed[0] == b.fixed[0] && a.fixed[1] == b.fixed[1];
}

}  // namespace support
