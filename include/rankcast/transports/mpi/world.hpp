/// Groups of MPI processes: the world, or the processes of a communicator that the program lends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rankcast/core/communicator.hpp"
#include "rankcast/transports/frames/transport.hpp"
#include "rankcast/transports/mpi/environment.hpp"

namespace rankcast::inline v0::mpi {

struct group_options {
  std::string name = "world";
  timeout default_timeout{};  // unset: the library's
  rankcast::completion completion = completion::local;
  frames::settings sizes{};        // of groups across hosts
  local::settings shared_sizes{};  // of groups within a host
};

/// A group of the processes of `lent`, numbered as there. The communicator is duplicated and left
/// as it is, with its error handler; it may be freed when this returns. `split` of the group makes
/// no MPI communicators.
///
/// Errors   usage_error (MPI is not initialised, or finalised; this is not its thread; no group of
///          processes), timeout_error when not all processes call it within the default limit,
///          mismatch_error when they run different builds, transport_error with MPI's text.
/// Cost     collective over `lent`: the first time one MPI_Comm_idup, a look at who shares a host,
///          and shared memory as `join`; later, for the same communicator, a board of shared
///          memory where all ranks are on one host. The duplicate lives until MPI ends.
[[nodiscard]] inline communicator adopt(MPI_Comm lent, const group_options& options = {}) {
  int begun = 0;
  int ended = 0;
  check(MPI_Initialized(&begun), "MPI_Initialized");
  check(MPI_Finalized(&ended), "MPI_Finalized");
  if (begun == 0) {
    throw usage_error("mpi::adopt: MPI is not initialised; make an mpi::environment first");
  }
  if (ended != 0) throw usage_error("mpi::adopt: MPI has been finalised in this process");
  if (lent == MPI_COMM_NULL) throw usage_error("mpi::adopt: the communicator is MPI_COMM_NULL");
  int between = 0;
  check(MPI_Comm_test_inter(lent, &between), "MPI_Comm_test_inter");
  if (between != 0) throw usage_error("mpi::adopt: an intercommunicator has two groups");
  (void)mpi_link::any_thread_may_call();
  const timeout limit = options.default_timeout.or_else(library_timeout());
  const deadline until = deadline::after(limit);
  const auto link = detail::link_of(lent, options.shared_sizes, until);
  std::vector<int> ranks;
  for (int r = 0; r < link->size(); ++r) ranks.push_back(r);
  // All processes adopt the same communicator equally often.
  const std::uint64_t parts[] = {link->next_adoption()};
  const std::uint64_t id = frames::frames_transport::mix(parts);
  const std::string text = "group '" + options.name + "' of " + std::to_string(link->size());
  auto founder = std::make_shared<host_founder>(link, options.shared_sizes);
  std::shared_ptr<transport> t = founder->found(ranks, link->rank(), id, text, [&] {
    if (!until.expired()) return;
    throw timeout_error("mpi::adopt: timed out after " + seconds_text(limit.limit()) +
                            "; not all processes of the communicator have called it",
                        {}, limit.limit());
  });
  if (t == nullptr) {
    t = std::make_shared<frames::frames_transport>(link, id, link->rank(), ranks, text,
                                                   options.sizes, founder);
  }
  return {std::move(t),      options.name, ranks, link->rank(), options.default_timeout,
          options.completion};
}

/// The group of all processes of the job.
[[nodiscard]] inline communicator world(const group_options& options = {}) {
  return adopt(MPI_COMM_WORLD, options);
}

}  // namespace rankcast::inline v0::mpi
