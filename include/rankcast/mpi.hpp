/// Ranks as MPI processes. Works with Open MPI and MPICH; include it in place of, or beside,
/// rankcast.hpp, and link rankcast::mpi.
///
///   rankcast::mpi::environment mpi;
///   rankcast::communicator world = rankcast::mpi::world();
///   rankcast::barrier(world);
#pragma once

#include "rankcast/rankcast.hpp"                    // IWYU pragma: export
#include "rankcast/transports/mpi/environment.hpp"  // IWYU pragma: export
#include "rankcast/transports/mpi/world.hpp"        // IWYU pragma: export
