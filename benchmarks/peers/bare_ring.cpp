// No library: what two copies cost, into a ring of pieces and out of it, one while the next is
// made, and nothing else. Ranks that cannot read each other's memory have to make both, so this is
// their floor. With `--transport taken` the reader takes the ring's lines as it reads them (see
// local/copying.hpp), with `read` it only reads them.
//
// Two ranks, here threads: broadcasts; and all_reduces (taken), in which each rank folds one half
// where the other one has put it, and takes back its own.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <rankcast/rankcast.hpp>
#include <span>
#include <thread>
#include <vector>

#include "support/measure.hpp"
#include "support/values.hpp"

namespace {

using rankcast::local::copy_and_take;
using rankcast::local::copy_to_taker;

struct ring {
  static constexpr std::size_t most = 64 * 1024;  // of a piece
  static constexpr std::size_t size = 4 * most;

  alignas(128) std::atomic<std::size_t> written{0};
  alignas(128) std::atomic<std::size_t> read{0};
  alignas(4096) std::byte bytes[size];

  [[nodiscard]] std::byte* at(std::size_t position) noexcept { return bytes + position % size; }
};

// Of few bytes a piece is a quarter, so that pieces overlap, too.
[[nodiscard]] std::size_t piece_at(std::size_t position, std::size_t done, std::size_t all) {
  const std::size_t step = std::clamp<std::size_t>(all / 4 / 64 * 64, 64, ring::most);
  return std::min({step, all - done, ring::size - position % ring::size});
}

void put(ring& own, std::span<const std::byte> from) {
  for (std::size_t done = 0; done < from.size();) {
    const std::size_t at = own.written.load(std::memory_order_relaxed);
    const std::size_t n = piece_at(at, done, from.size());
    while (at + n - own.read.load(std::memory_order_acquire) > ring::size) bench::relax();
    copy_to_taker(own.at(at), from.data() + done, n);
    own.written.store(at + n, std::memory_order_release);
    done += n;
  }
}

void take(ring& other, std::span<std::byte> to, bool takes) {
  for (std::size_t done = 0; done < to.size();) {
    const std::size_t at = other.read.load(std::memory_order_relaxed);
    const std::size_t n = piece_at(at, done, to.size());
    while (other.written.load(std::memory_order_acquire) < at + n) bench::relax();
    if (takes) copy_and_take(to.data() + done, other.at(at), n);
    else std::memcpy(to.data() + done, other.at(at), n);
    other.read.store(at + n, std::memory_order_release);
    done += n;
  }
}

// `mine` is folded here, `theirs` by the other rank.
void all_reduce(ring& own, ring& other, std::span<float> mine, std::span<float> theirs) {
  const auto out = std::as_writable_bytes(theirs);
  const auto in = std::as_writable_bytes(mine);
  const std::size_t begin = own.written.load(std::memory_order_relaxed);
  const std::size_t begin_other = other.read.load(std::memory_order_relaxed);
  std::size_t written = 0;
  std::size_t folded = 0;
  std::size_t back = 0;
  while (folded < in.size() || back < out.size()) {
    bool moved = false;
    if (const std::size_t n = piece_at(begin + written, written, out.size());
        n != 0 && written + n - back <= ring::size) {
      copy_to_taker(own.at(begin + written), out.data() + written, n);
      written += n;
      own.written.store(begin + written, std::memory_order_release);
      moved = true;
    }
    if (const std::size_t n = piece_at(begin_other + folded, folded, in.size());
        n != 0 && other.written.load(std::memory_order_acquire) >= begin_other + folded + n) {
      auto* const place = reinterpret_cast<float*>(other.at(begin_other + folded));
      auto* const values = reinterpret_cast<float*>(in.data() + folded);
      for (std::size_t i = 0; i < n / sizeof(float); ++i) place[i] += values[i];
      std::memcpy(values, place, n);
      folded += n;
      other.read.store(begin_other + folded, std::memory_order_release);
      moved = true;
    }
    if (const std::size_t n = piece_at(begin + back, back, out.size());
        n != 0 && own.read.load(std::memory_order_acquire) >= begin + back + n) {
      copy_and_take(out.data() + back, own.at(begin + back), n);
      back += n;
      moved = true;
    }
    if (!moved) bench::relax();
  }
}

void measure_rank(std::span<ring, 2> rings, int rank, const bench::command& given) {
  bench::stage here(given.stage, rank, given.ranks, bench::waiting::spinning);
  const bool takes = given.transport == "taken";
  bench::for_each_point(here, given, [&](const bench::point& p) {
    std::vector<float> values(p.bytes / sizeof(float));
    if (p.operation == "broadcast") {
      bench::measure(
          here, given, p,
          [&](int i) { rank == 0 ? bench::fill(values, 0, i) : bench::spoil(values); },
          [&] {
            if (rank == 0) put(rings[0], std::as_bytes(std::span(values)));
            else take(rings[0], std::as_writable_bytes(std::span(values)), takes);
          },
          [&](int i) { bench::expect(values, 0, i); });
    } else if (p.operation == "all_reduce" && takes && p.bytes >= 1024) {
      const auto halves = [&](int half) {
        const std::span<float> all(values);
        return half == 0 ? all.first(all.size() / 2) : all.subspan(all.size() / 2);
      };
      bench::measure(
          here, given, p, [&](int i) { bench::fill(values, rank, i); },
          [&] {
            all_reduce(rings[static_cast<std::size_t>(rank)],
                       rings[static_cast<std::size_t>(1 - rank)], halves(rank), halves(1 - rank));
          },
          [&](int i) { bench::expect(values, 0, i, 2); });
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  return bench::guarded([&] {
    const bench::command given(argc, argv);
    if (given.ranks != 2) return;
    static ring rings[2];
    std::thread other([&] { measure_rank(rings, 1, given); });
    measure_rank(rings, 0, given);
    other.join();
  });
}
