/// What a stranger's first program may look like.
#include <cstdio>
#include <rankcast/rankcast.hpp>

int main() {
  rankcast::run(4, [](rankcast::communicator& world) {
    int sum = world.rank();
    rankcast::all_reduce(world, sum);
    if (world.rank() == 0) {
      std::printf("rankcast %d.%d.%d: the sum is %d\n", RANKCAST_VERSION_MAJOR,
                  RANKCAST_VERSION_MINOR, RANKCAST_VERSION_PATCH, sum);
    }
  });
}
