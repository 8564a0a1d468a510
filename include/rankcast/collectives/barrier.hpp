/// barrier: nobody passes before all have arrived.
#pragma once

#include "rankcast/collectives/options.hpp"

namespace rankcast::inline v0 {

/// Returns when every rank of the group has called it.
///
/// Errors   timeout_error naming the ranks that have not come; mismatch_error when a rank makes
///          another call; peer_lost_error; revoked_error.
/// Cost     one publication per rank; no allocation beyond the call's own record.
/// Source   MPI 4.0, 6.3 (MPI_Barrier).
inline void barrier(const communicator& comm, call_options options = {},
                    call_site where = call_site::here()) {
  operation op;
  op.code = opcode::barrier;
  op.where = where;
  comm.run(op, options);
}

/// The same, started; wait on the result.
[[nodiscard]] inline work start_barrier(const communicator& comm, call_options options = {},
                                        call_site where = call_site::here()) {
  operation op;
  op.code = opcode::barrier;
  op.where = where;
  return comm.start(op, options);
}

}  // namespace rankcast::inline v0
