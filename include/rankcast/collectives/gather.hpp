/// gather and all_gather: every rank's values, joined in rank order, at one rank or at all.
#pragma once

#include <utility>

#include "rankcast/collectives/options.hpp"

namespace rankcast::inline v0 {

namespace detail {

template <class Send, class Receive>
operation gather_operation(const Send& send, Receive&& receive, opcode code, int root,
                           call_site where) {
  operation op;
  op.code = code;
  op.root = root;
  op.send = read_buffer(send);
  op.receive = write_buffer(std::forward<Receive>(receive));
  op.where = where;
  return op;
}

}  // namespace detail

/// Joins every rank's values at the root.
///
/// Shape    send: [counts[rank]] or an equal share; counts may hold zeros. receive, at the root:
///          [sum of counts] or n times the send buffer, in rank order; elsewhere ignored (pass
///          `nothing`). The root may send from its own share of `receive`.
/// Errors   usage_error (root; sizes that do not add up; overlap), told to all ranks;
///          mismatch_error, before anything is written; timeout_error, peer_lost_error,
///          revoked_error.
/// Cost     the root reads every share once; no allocation.
/// Source   MPI 4.0, 6.5 (MPI_Gather, MPI_Gatherv).
template <readable_data Send, class Receive>
  requires writable_data<Receive>
void gather(const communicator& comm, const Send& send, Receive&& receive,
            rooted_share_options options = {}, call_site where = call_site::here()) {
  auto op = detail::gather_operation(send, std::forward<Receive>(receive), opcode::gather,
                                     options.root, where);
  const auto counts = detail::scaled(options.counts, detail::count_scale<Send>());
  if (comm.rank(op.code) == options.root) op.counts = counts;
  else op.receive = {};
  comm.run(op, detail::common(options));
}

/// The same, started. Both buffers are borrowed until the work is done.
template <readable_data Send, class Receive>
  requires writable_data<Receive>
[[nodiscard]] work start_gather(const communicator& comm, const Send& send, Receive&& receive,
                                rooted_share_options options = {},
                                call_site where = call_site::here()) {
  auto op = detail::gather_operation(send, std::forward<Receive>(receive), opcode::gather,
                                     options.root, where);
  const auto counts = detail::scaled(options.counts, detail::count_scale<Send>());
  if (comm.rank(op.code) == options.root) op.counts = counts;
  else op.receive = {};
  return comm.start(op, detail::common(options));
}

/// Joins every rank's values at all ranks.
///
/// Shape    send: [counts[rank]] or an equal share. receive: [sum of counts] or n times the send
///          buffer, in rank order. counts: the same on all ranks. A rank may send from its own
///          share of `receive`.
/// Errors   as gather.
/// Cost     every rank reads every other share once; no allocation.
/// Source   MPI 4.0, 6.7 (MPI_Allgather, MPI_Allgatherv).
template <readable_data Send, class Receive>
  requires writable_data<Receive>
void all_gather(const communicator& comm, const Send& send, Receive&& receive,
                share_options options = {}, call_site where = call_site::here()) {
  auto op =
      detail::gather_operation(send, std::forward<Receive>(receive), opcode::all_gather, -1, where);
  const auto counts = detail::scaled(options.counts, detail::count_scale<Send>());
  op.counts = counts;
  comm.run(op, detail::common(options));
}

/// The same, started. Both buffers are borrowed until the work is done.
template <readable_data Send, class Receive>
  requires writable_data<Receive>
[[nodiscard]] work start_all_gather(const communicator& comm, const Send& send, Receive&& receive,
                                    share_options options = {},
                                    call_site where = call_site::here()) {
  auto op =
      detail::gather_operation(send, std::forward<Receive>(receive), opcode::all_gather, -1, where);
  const auto counts = detail::scaled(options.counts, detail::count_scale<Send>());
  op.counts = counts;
  return comm.start(op, detail::common(options));
}

}  // namespace rankcast::inline v0
