/// gather_object and all_gather_object: an object of every rank, at one rank or at all.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "rankcast/object/ends.hpp"

namespace rankcast::inline v0 {

namespace detail {

template <class T>
struct gather_object_call : object_call<object_source<T>, objects_sink<T>> {
  gather_object_call(const communicator& comm, const T& mine, std::vector<T>& into, opcode code,
                     int root, call_site where) {
    this->op = object_operation<T>(code, root, where);
    this->source.emplace(mine);
    const int me = comm.rank(code);
    if (code == opcode::all_gather || me == root) this->sink.emplace(into, comm.size());
    else into.clear();
  }
};

}  // namespace detail

/// Gathers an object of every rank at the root, over those that `into` has there. `into` becomes
/// empty elsewhere.
///
/// Shape    into, at the root: one object for each rank, in rank order.
/// Errors   as broadcast_object. A rank whose encoder throws is named to the root, and with
///          completion::everyone to all.
/// Cost     one message from each rank, decoded in rank order as they come.
template <class T>
void gather_object(const communicator& comm, const T& mine, std::vector<T>& into,
                   rooted_options options = {}, call_site where = call_site::here()) {
  detail::gather_object_call<T> call(comm, mine, into, opcode::gather, options.root, where);
  detail::run_object_call(comm, call, options);
}

/// The same, started. `mine` and `into` are borrowed until the work is done.
template <class T>
[[nodiscard]] work start_gather_object(const communicator& comm, const T& mine,
                                       std::vector<T>& into, rooted_options options = {},
                                       call_site where = call_site::here()) {
  return detail::start_object_call(comm,
                                   std::make_shared<detail::gather_object_call<T>>(
                                       comm, mine, into, opcode::gather, options.root, where),
                                   options);
}

/// The same by value: the objects at the root, none elsewhere.
template <class T>
[[nodiscard]] std::vector<T> gather_object(const communicator& comm, const T& mine,
                                           rooted_options options = {},
                                           call_site where = call_site::here()) {
  std::vector<T> all;
  gather_object(comm, mine, all, options, where);
  return all;
}

/// Gathers an object of every rank at all ranks, over those that `into` has.
///
/// Shape    into: one object for each rank, in rank order.
/// Errors   as gather_object.
/// Cost     every rank's object is encoded once and decoded by all, its own rank included.
template <class T>
void all_gather_object(const communicator& comm, const T& mine, std::vector<T>& into,
                       call_options options = {}, call_site where = call_site::here()) {
  detail::gather_object_call<T> call(comm, mine, into, opcode::all_gather, -1, where);
  detail::run_object_call(comm, call, options);
}

/// The same, started. `mine` and `into` are borrowed until the work is done.
template <class T>
[[nodiscard]] work start_all_gather_object(const communicator& comm, const T& mine,
                                           std::vector<T>& into, call_options options = {},
                                           call_site where = call_site::here()) {
  return detail::start_object_call(comm,
                                   std::make_shared<detail::gather_object_call<T>>(
                                       comm, mine, into, opcode::all_gather, -1, where),
                                   options);
}

/// The same by value.
template <class T>
[[nodiscard]] std::vector<T> all_gather_object(const communicator& comm, const T& mine,
                                               call_options options = {},
                                               call_site where = call_site::here()) {
  std::vector<T> all;
  all_gather_object(comm, mine, all, options, where);
  return all;
}

}  // namespace rankcast::inline v0
