#include <cstdio>
#include "rankcast/mpi.hpp"
#include "rankcast/rankcast.hpp"
namespace mpi = rankcast::mpi;
int main(int argc, char** argv) {
  static const mpi::environment env(argc, argv);
  auto w = mpi::world();
  int x = 1;
  rankcast::all_reduce(w, x);
  std::printf("sum %d\n", x);
  w.close();
}
