/// What a rank that does not come looks like to the others: its number, and what it did last.
///   cmake --build --preset release --target missing_rank &&
///   build/release/examples/quickstart/missing_rank
#include <chrono>
#include <cstdio>
#include <rankcast/rankcast.hpp>
#include <thread>

using namespace std::chrono_literals;

int main() {
  rankcast::run(3, [](rankcast::communicator& world) {
    rankcast::barrier(world);
    if (world.rank() == 2) std::this_thread::sleep_for(2s);  // busy elsewhere
    try {
      const rankcast::timeout limit = world.rank() == 0 ? 1s : 1min;
      rankcast::barrier(world, {.timeout = limit});
    } catch (const rankcast::timeout_error& e) {  // the call that waited
      if (world.rank() != 0) return;
      for (const int rank : e.missing()) std::printf("rank %d did not come within 1 s\n", rank);
      std::fprintf(stderr, "%s\n", e.what());
    } catch (const rankcast::revoked_error& e) {  // who comes later reads why the group has ended
      if (world.rank() == 2) std::printf("rank 2 is told by rank %d\n", e.by());
    }
  });
}
