#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>
#include "rankcast/mpi.hpp"
#include "rankcast/rankcast.hpp"
using namespace std::chrono_literals;
namespace mpi = rankcast::mpi;
int main(int argc, char** argv) {
  mpi::environment env(argc, argv);
  int rank; MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* what = argc > 1 ? argv[1] : "idup";
  if (std::strcmp(what, "idup") == 0) {
    if (rank == 1) std::this_thread::sleep_for(500ms);
    try {
      auto w = mpi::world({.default_timeout = rank == 0 ? rankcast::timeout(100ms) : rankcast::timeout(1500ms)});
      std::printf("rank %d adopted\n", rank);
    } catch (const rankcast::error& e) { std::printf("rank %d: %s\n", rank, e.what()); }
    if (rank == 0) {
      std::vector<unsigned char*> blocks;
      const std::size_t size = sizeof(mpi::mpi_link) + 16;
      for (int i = 0; i < 64; ++i) { blocks.push_back(static_cast<unsigned char*>(::operator new(size))); std::memset(blocks.back(), 0xAA, size); }
      const auto begin = rankcast::steady_clock::now();
      while (rankcast::steady_clock::now() - begin < 1s) { int f; MPI_Iprobe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &f, MPI_STATUS_IGNORE); }
      int changed = 0;
      for (auto* b : blocks) for (std::size_t i = 0; i < size; ++i) if (b[i] != 0xAA) { if (changed++ < 3) std::printf("block %p byte %zu of %zu is %02x\n", (void*)b, i, size, b[i]); }
      std::printf("rank 0: %d bytes of other people's memory changed\n", changed);
    }
    std::fflush(stdout);
    std::this_thread::sleep_for(1500ms);
    std::_Exit(0);
  }
  // eager: the root leaves and computes
  const std::size_t n = argc > 2 ? std::atoi(argv[2]) : 50000;
  mpi::group_options o; if (argc > 3) o.sizes.eager_bytes = std::atoi(argv[3]);
  auto w = mpi::world(o);
  rankcast::barrier(w, {.completion = rankcast::completion::everyone});
  std::vector<std::byte> data(n);
  rankcast::call_site where = rankcast::call_site::here();
  static const std::string longname(1500, 'p');
  if (argc > 4) where.file = longname.c_str();
  if (rank == 1) std::this_thread::sleep_for(50ms);
  const auto begin = rankcast::steady_clock::now();
  rankcast::broadcast(w, data, {}, where);
  const double t = std::chrono::duration<double>(rankcast::steady_clock::now() - begin).count();
  if (rank == 0) std::this_thread::sleep_for(2s);
  std::printf("rank %d: broadcast of %zu took %.3f s\n", rank, n, t);
  std::fflush(stdout);
  w.close();
}
