/// all_to_all, send and receive: data between pairs of ranks.
#pragma once

#include <utility>

#include "rankcast/collectives/options.hpp"

namespace rankcast::inline v0 {

/// `send_counts[r]` elements go to rank r, `receive_counts[r]` come from it; both empty: equal
/// shares.
struct exchange_options {
  std::span<const std::int64_t> send_counts{};
  std::span<const std::int64_t> receive_counts{};
  rankcast::timeout timeout{};
  rankcast::completion completion = completion::group_default;
};

/// Of send and receive. Tags are the user's; library traffic never meets them.
struct message_options {
  int tag = 0;
  rankcast::timeout timeout{};
};

namespace detail {

template <class Send, class Receive>
operation exchange_operation(const Send& send, Receive&& receive, call_site where) {
  operation op;
  op.code = opcode::all_to_all;
  op.send = read_buffer(send);
  op.receive = write_buffer(std::forward<Receive>(receive));
  op.where = where;
  return op;
}

inline operation message_operation(opcode code, int peer, int tag, call_site where) {
  operation op;
  op.code = code;
  op.root = peer;
  op.tag = tag;
  op.where = where;
  return op;
}

}  // namespace detail

/// The r-th share of each rank's values goes to rank r.
///
/// Shape    send, receive: n equal shares, or as the counts say; both may be the same range.
/// Errors   usage_error (sizes that do not add up, overlap in part); mismatch_error (shares that do
///          not fit between a pair); timeout_error, peer_lost_error, revoked_error.
/// Cost     every rank reads one share of each other; in place the send buffer is copied once.
/// Source   MPI 4.0, 6.8 (MPI_Alltoall, MPI_Alltoallv).
template <readable_data Send, class Receive>
  requires writable_data<Receive>
void all_to_all(const communicator& comm, const Send& send, Receive&& receive,
                exchange_options options = {}, call_site where = call_site::here()) {
  auto op = detail::exchange_operation(send, std::forward<Receive>(receive), where);
  const auto send_counts = detail::scaled(options.send_counts, detail::count_scale<Send>());
  const auto receive_counts =
      detail::scaled(options.receive_counts, detail::count_scale<Receive>());
  op.counts = send_counts;
  op.receive_counts = receive_counts;
  comm.run(op, detail::common(options));
}

/// The same, started. Both buffers are borrowed until the work is done.
template <readable_data Send, class Receive>
  requires writable_data<Receive>
[[nodiscard]] work start_all_to_all(const communicator& comm, const Send& send, Receive&& receive,
                                    exchange_options options = {},
                                    call_site where = call_site::here()) {
  auto op = detail::exchange_operation(send, std::forward<Receive>(receive), where);
  const auto send_counts = detail::scaled(options.send_counts, detail::count_scale<Send>());
  const auto receive_counts =
      detail::scaled(options.receive_counts, detail::count_scale<Receive>());
  op.counts = send_counts;
  op.receive_counts = receive_counts;
  return comm.start(op, detail::common(options));
}

/// Sends values to rank `peer`, which calls receive with the same number of elements and dtype.
/// First in, first out per pair and tag. Small data is copied and the call returns; large data
/// waits until the peer has read it.
///
/// Errors   usage_error (peer outside the group, negative tag); mismatch_error (sizes or dtypes
///          differ, on both sides while the sender still waits); timeout_error, which withdraws the
///          message and leaves the group as it is (between processes it may have been taken at that
///          very moment); peer_lost_error, revoked_error.
/// Cost     one message; small ones are copied twice, large ones once.
/// Source   MPI 4.0, 3.2 (MPI_Send).
template <readable_data T>
void send(const communicator& comm, const T& data, int peer, message_options options = {},
          call_site where = call_site::here()) {
  auto op = detail::message_operation(opcode::send, peer, options.tag, where);
  op.send = read_buffer(data);
  comm.run(op, {.timeout = options.timeout});
}

/// The same, started. `data` is borrowed until the work is done.
template <readable_data T>
[[nodiscard]] work start_send(const communicator& comm, const T& data, int peer,
                              message_options options = {}, call_site where = call_site::here()) {
  auto op = detail::message_operation(opcode::send, peer, options.tag, where);
  op.send = read_buffer(data);
  return comm.start(op, {.timeout = options.timeout});
}

/// Receives values that rank `peer` sends with the same tag.
///
/// Errors   as send; after a timeout_error the group is as it was, and so is the buffer (between
///          processes: unless the message was on its way already, then it has come in part).
/// Source   MPI 4.0, 3.2 (MPI_Recv).
template <class T>
  requires writable_data<T>
void receive(const communicator& comm, T&& data, int peer, message_options options = {},
             call_site where = call_site::here()) {
  auto op = detail::message_operation(opcode::receive, peer, options.tag, where);
  op.receive = write_buffer(std::forward<T>(data));
  comm.run(op, {.timeout = options.timeout});
}

/// The same, started. `data` is borrowed until the work is done.
template <class T>
  requires writable_data<T>
[[nodiscard]] work start_receive(const communicator& comm, T&& data, int peer,
                                 message_options options = {},
                                 call_site where = call_site::here()) {
  auto op = detail::message_operation(opcode::receive, peer, options.tag, where);
  op.receive = write_buffer(std::forward<T>(data));
  return comm.start(op, {.timeout = options.timeout});
}

}  // namespace rankcast::inline v0
