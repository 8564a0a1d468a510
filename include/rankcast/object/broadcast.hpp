/// broadcast_object: one rank's object to all.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "rankcast/object/ends.hpp"

namespace rankcast::inline v0 {

namespace detail {

template <class T>
struct broadcast_object_call : object_call<object_source<T>, object_sink<T>> {
  broadcast_object_call(const communicator& comm, T& object, int root, call_site where) {
    this->op = object_operation<T>(opcode::broadcast, root, where);
    if (comm.rank(opcode::broadcast) == root) this->source.emplace(object);
    else this->sink.emplace(object);
  }
};

}  // namespace detail

/// Copies the root's object over everybody else's, in place: what their objects have of memory is
/// used again. The root's object is not copied.
///
/// Errors   as broadcast. mismatch_error when ranks name different types. What the root's encoder
///          throws the root keeps, the others get remote_error; what a decoder throws
///          (decode_error) its rank keeps, and, with completion::everyone, the others get
///          remote_error. The object of a rank that threw is valid, of no particular value.
/// Cost     one message. Small: encoded into the message itself. Bulk data (64 KiB and more in one
///          piece) are read where they lie and written where they go, not copied in between.
template <class T>
void broadcast_object(const communicator& comm, T& object, rooted_options options = {},
                      call_site where = call_site::here()) {
  detail::broadcast_object_call<T> call(comm, object, options.root, where);
  detail::run_object_call(comm, call, options);
}

/// The same, started. `object` is borrowed until the work is done.
template <class T>
[[nodiscard]] work start_broadcast_object(const communicator& comm, T& object,
                                          rooted_options options = {},
                                          call_site where = call_site::here()) {
  return detail::start_object_call(
      comm, std::make_shared<detail::broadcast_object_call<T>>(comm, object, options.root, where),
      options);
}

/// By value: the root gives an object and gets it back, the others say what they expect.
///
///     auto batch = world.rank() == 0 ? rankcast::broadcast_object(world, read_batch())
///                                    : rankcast::broadcast_object(world, rankcast::expect<Batch>);
///
/// Errors   as the form in place; usage_error on a rank that gives an object and is not the root.
template <class T>
  requires(!std::is_reference_v<T> && !std::is_const_v<T>)
[[nodiscard]] T broadcast_object(const communicator& comm, T&& object, rooted_options options = {},
                                 call_site where = call_site::here()) {
  detail::broadcast_object_call<T> call(comm, object, options.root, where);
  if (call.sink) comm.refuse(call.ready(), "only the root gives an object, others expect one");
  detail::run_object_call(comm, call, options);
  return std::move(object);
}
template <class T>
[[nodiscard]] T broadcast_object(const communicator& comm, expect_t<T>, rooted_options options = {},
                                 call_site where = call_site::here()) {
  T object{};
  detail::broadcast_object_call<T> call(comm, object, options.root, where);
  if (call.source) comm.refuse(call.ready(), "the root has to give an object");
  detail::run_object_call(comm, call, options);
  return object;
}

}  // namespace rankcast::inline v0
