// No library: what two copies cost, into a ring of pieces and out of it, one while the next is
// made, and nothing else. Ranks that cannot read each other's memory have to make both, so this is
// their floor. `--transport cached` writes the ring through the caches, `past` past them.
// Broadcasts of two ranks, here threads.
#include <atomic>
#include <cstddef>
#include <cstring>
#include <rankcast/rankcast.hpp>
#include <thread>

#include "support/measure.hpp"
#include "support/values.hpp"

namespace {

struct ring {
  static constexpr std::size_t piece = 16 * 1024;
  static constexpr std::size_t size = 16 * piece;

  alignas(128) std::atomic<std::size_t> written{0};
  alignas(128) std::atomic<std::size_t> read{0};
  alignas(4096) std::byte bytes[size];

  void put(std::span<const float> values, bool past_caches) {
    const auto from = std::as_bytes(values);
    for (std::size_t done = 0; done < from.size(); done += piece) {
      const std::size_t at = written.load(std::memory_order_relaxed);
      while (at + piece - read.load(std::memory_order_acquire) > size) bench::relax();
      const std::size_t n = std::min(piece, from.size() - done);
      if (past_caches) rankcast::local::copy_streaming(bytes + at % size, from.data() + done, n);
      else std::memcpy(bytes + at % size, from.data() + done, n);
      written.store(at + piece, std::memory_order_release);
    }
  }
  void take(std::span<float> values) {
    const auto to = std::as_writable_bytes(values);
    for (std::size_t done = 0; done < to.size(); done += piece) {
      const std::size_t at = read.load(std::memory_order_relaxed);
      while (written.load(std::memory_order_acquire) == at) bench::relax();
      std::memcpy(to.data() + done, bytes + at % size, std::min(piece, to.size() - done));
      read.store(at + piece, std::memory_order_release);
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
          if (rank == 0) shared.put(values, given.transport == "past");
          else shared.take(values);
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
