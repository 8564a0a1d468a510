/// reduce, all_reduce and reduce_scatter: every rank's values folded element by element, in rank
/// order. The result is the same bit for bit on all ranks and from run to run; bfloat16 and float16
/// are folded in float and rounded once.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "rankcast/collectives/options.hpp"

namespace rankcast::inline v0 {

namespace detail {

// The element type is known here for ranges; for tensors it is found at run time.
template <class T, class F>
reduction reduction_for(const buffer& values, const F& callable) {
  using U = std::remove_cvref_t<T>;
  if constexpr (std::ranges::range<U>) {
    return erase_reduction<std::ranges::range_value_t<U>>(callable);
  } else if constexpr (is_tensor_like<U>) {
    if (values.type == dtype::bytes) return {};
    return visit(values.type, "reduction", [&](auto tag) -> reduction {
      using E = typename decltype(tag)::type;
      if constexpr (reduces<F, E>) return erase_reduction<E>(callable);
      else return {};
    });
  } else if constexpr (std::is_same_v<U, nothing_t>) {
    return {};
  } else {
    return erase_reduction<U>(callable);
  }
}

template <class T>
concept reducible_data = [] {
  using U = std::remove_cvref_t<T>;
  if constexpr (std::ranges::range<U>) return element<std::ranges::range_value_t<U>>;
  else return is_tensor_like<U> || element<U>;
}();

// A callable in the place of data: `all_reduce(comm, data, f)` folds in place. A lambda that
// captures values is trivially copyable too, and would pass as a receive buffer of opaque bytes.
template <class F>
concept folding = std::invocable<const F&, double, double> ||
    std::invocable<const F&, std::int64_t, std::int64_t>;

template <class T>
concept no_folding = !folding<std::remove_cvref_t<T>>;

template <class F, class T>
consteval bool folds_values_of() {
  using U = std::remove_cvref_t<T>;
  if constexpr (is_tensor_like<U>) return true;
  else if constexpr (std::ranges::range<U>) return reduces<F, std::ranges::range_value_t<U>>;
  else return reduces<F, U>;
}

template <class Send, class Receive, class F>
operation reduce_operation(const communicator& comm, const Send& send, Receive&& receive,
                           const F& callable, opcode code, int root, call_site where) {
  operation op;
  op.code = code;
  op.root = root;
  op.send = read_buffer(send);
  op.receive = write_buffer(std::forward<Receive>(receive));
  op.where = where;
  op.reduction = reduction_for<Send>(op.send, callable);
  if (op.reduction.fold == nullptr) {
    comm.refuse(op, "the reduction cannot fold elements of " + std::string(name(op.send.type)));
  }
  return op;
}

}  // namespace detail

/// Data whose elements a callable folds: tensors (checked at run time), ranges and single values.
template <class F, class T>
concept folds = readable_data<T> && detail::reducible_data<T> && detail::folds_values_of<F, T>();

/// Folds every rank's values at the root: out[i] = f(... f(f(x0[i], x1[i]), x2[i]) ...).
///
/// Shape    send: [m], the same everywhere. receive, at the root: [m]; elsewhere ignored (pass
///          `nothing`); may be the send buffer itself.
/// Errors   usage_error (root, sizes, a callable that cannot fold the dtype), told to all ranks;
///          mismatch_error (root, elements, dtype, reduction); timeout_error, peer_lost_error,
///          revoked_error; what the callable throws.
/// Cost     the root reads all; no allocation.
/// Source   MPI 4.0, 6.9 (MPI_Reduce).
template <class Send, class Receive, class F = sum_t>
  requires folds<F, Send> && writable_data<Receive>
void reduce(const communicator& comm, const Send& send, Receive&& receive, const F& callable = {},
            rooted_options options = {}, call_site where = call_site::here()) {
  auto op = detail::reduce_operation(comm, send, std::forward<Receive>(receive), callable,
                                     opcode::reduce, options.root, where);
  if (comm.rank(op.code) != options.root) op.receive = {};
  comm.run(op, detail::common(options));
}

/// The same, started. Buffers are borrowed until the work is done; the callable is copied.
template <class Send, class Receive, class F = sum_t>
  requires folds<F, Send> && writable_data<Receive>
[[nodiscard]] work start_reduce(const communicator& comm, const Send& send, Receive&& receive,
                                const F& callable = {}, rooted_options options = {},
                                call_site where = call_site::here()) {
  auto kept = std::make_shared<const F>(callable);
  auto op = detail::reduce_operation(comm, send, std::forward<Receive>(receive), *kept,
                                     opcode::reduce, options.root, where);
  if (comm.rank(op.code) != options.root) op.receive = {};
  return comm.start(op, detail::common(options), kept);
}

/// Folds every rank's values, the result to all.
///
/// Shape    send, receive: [m], the same everywhere; receive may be the send buffer itself.
/// Errors   as reduce.
/// Cost     small: every rank reads all. Large: each rank folds one slice and reads the others'
///          slices, 2 * bytes read per rank; no allocation.
/// Source   MPI 4.0, 6.9.6 (MPI_Allreduce).
template <class Send, class Receive, class F = sum_t>
  requires folds<F, Send> && writable_data<Receive> && detail::no_folding<Receive>
void all_reduce(const communicator& comm, const Send& send, Receive&& receive,
                const F& callable = {}, call_options options = {},
                call_site where = call_site::here()) {
  comm.run(detail::reduce_operation(comm, send, std::forward<Receive>(receive), callable,
                                    opcode::all_reduce, -1, where),
           options);
}

/// The same, started. Buffers are borrowed until the work is done; the callable is copied.
template <class Send, class Receive, class F = sum_t>
  requires folds<F, Send> && writable_data<Receive> && detail::no_folding<Receive>
[[nodiscard]] work start_all_reduce(const communicator& comm, const Send& send, Receive&& receive,
                                    const F& callable = {}, call_options options = {},
                                    call_site where = call_site::here()) {
  auto kept = std::make_shared<const F>(callable);
  return comm.start(detail::reduce_operation(comm, send, std::forward<Receive>(receive), *kept,
                                             opcode::all_reduce, -1, where),
                    options, kept);
}

/// In place: every rank's `data` becomes the result.
template <class T, class F = sum_t>
  requires folds<F, std::remove_cvref_t<T>> && writable_data<T> && detail::folding<F>
void all_reduce(const communicator& comm, T&& data, const F& callable = {},
                call_options options = {}, call_site where = call_site::here()) {
  comm.run(detail::reduce_operation(comm, data, std::forward<T>(data), callable, opcode::all_reduce,
                                    -1, where),
           options);
}

/// all_reduce in place, started. `data` is borrowed until the work is done; the callable is copied.
template <class T, class F = sum_t>
  requires folds<F, std::remove_cvref_t<T>> && writable_data<T> && detail::folding<F>
[[nodiscard]] work start_all_reduce(const communicator& comm, T&& data, const F& callable = {},
                                    call_options options = {},
                                    call_site where = call_site::here()) {
  auto kept = std::make_shared<const F>(callable);
  return comm.start(detail::reduce_operation(comm, data, std::forward<T>(data), *kept,
                                             opcode::all_reduce, -1, where),
                    options, kept);
}

/// Folds every rank's values and leaves the r-th share of the result at rank r.
///
/// Shape    send: [sum of counts] or n times the receive buffer. receive: [counts[rank]] or an
///          equal share. counts: the same on all ranks. A rank may receive into its own share of
///          `send`.
/// Errors   as reduce.
/// Cost     every rank reads its share of all; no allocation.
/// Source   MPI 4.0, 6.10 (MPI_Reduce_scatter, MPI_Reduce_scatter_block).
template <class Send, class Receive, class F = sum_t>
  requires folds<F, Send> && writable_data<Receive>
void reduce_scatter(const communicator& comm, const Send& send, Receive&& receive,
                    const F& callable = {}, share_options options = {},
                    call_site where = call_site::here()) {
  auto op = detail::reduce_operation(comm, send, std::forward<Receive>(receive), callable,
                                     opcode::reduce_scatter, -1, where);
  op.counts = options.counts;
  comm.run(op, detail::common(options));
}

/// The same, started. Buffers are borrowed until the work is done; the callable is copied.
template <class Send, class Receive, class F = sum_t>
  requires folds<F, Send> && writable_data<Receive>
[[nodiscard]] work start_reduce_scatter(const communicator& comm, const Send& send,
                                        Receive&& receive, const F& callable = {},
                                        share_options options = {},
                                        call_site where = call_site::here()) {
  auto kept = std::make_shared<const F>(callable);
  auto op = detail::reduce_operation(comm, send, std::forward<Receive>(receive), *kept,
                                     opcode::reduce_scatter, -1, where);
  op.counts = options.counts;
  return comm.start(op, detail::common(options), kept);
}

}  // namespace rankcast::inline v0
