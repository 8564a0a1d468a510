// What a rank costs that waits for a late one, and how fast it is back: broadcasts of 8 bytes whose
// root comes `bytes` milliseconds after the others.
//
//   idle      a sample is the processor time of a waiting rank's thread
//   wake_up   a sample is the time from the root's call to the end of the last rank's
#pragma once

#include <chrono>
#include <cstring>
#include <ctime>
#include <span>
#include <thread>

#include "measure.hpp"

namespace bench {

/// Of the calling thread.
inline clock::duration processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// The last moment is spent awake, as if the rank came from work.
inline void be_late(std::chrono::milliseconds pause) {
  const clock::time_point end = clock::now() + pause;
  std::this_thread::sleep_until(end - std::chrono::milliseconds(1));
  while (clock::now() < end) relax();
}

/// False when the point is none of these. The peer has the `broadcast` of tensors.hpp.
template <class Peer>
bool measure_idle(stage& here, const command& given, const point& p, Peer& peer) {
  const bool idle = p.operation == "idle";
  if (!idle && p.operation != "wake_up") return false;
  const std::chrono::milliseconds pause(p.bytes);
  const bool few = pause >= std::chrono::seconds(1);
  here.open(few ? std::chrono::seconds(0) : given.budget, few ? pace{0, idle ? 1 : 3} : pace{1, 3});
  for (int sample = 0; here.start(sample); ++sample) {
    float message[2] = {};  // when the root has called
    static_assert(sizeof message == sizeof(clock::time_point));
    if (here.rank() == 0) {
      be_late(pause);
      const clock::time_point called = clock::now();
      std::memcpy(message, &called, sizeof message);
    }
    const clock::duration before = processor_time();
    peer.broadcast(message);
    const clock::time_point back = clock::now();
    clock::time_point called{};
    std::memcpy(static_cast<void*>(&called), message, sizeof message);
    const bool waited = here.rank() != 0;
    here.record(sample, idle     ? processor_time() - before
                        : waited ? back - called
                                 : clock::duration{});
  }
  here.report(p.operation, p.bytes);
  return true;
}

}  // namespace bench
