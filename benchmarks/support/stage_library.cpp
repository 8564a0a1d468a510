// The stage and the values as a C library, for the peers in Python: they are held, filled and
// checked as the others are, and read the same clock themselves.
#include <memory>

#include "command.hpp"
#include "stage.hpp"
#include "values.hpp"

namespace {

std::unique_ptr<bench::stage> here;

std::span<float> floats(void* address, std::size_t count) {
  return {static_cast<float*>(address), count};
}

}  // namespace

// All return 0, or 1 after they have said what is wrong.
extern "C" {

int bench_enter(const char* path, int rank, int ranks, int sleeping) {
  return bench::guarded([&] {
    here = std::make_unique<bench::stage>(
        path, rank, ranks, sleeping != 0 ? bench::waiting::sleeping : bench::waiting::spinning);
  });
}

int bench_open(double seconds) {
  return bench::guarded([&] { here->open(std::chrono::duration<double>(seconds)); });
}

int bench_start(int sample, int* more) {
  return bench::guarded([&] { *more = here->start(sample) ? 1 : 0; });
}

void bench_record(int sample, long long nanoseconds) {
  here->record(sample, std::chrono::nanoseconds(nanoseconds));
}

int bench_report(const char* operation, std::size_t bytes) {
  return bench::guarded([&] { here->report(operation, bytes); });
}

void bench_abandon() {
  here->abandon();
}

void bench_fill(void* address, std::size_t count, int rank, int sample) {
  bench::fill(floats(address, count), rank, sample);
}

void bench_spoil(void* address, std::size_t count) {
  bench::spoil(floats(address, count));
}

int bench_expect(void* address, std::size_t count, int rank, int sample, int ranks) {
  return bench::guarded([&] { bench::expect(floats(address, count), rank, sample, ranks); });
}
}
