/// scatter_object: one object of the root's to each rank.
#pragma once

#include <iterator>
#include <memory>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>

#include "rankcast/object/ends.hpp"

namespace rankcast::inline v0 {

namespace detail {

// What the root scatters: a range of T, or `nothing` where this rank is known not to be the root.
template <class Items, class T>
concept objects_to_scatter = std::is_same_v<Items, nothing_t> ||
    (std::ranges::forward_range<const Items&>&& std::ranges::sized_range<const Items&>&&
         std::is_same_v<std::ranges::range_value_t<const Items&>, T>);

template <class T, class Items>
struct scatter_object_call : object_call<objects_source<T, Items>, object_sink<T>> {
  scatter_object_call(const communicator& comm, const Items& items, T& mine, int root,
                      call_site where) {
    this->op = object_operation<T>(opcode::scatter, root, where);
    this->sink.emplace(mine);
    if (comm.rank(opcode::scatter) != root) return;
    if constexpr (std::is_same_v<Items, nothing_t>) {
      comm.refuse(this->ready(), "the root gives nothing to scatter");
    } else {
      const auto count = std::ranges::size(items);
      if (count != static_cast<std::size_t>(comm.size())) {
        comm.refuse(this->ready(), "the root, rank " + std::to_string(root) + ", gave " +
                                       std::to_string(count) + " objects for a group of " +
                                       std::to_string(comm.size()));
      }
      this->source.emplace(items);
    }
  }
};
template <class T>
class objects_source<T, nothing_t> final : public message_source {
 public:
  void encode(int, message&) override {}
};

}  // namespace detail

/// Gives each rank one of the root's objects, in rank order, over the one it has.
///
/// Shape    items, at the root: as many as the group has ranks; elsewhere ignored (pass `nothing`).
/// Errors   as broadcast_object. usage_error at the root for another number of items, told to all.
/// Cost     one message to each rank; all are encoded before the first leaves.
template <class T, class Items>
  requires detail::objects_to_scatter<Items, T>
void scatter_object(const communicator& comm, const Items& items, T& mine,
                    rooted_options options = {}, call_site where = call_site::here()) {
  detail::scatter_object_call<T, Items> call(comm, items, mine, options.root, where);
  detail::run_object_call(comm, call, options);
}

/// The same, started. `items` and `mine` are borrowed until the work is done.
template <class T, class Items>
  requires detail::objects_to_scatter<Items, T>
[[nodiscard]] work start_scatter_object(const communicator& comm, const Items& items, T& mine,
                                        rooted_options options = {},
                                        call_site where = call_site::here()) {
  return detail::start_object_call(comm,
                                   std::make_shared<detail::scatter_object_call<T, Items>>(
                                       comm, items, mine, options.root, where),
                                   options);
}

/// The same by value.
template <class T, class Items>
  requires detail::objects_to_scatter<Items, T>
[[nodiscard]] T scatter_object(const communicator& comm, const Items& items, expect_t<T>,
                               rooted_options options = {}, call_site where = call_site::here()) {
  T mine{};
  scatter_object(comm, items, mine, options, where);
  return mine;
}

}  // namespace rankcast::inline v0
