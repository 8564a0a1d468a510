// Taking the samples of one point: fresh data before each, the call between two looks at the clock,
// the check of what arrived after it.
#pragma once

#include <chrono>
#include <cstddef>

#include "command.hpp"
#include "stage.hpp"

namespace bench {

/// prepare(sample) and check(sample) are not timed. What call() takes counts `scale` times.
template <class Prepare, class Call, class Check>
void measure(stage& here, const command& given, const point& p, Prepare prepare, Call call,
             Check check, double scale = 1) {
  constexpr std::size_t huge = std::size_t{128} << 20;  // fresh data alone take long
  here.open(given.budget, p.bytes < huge ? pace{} : pace{1, 2});
  int sample = 0;
  for (prepare(sample); here.start(sample); prepare(++sample)) {
    const clock::time_point begin = clock::now();
    call();
    const std::chrono::duration<double, clock::period> took = clock::now() - begin;
    here.record(sample, std::chrono::duration_cast<clock::duration>(took * scale));
    check(sample);
  }
  here.report(p.operation, p.bytes);
}

/// Runs `body(point)` for each point; a rank that fails releases the others.
template <class Body>
void for_each_point(stage& here, const command& given, Body body) {
  try {
    for (const point& p : given.points) body(p);
  } catch (...) {
    here.abandon();
    throw;
  }
}

}  // namespace bench
