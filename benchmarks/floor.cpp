// The floor under every figure: one memcpy, by one thread, of the bytes that one rank ends up with.
// Takes the drivers' command line (support/command.hpp).
#include <cstring>

#include "support/measure.hpp"
#include "support/values.hpp"

int main(int argc, char** argv) {
  return bench::guarded([&] {
    const bench::command given(argc, argv);
    bench::stage here(given.stage, 0, 1, bench::waiting::spinning);
    bench::for_each_point(here, given, [&](const bench::point& p) {
      std::vector<float> from(p.bytes / sizeof(float)), to(from.size());
      bench::measure(
          here, given, p,
          [&](int i) {
            bench::fill(from, 0, i);
            bench::spoil(to);
          },
          [&] {
            std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
            asm volatile("" : : "r"(to.data()) : "memory");  // so that the copy is made here
          },
          [&](int i) { bench::expect(to, 0, i); });
    });
  });
}
