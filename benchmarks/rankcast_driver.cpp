// rankcast with threads as ranks. Takes the drivers' command line (support/command.hpp).
#include "support/rankcast_peer.hpp"

int main(int argc, char** argv) {
  return bench::guarded([&] {
    const bench::command given(argc, argv);
    rankcast::run(given.ranks,
                  [&](rankcast::communicator& world) { bench::measure_rankcast(world, given); });
  });
}
