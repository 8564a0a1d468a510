// Boost.MPI: tensors by pointer (the form that does not serialise them), objects through its
// archives. Takes the drivers' command line (support/command.hpp).
#include <boost/mpi.hpp>
#include <functional>
#include <span>

#include "support/object_cases.hpp"
#include "support/tensors.hpp"

namespace {

struct boost_mpi {
  boost::mpi::communicator world;

  static int count(std::span<float> values) { return static_cast<int>(values.size()); }

  void broadcast(std::span<float> values, int root = 0) {
    boost::mpi::broadcast(world, values.data(), count(values), root);
  }
  void scatter(std::span<float> all, std::span<float> share) {
    boost::mpi::scatter(world, all.data(), share.data(), count(share), 0);
  }
  void gather(std::span<float> share, std::span<float> all) {
    boost::mpi::gather(world, share.data(), count(share), all.data(), 0);
  }
  void all_gather(std::span<float> share, std::span<float> all) {
    boost::mpi::all_gather(world, share.data(), count(share), all.data());
  }
  void all_reduce(std::span<float> values) {
    boost::mpi::all_reduce(world, boost::mpi::inplace(values.data()), count(values),
                           std::plus<float>());
  }
  template <class T>
  void broadcast_object(T& object) {
    boost::mpi::broadcast(world, object, 0);
  }
};

}  // namespace

int main(int argc, char** argv) {
  boost::mpi::environment environment(argc, argv);
  boost_mpi peer;
  const int status = bench::guarded([&] {
    const bench::command given(argc, argv);
    bench::stage here(given.stage, peer.world.rank(), peer.world.size(), bench::waiting::spinning);
    bench::for_each_point(here, given, [&](const bench::point& p) {
      if (!bench::measure_tensors(here, given, p, peer)) {
        bench::measure_objects(here, given, p, peer);
      }
    });
  });
  if (status != 0) boost::mpi::environment::abort(status);
}
