/// send_object and receive_object: an object from one rank to another.
#pragma once

#include <memory>
#include <utility>

#include "rankcast/collectives/exchange.hpp"
#include "rankcast/object/ends.hpp"

namespace rankcast::inline v0 {

namespace detail {

template <class T>
struct send_object_call : object_call<object_source<T>, object_sink<T>> {
  send_object_call(const T& object, int peer, int tag, call_site where) {
    this->op = object_operation<T>(opcode::send, peer, where);
    this->op.tag = tag;
    this->source.emplace(object);
  }
};
template <class T>
struct receive_object_call : object_call<object_source<T>, object_sink<T>> {
  receive_object_call(T& object, int peer, int tag, call_site where) {
    this->op = object_operation<T>(opcode::receive, peer, where);
    this->op.tag = tag;
    this->sink.emplace(object);
  }
};

}  // namespace detail

/// Sends an object to rank `peer`, which calls receive_object with the same type. First in, first
/// out per pair and tag, in one order with send. A small object is copied and the call returns; a
/// large one is waited for until the peer has read it.
///
/// Errors   as send. What the encoder throws this rank keeps, and the peer gets remote_error; what
///          the peer's decoder throws comes as remote_error to a sender that still waits.
/// Cost     one message.
template <class T>
void send_object(const communicator& comm, const T& object, int peer, message_options options = {},
                 call_site where = call_site::here()) {
  detail::send_object_call<T> call(object, peer, options.tag, where);
  comm.run(call.ready(), {.timeout = options.timeout});
}

/// The same, started. `object` is borrowed until the work is done.
template <class T>
[[nodiscard]] work start_send_object(const communicator& comm, const T& object, int peer,
                                     message_options options = {},
                                     call_site where = call_site::here()) {
  auto call = std::make_shared<detail::send_object_call<T>>(object, peer, options.tag, where);
  return comm.start(call->ready(), {.timeout = options.timeout}, call);
}

/// Receives an object that rank `peer` sends with the same tag, over the one that is there.
///
/// Errors   as receive; decode_error, after which the object is valid but of no particular value.
template <class T>
void receive_object(const communicator& comm, T& object, int peer, message_options options = {},
                    call_site where = call_site::here()) {
  detail::receive_object_call<T> call(object, peer, options.tag, where);
  comm.run(call.ready(), {.timeout = options.timeout});
}

/// The same, started. `object` is borrowed until the work is done.
template <class T>
[[nodiscard]] work start_receive_object(const communicator& comm, T& object, int peer,
                                        message_options options = {},
                                        call_site where = call_site::here()) {
  auto call = std::make_shared<detail::receive_object_call<T>>(object, peer, options.tag, where);
  return comm.start(call->ready(), {.timeout = options.timeout}, call);
}

/// The same by value.
template <class T>
[[nodiscard]] T receive_object(const communicator& comm, expect_t<T>, int peer,
                               message_options options = {}, call_site where = call_site::here()) {
  T object{};
  receive_object(comm, object, peer, options, where);
  return object;
}

}  // namespace rankcast::inline v0
