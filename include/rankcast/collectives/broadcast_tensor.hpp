/// Tensors whose type and shape the receivers do not know: one tensor, or a whole named set (a
/// state dict), as one message each.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/collectives/options.hpp"
#include "rankcast/core/bytes.hpp"
#include "rankcast/core/tensor.hpp"

namespace rankcast::inline v0 {

/// A named set of tensors, in the order of their names.
using tensor_map = std::map<std::string, tensor>;

namespace detail {

// Header: count, then per tensor: bytes of the name, name, dtype, dimensions, shape.
struct tensor_description {
  std::string name;
  dtype type = dtype::bytes;
  std::vector<std::int64_t> shape;
};

template <class Bytes>
void write_description(byte_writer<Bytes>& out, const std::string& name, const tensor& t) {
  out.put_text(name);
  out.put(static_cast<std::uint8_t>(t.dtype()));
  out.put(static_cast<std::uint8_t>(t.dimensions()));
  for (const std::int64_t extent : t.shape()) out.put(extent);
}

inline tensor_description read_description(byte_reader& in, std::uint64_t bytes) {
  tensor_description d;
  d.name = in.get_text();
  const auto type = in.get<std::uint8_t>();
  if (type >= dtype_count) {
    throw decode_error("tensor message: '" + d.name + "' has dtype number " + std::to_string(type));
  }
  d.type = static_cast<dtype>(type);
  const auto dimensions = in.get<std::uint8_t>();
  for (int i = 0; i < dimensions; ++i) d.shape.push_back(in.get<std::int64_t>());
  std::int64_t elements = 0;
  try {
    elements = layout::contiguous(d.shape).elements();
  } catch (const usage_error& e) {
    throw decode_error("tensor message: '" + d.name + "': " + e.what());
  }
  if (bytes % size_of(d.type) != 0 ||
      bytes / size_of(d.type) != static_cast<std::uint64_t>(elements)) {
    throw decode_error("tensor message: '" + d.name + "' of " + std::string(name(d.type)) + " " +
                       layout::text(d.shape) + " comes with " + std::to_string(bytes) + " bytes");
  }
  return d;
}

inline std::span<const std::byte> bytes_of(const tensor& t) {
  return {t.view().address(), t.bytes()};
}
inline std::span<std::byte> bytes_of(tensor& t) {
  return {t.view().address(), t.bytes()};
}

// Both ends of a message of tensors: the root reads the set, the others replace theirs.
class tensor_map_message final : public message_source, public message_sink {
 public:
  explicit tensor_map_message(tensor_map& tensors) noexcept : tensors_(tensors) {}
  static constexpr message_type type{0x7e4e0a9c11ab5d01u, "a set of tensors"};

  void encode(int, message& to) override {
    byte_writer out(to.header);
    out.put(static_cast<std::uint64_t>(tensors_.size()));
    for (const auto& [name, t] : tensors_) {
      write_description(out, name, t);
      to.segments.push_back(bytes_of(t));
    }
  }

  void decode(int, std::span<const std::byte> header, segment_reader& segments) override {
    byte_reader in(header, "tensor message");
    if (in.get<std::uint64_t>() != segments.sizes().size()) {
      throw decode_error("tensor message: tensors and segments are not equally many");
    }
    std::map<std::string, tensor_description> descriptions;
    std::vector<std::string> order;
    for (const std::uint64_t bytes : segments.sizes()) {
      tensor_description d = read_description(in, bytes);
      order.push_back(d.name);
      if (!descriptions.emplace(order.back(), std::move(d)).second) {
        throw decode_error("tensor message: the name '" + order.back() + "' appears twice");
      }
    }
    if (!in.rest().empty()) throw decode_error("tensor message: bytes are left after the header");
    // The description is sound. Tensors of the same name keep their memory.
    std::erase_if(tensors_, [&](const auto& t) { return descriptions.count(t.first) == 0; });
    for (const auto& [name, d] : descriptions) tensors_[name].resize(d.type, d.shape);
    for (const std::string& name : order) segments.read(bytes_of(tensors_.find(name)->second));
  }

 private:
  tensor_map& tensors_;
};

class tensor_message final : public message_source, public message_sink {
 public:
  explicit tensor_message(tensor& t) noexcept : tensor_(t) {}
  static constexpr message_type type{0x7e4e0a9c11ab5d02u, "a tensor"};

  void encode(int, message& to) override {
    byte_writer out(to.header);
    write_description(out, "", tensor_);
    to.segments.push_back(bytes_of(std::as_const(tensor_)));
  }
  void decode(int, std::span<const std::byte> header, segment_reader& segments) override {
    if (segments.sizes().size() != 1) {
      throw decode_error("tensor message: " + std::to_string(segments.sizes().size()) +
                         " segments for one tensor");
    }
    byte_reader in(header, "tensor message");
    const tensor_description d = read_description(in, segments.sizes().front());
    tensor_.resize(d.type, d.shape);
    segments.read(bytes_of(tensor_));
  }

 private:
  tensor& tensor_;
};

template <class Message>
operation message_broadcast(const communicator& comm, Message& message, int root, call_site where) {
  operation op;
  op.code = opcode::broadcast;
  op.root = root;
  op.where = where;
  if (comm.rank(op.code) == root) op.source = &message;
  else op.sink = &message;
  op.message_type = Message::type;
  return op;
}

}  // namespace detail

/// Copies the root's tensor to all. The others need know neither type nor shape: their tensor takes
/// them over, in the memory it has where that is large enough.
///
/// Errors   as broadcast; decode_error, std::bad_alloc on the rank that has no room.
/// Cost     one message: a header of 6 + 8 * dimensions bytes and the data, read once per rank.
inline void broadcast_tensor(const communicator& comm, tensor& t, rooted_options options = {},
                             call_site where = call_site::here()) {
  detail::tensor_message message(t);
  comm.run(detail::message_broadcast(comm, message, options.root, where), detail::common(options));
}

/// The same, started. `t` is borrowed until the work is done.
[[nodiscard]] inline work start_broadcast_tensor(const communicator& comm, tensor& t,
                                                 rooted_options options = {},
                                                 call_site where = call_site::here()) {
  auto message = std::make_shared<detail::tensor_message>(t);
  return comm.start(detail::message_broadcast(comm, *message, options.root, where),
                    detail::common(options), message);
}

/// Copies the root's whole set of tensors to all, in one message. The others' sets become the
/// root's: names they have are reused with their memory, names they lack are added, others removed.
///
/// Errors   as broadcast_tensor.
/// Cost     one message: about 20 + name bytes of header per tensor, and the data.
inline void broadcast_tensors(const communicator& comm, tensor_map& tensors,
                              rooted_options options = {}, call_site where = call_site::here()) {
  detail::tensor_map_message message(tensors);
  comm.run(detail::message_broadcast(comm, message, options.root, where), detail::common(options));
}

/// The same, started. `tensors` is borrowed until the work is done.
[[nodiscard]] inline work start_broadcast_tensors(const communicator& comm, tensor_map& tensors,
                                                  rooted_options options = {},
                                                  call_site where = call_site::here()) {
  auto message = std::make_shared<detail::tensor_map_message>(tensors);
  return comm.start(detail::message_broadcast(comm, *message, options.root, where),
                    detail::common(options), message);
}

}  // namespace rankcast::inline v0
