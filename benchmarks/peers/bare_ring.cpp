// No library: what two copies cost, into a ring of pieces and out of it, one while the next is
// made, and nothing else. Ranks that cannot read each other's memory have to make both, so this is
// their floor. With `--transport taken` the reader takes the ring's lines as it reads them (see
// local/copying.hpp), with `read` it only reads them.
// Broadcasts of two ranks, here threads.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <rankcast/rankcast.hpp>
#include <thread>

#include "support/measure.hpp"
#include "support/values.hpp"

namespace {

struct ring {
  static constexpr std::size_t piece = 64 * 1024;
  static constexpr std::size_t line = 64;
  static constexpr std::size_t size = 4 * piece;

  alignas(128) std::atomic<std::size_t> written{0};
  alignas(128) std::atomic<std::size_t> read{0};
  alignas(4096) std::byte bytes[size];

  // Of few bytes a piece is a quarter, so that they overlap, too.
  [[nodiscard]] static std::size_t step(std::size_t all) {
    return std::clamp(all / 4, line, piece);
  }

  void put(std::span<const float> values) {
    const auto from = std::as_bytes(values);
    for (std::size_t done = 0; done < from.size();) {
      const std::size_t at = written.load(std::memory_order_relaxed);
      const std::size_t n = std::min({step(from.size()), from.size() - done, size - at % size});
      while (at + n - read.load(std::memory_order_acquire) > size) bench::relax();
      rankcast::local::copy_to_taker(bytes + at % size, from.data() + done, n);
      written.store(at + n, std::memory_order_release);
      done += n;
    }
  }
  void take(std::span<float> values, bool takes) {
    const auto to = std::as_writable_bytes(values);
    for (std::size_t done = 0; done < to.size();) {
      const std::size_t at = read.load(std::memory_order_relaxed);
      const std::size_t n = std::min({step(to.size()), to.size() - done, size - at % size});
      while (written.load(std::memory_order_acquire) < at + n) bench::relax();
      if (takes) rankcast::local::copy_and_take(to.data() + done, bytes + at % size, n);
      else std::memcpy(to.data() + done, bytes + at % size, n);
      read.store(at + n, std::memory_order_release);
      done += n;
    }
  }
};

void measure_rank(ring& shared, int rank, const bench::command& given) {
  bench::stage here(given.stage, rank, given.ranks, bench::waiting::spinning);
  bench::for_each_point(here, given, [&](const bench::point& p) {
    if (p.operation != "broadcast") return;
    std::vector<float> values(p.bytes / sizeof(float));
    bench::measure(
        here, given, p,
        [&](int i) { rank == 0 ? bench::fill(values, 0, i) : bench::spoil(values); },
        [&] {
          if (rank == 0) shared.put(values);
          else shared.take(values, given.transport == "taken");
        },
        [&](int i) { bench::expect(values, 0, i); });
  });
}

}  // namespace

int main(int argc, char** argv) {
  return bench::guarded([&] {
    const bench::command given(argc, argv);
    if (given.ranks != 2) return;
    static ring shared;
    std::thread other([&] { measure_rank(shared, 1, given); });
    measure_rank(shared, 0, given);
    other.join();
  });
}
