/// broadcast: one rank's values to all. (Tensors whose shape the receivers do not know:
/// broadcast_tensor.hpp.)
#pragma once

#include <utility>

#include "rankcast/collectives/options.hpp"

namespace rankcast::inline v0 {

namespace detail {

template <class T>
operation broadcast_operation(const communicator& comm, T&& data, int root, call_site where) {
  operation op;
  op.code = opcode::broadcast;
  op.root = root;
  op.where = where;
  (comm.rank(op.code) == root ? op.send : op.receive) = write_buffer(std::forward<T>(data));
  return op;
}

}  // namespace detail

/// Copies the root's values over everybody else's, in place.
///
/// Shape    data: the same number of elements and dtype on every rank; any strides.
/// Errors   usage_error (root outside the group); mismatch_error (root, dtype, elements, call),
///          before anything is written; timeout_error, peer_lost_error, revoked_error.
/// Cost     every rank reads the root's data once: (n - 1) * bytes in all; no allocation.
/// Source   MPI 4.0, 6.4 (MPI_Bcast).
template <class T>
  requires writable_data<T>
void broadcast(const communicator& comm, T&& data, rooted_options options = {},
               call_site where = call_site::here()) {
  comm.run(detail::broadcast_operation(comm, std::forward<T>(data), options.root, where),
           detail::common(options));
}

/// The same, started. `data` is borrowed until the work is done.
template <class T>
  requires writable_data<T>
[[nodiscard]] work start_broadcast(const communicator& comm, T&& data, rooted_options options = {},
                                   call_site where = call_site::here()) {
  return comm.start(detail::broadcast_operation(comm, std::forward<T>(data), options.root, where),
                    detail::common(options));
}

}  // namespace rankcast::inline v0
