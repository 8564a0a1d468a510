/// Codec of rankcast::tensor: type, shape, and its elements, out of band where possible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "rankcast/core/tensor.hpp"
#include "rankcast/object/archive.hpp"

namespace rankcast::inline v0 {

template <>
struct codec<tensor> {
  static constexpr bool native = true;

  static void save(oarchive& out, const tensor& t) {
    const const_tensor_view view = t.view();
    if (view.memory() != memory_kind::host) {
      throw usage_error("object: a tensor of " + view.text() +
                        " lies in the memory of a device; copy it to the host first");
    }
    out.put(static_cast<std::uint8_t>(view.dtype()));
    out.put(static_cast<std::uint8_t>(view.dimensions()));
    for (const std::int64_t extent : view.shape()) out.put(extent);
    out.bulk(&t, view.address(), view.bytes());
  }

  /// Keeps the tensor's memory if it is large enough.
  static void load(iarchive& in, tensor& t) {
    std::uint8_t type = 0;
    std::uint8_t dimensions = 0;
    in.get(type);
    if (type >= dtype_count) in.fail("dtype " + std::to_string(type) + " of a tensor");
    in.get(dimensions);
    if (dimensions > max_dimensions) {
      in.fail("a tensor of " + std::to_string(dimensions) + " dimensions");
    }
    std::array<std::int64_t, max_dimensions> extents{};
    for (std::size_t d = 0; d < dimensions; ++d) in.get(extents[d]);
    const std::span<const std::int64_t> shape(extents.data(), dimensions);
    const iarchive::extent data = in.bulk<std::byte>();
    if (elements(in, shape) != data.elements / size_of(dtype{type}) ||
        data.elements % size_of(dtype{type}) != 0) {
      in.fail(std::to_string(data.elements) + " bytes for a tensor of " +
              std::string(name(dtype{type})) + " " + layout::text(shape));
    }
    t.resize(dtype{type}, shape);
    if (dtype{type} == dtype::boolean) {
      in.fetch(data, reinterpret_cast<bool*>(t.view().address()));
    } else {
      in.fetch(data, t.view().address());
    }
  }

 private:
  static std::uint64_t elements(iarchive& in, std::span<const std::int64_t> shape) {
    try {
      return static_cast<std::uint64_t>(layout::contiguous(shape).elements());
    } catch (const usage_error& e) {  // here it is the bytes that are wrong
      in.fail(e.what());
    }
  }
};

}  // namespace rankcast::inline v0
