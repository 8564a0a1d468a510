/// The two ends of a message that is an object: what encodes it and what decodes it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "rankcast/collectives/options.hpp"
#include "rankcast/object/frame.hpp"

namespace rankcast::inline v0 {

/// Stands for an object that a rank does not have yet: `broadcast_object(world, expect<batch>)`.
template <class T>
struct expect_t {};
template <class T>
inline constexpr expect_t<T> expect{};

namespace detail {

template <class T>
class object_source final : public message_source {
 public:
  explicit object_source(const T& object) noexcept : object_(object) {}
  void encode(int, message& out) override { encode_frame(object_, out); }

 private:
  const T& object_;
};

template <class T>
class object_sink final : public message_sink {
 public:
  explicit object_sink(T& object) noexcept : object_(object) {}
  void decode(int, std::span<const std::byte> header, segment_reader& segments) override {
    decode_frame(object_, header, &segments);
  }

 private:
  T& object_;
};

// One of several objects for each rank.
template <class T, class Items>
class objects_source final : public message_source {
 public:
  explicit objects_source(const Items& items) noexcept : items_(items) {}
  void encode(int to, message& out) override {
    const T& item = *std::next(std::ranges::begin(items_), to);
    encode_frame(item, out);
  }

 private:
  const Items& items_;
};

// An object of each rank, over those that are there.
template <class T>
class objects_sink final : public message_sink {
 public:
  objects_sink(std::vector<T>& objects, int ranks) : objects_(objects) {
    objects_.resize(static_cast<std::size_t>(ranks));
  }
  void decode(int from, std::span<const std::byte> header, segment_reader& segments) override {
    decode_frame(objects_[static_cast<std::size_t>(from)], header, &segments);
  }

 private:
  std::vector<T>& objects_;
};

// A call with its ends, in one place that does not move: on the stack while a blocking call runs,
// kept by the work of a started one.
template <class Source, class Sink>
struct object_call {
  std::optional<Source> source;
  std::optional<Sink> sink;
  operation op;

  object_call() = default;
  object_call(const object_call&) = delete;
  object_call& operator=(const object_call&) = delete;

  // Only what this rank has a part in was made.
  [[nodiscard]] operation& ready() {
    op.source = source ? &*source : nullptr;
    op.sink = sink ? &*sink : nullptr;
    return op;
  }
};

template <class Call, class Options>
void run_object_call(const communicator& comm, Call& call, const Options& options) {
  comm.run(call.ready(), common(options));
}
template <class Call, class Options>
work start_object_call(const communicator& comm, std::shared_ptr<Call> call,
                       const Options& options) {
  const operation& op = call->ready();
  return comm.start(op, common(options), std::move(call));
}

template <class T>
operation object_operation(opcode code, int root, call_site where) {
  operation op;
  op.code = code;
  op.root = root;
  op.where = where;
  op.message_type = message_type_of<T>();
  return op;
}

}  // namespace detail

}  // namespace rankcast::inline v0
