// rankcast as a peer among the others: what is measured on any communicator, whatever its
// transport.
#pragma once

#include <rankcast/object.hpp>
#include <span>

#include "idle.hpp"
#include "logits.hpp"
#include "measure.hpp"
#include "object_cases.hpp"
#include "tensors.hpp"

namespace bench {

struct rankcast_peer {
  const rankcast::communicator& comm;

  void broadcast(std::span<float> values, int root = 0) {
    rankcast::broadcast(comm, values, {.root = root});
  }
  void scatter(std::span<float> all, std::span<float> share) {
    rankcast::scatter(comm, all, share);
  }
  void gather(std::span<float> share, std::span<float> all) { rankcast::gather(comm, share, all); }
  void all_gather(std::span<float> share, std::span<float> all) {
    rankcast::all_gather(comm, share, all);
  }
  void all_reduce(std::span<float> values) { rankcast::all_reduce(comm, values); }
  template <class T>
  void broadcast_object(T& object) {
    rankcast::broadcast_object(comm, object, {.root = 0});
  }
};

/// All points of the command line, by one rank.
inline void measure_rankcast(rankcast::communicator& comm, const command& given) {
  if (given.completion == "everyone") {
    comm.set_default_completion(rankcast::completion::everyone);
  }
  stage here(given.stage, comm.rank(), comm.size(), waiting::spinning);
  rankcast_peer peer{comm};
  for_each_point(here, given, [&](const point& p) {
    static_cast<void>(measure_tensors(here, given, p, peer) ||
                      measure_objects(here, given, p, peer) ||
                      measure_logits(here, given, p, comm) || measure_idle(here, given, p, peer));
  });
}

}  // namespace bench
