/// scatter: one rank's values, a share to each.
#pragma once

#include <utility>

#include "rankcast/collectives/options.hpp"

namespace rankcast::inline v0 {

namespace detail {

template <class Send, class Receive>
operation scatter_operation(const Send& send, Receive&& receive, int root, call_site where) {
  operation op;
  op.code = opcode::scatter;
  op.root = root;
  op.send = read_buffer(send);
  op.receive = write_buffer(std::forward<Receive>(receive));
  op.where = where;
  return op;
}

}  // namespace detail

/// Sends the r-th share of the root's values to rank r.
///
/// Shape    send, at the root: [sum of counts], or n times the receive buffer; elsewhere ignored
///          (pass `nothing`). receive: [counts[rank]] or an equal share. The root may receive into
///          its own share of `send`.
/// Errors   usage_error (root; sizes that do not add up; overlap), told to all ranks;
///          mismatch_error, before anything is written; timeout_error, peer_lost_error,
///          revoked_error.
/// Cost     every rank reads its share once; no allocation.
/// Source   MPI 4.0, 6.6 (MPI_Scatter, MPI_Scatterv).
template <readable_data Send, class Receive>
  requires writable_data<Receive>
void scatter(const communicator& comm, const Send& send, Receive&& receive,
             rooted_share_options options = {}, call_site where = call_site::here()) {
  auto op = detail::scatter_operation(send, std::forward<Receive>(receive), options.root, where);
  const auto counts = detail::scaled(options.counts, detail::count_scale<Receive>());
  if (comm.rank(op.code) == options.root) op.counts = counts;
  else op.send = {};
  comm.run(op, detail::common(options));
}

/// The same, started. Both buffers are borrowed until the work is done.
template <readable_data Send, class Receive>
  requires writable_data<Receive>
[[nodiscard]] work start_scatter(const communicator& comm, const Send& send, Receive&& receive,
                                 rooted_share_options options = {},
                                 call_site where = call_site::here()) {
  auto op = detail::scatter_operation(send, std::forward<Receive>(receive), options.root, where);
  const auto counts = detail::scaled(options.counts, detail::count_scale<Receive>());
  if (comm.rank(op.code) == options.root) op.counts = counts;
  else op.send = {};
  return comm.start(op, detail::common(options));
}

}  // namespace rankcast::inline v0
