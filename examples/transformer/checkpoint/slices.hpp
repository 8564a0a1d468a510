/// A rank's own part of a stored tensor, copied and converted straight from the mapped file: only
/// the pages of the part are read, and no other copy of the tensor is ever made.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>

#include "rankcast/core/partition.hpp"
#include "rankcast/core/tensor.hpp"
#include "transformer/checkpoint/safetensors.hpp"

namespace rankcast::transformer {

namespace detail {

inline float widen(float value) noexcept {
  return value;
}
inline float widen(bfloat16 value) noexcept {
  return value;
}

/// float16's own conversion returns early for the rare kinds, which keeps compilers from making
/// vectors of a loop over it; this one computes all three and picks.
inline float widen(float16 value) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffU;
  const std::uint32_t normal = (magnitude << 13) + 0x38000000U;
  const std::uint32_t not_finite = (magnitude << 13) | 0x7f800000U;
  const auto units = static_cast<float>(static_cast<std::int32_t>(magnitude));
  const auto subnormal = std::bit_cast<std::uint32_t>(units * 0x1p-24F);  // exact
  const std::uint32_t finite = magnitude >= 0x400U ? normal : subnormal;
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00U ? not_finite : finite));
}

/// `count` elements from an address of any alignment, rounded to nearest even where the target is
/// narrower. Branch-free in the body, so that compilers make vectors of it.
template <class Source, class Target>
void convert_elements(const std::byte* source, std::byte* target, std::int64_t count) {
  if constexpr (std::is_same_v<Source, Target>) {  // bit for bit, NaNs too
    std::memcpy(target, source, static_cast<std::size_t>(count) * sizeof(Source));
  } else {
    auto* const out = reinterpret_cast<Target*>(target);
    for (std::int64_t i = 0; i < count; ++i) {
      Source value;
      std::memcpy(static_cast<void*>(&value), source + i * std::int64_t{sizeof(Source)},
                  sizeof(Source));
      out[i] = Target(widen(value));
    }
  }
}

using converter = void (*)(const std::byte*, std::byte*, std::int64_t);

/// nullptr where rankcast does not convert between the two.
inline converter find_converter(dtype source, dtype target) {
  const auto to = [source](auto tag) -> converter {
    using Target = typename decltype(tag)::type;
    switch (source) {
      case dtype::float32: return &convert_elements<float, Target>;
      case dtype::bfloat16: return &convert_elements<bfloat16, Target>;
      case dtype::float16: return &convert_elements<float16, Target>;
      default: return nullptr;
    }
  };
  if (target == dtype::float32) return to(type_tag<float>{});
  if (target == dtype::bfloat16) return to(type_tag<bfloat16>{});
  return nullptr;
}

inline std::string describe(const stored_tensor& source) {
  return source.file + ": tensor " + in_quotes(source.name);
}

}  // namespace detail

/// Throws decode_error, naming tensor, file, wanted and found shape, unless the shapes are equal.
inline void check_shape(const stored_tensor& source, std::span<const std::int64_t> wanted) {
  const std::span<const std::int64_t> found = source.layout.shape_span();
  if (std::equal(found.begin(), found.end(), wanted.begin(), wanted.end())) return;
  throw decode_error(detail::describe(source) + " has shape " + layout::text(found) +
                     ", but the model's configuration wants " + layout::text(wanted));
}

/// Copies parts of dimension `dimension` (0 or 1) of a stored tensor, one after the other, into
/// `target`:
///   wanted: [rows, columns] or [n], the whole tensor's shape as the configuration gives it
///   target: the same, with `dimension` as long as all parts together; float32 or bfloat16, its
///           last dimension contiguous (its rows may lie apart)
/// Several parts serve fused tensors: query, key and value, or gate and up, each cut on its own.
/// float32, bfloat16 and float16 are converted, rounded to nearest even; a NaN stays one.
/// Throws decode_error (shape or dtype of the file), usage_error (the caller's arguments).
/// Cost: reads the parts once, writes them once, allocates nothing.
inline void copy_slices(const stored_tensor& source, std::span<const std::int64_t> wanted,
                        int dimension, std::span<const slice> parts, tensor_view target) {
  check_shape(source, wanted);
  const int dimensions = source.layout.dimensions;
  const auto refuse = [&](const std::string& what) {
    throw usage_error(detail::describe(source) + ": copy_slices: " + what);
  };
  if (dimensions < 1 || dimensions > 2 || dimension < 0 || dimension >= dimensions) {
    refuse("dimension " + std::to_string(dimension) + " of shape " + source.layout.text());
  }
  std::int64_t together = 0;
  for (const slice& part : parts) {
    if (part.first < 0 || part.count < 0 ||
        part.first > source.layout.extent(dimension) - part.count) {
      refuse("part [" + std::to_string(part.first) + ", +" + std::to_string(part.count) +
             ") of dimension " + std::to_string(dimension) + " is outside of " +
             source.layout.text());
    }
    together += part.count;
  }
  for (int d = 0; d < std::max(dimensions, target.dimensions()); ++d) {
    const bool is_good = target.dimensions() == dimensions &&
                         target.extent(d) == (d == dimension ? together : source.layout.extent(d));
    if (!is_good) refuse("the parts of " + source.layout.text() + " do not fill " + target.text());
  }
  const detail::converter convert = detail::find_converter(source.dtype, target.dtype());
  if (convert == nullptr) {
    throw decode_error(detail::describe(source) + " is " + std::string(name(source.dtype)) +
                       " and is wanted as " + std::string(name(target.dtype())) +
                       ": only float32, bfloat16 and float16 become float32 or bfloat16");
  }
  if (target.elements() == 0) return;
  if (target.extent(dimensions - 1) > 1 && target.layout().stride(dimensions - 1) != 1) {
    refuse("the last dimension of the target is not contiguous");
  }

  const auto source_bytes = static_cast<std::int64_t>(size_of(source.dtype));
  const auto target_bytes = static_cast<std::int64_t>(size_of(target.dtype()));
  const bool is_matrix = dimensions == 2;
  const std::int64_t columns = source.layout.extent(dimensions - 1);
  const std::int64_t stride = is_matrix ? target.layout().stride(0) : 0;
  std::byte* const out = target.address();

  if (is_matrix && dimension == 0) {
    std::int64_t row = 0;
    for (const slice& part : parts) {
      for (std::int64_t r = part.first; r < part.end(); ++r, ++row) {
        convert(source.data + r * columns * source_bytes, out + row * stride * target_bytes,
                columns);
      }
    }
    return;
  }
  const std::int64_t rows = is_matrix ? source.layout.extent(0) : 1;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t column = r * stride;
    for (const slice& part : parts) {
      if (part.count == 0) continue;
      convert(source.data + (r * columns + part.first) * source_bytes, out + column * target_bytes,
              part.count);
      column += part.count;
    }
  }
}

/// The same with lists written in place.
inline void copy_slices(const stored_tensor& source, std::initializer_list<std::int64_t> wanted,
                        int dimension, std::initializer_list<slice> parts, tensor_view target) {
  copy_slices(source, std::span<const std::int64_t>(wanted.begin(), wanted.size()), dimension,
              std::span<const slice>(parts.begin(), parts.size()), target);
}

/// A whole tensor of one or two dimensions: a norm's weight, a bias that every rank holds.
/// Throws and costs as `copy_slices`.
inline void copy_whole(const stored_tensor& source, std::span<const std::int64_t> wanted,
                       tensor_view target) {
  check_shape(source, wanted);
  const slice all{0, wanted.empty() ? 0 : wanted.front()};
  copy_slices(source, wanted, 0, std::span<const slice>(&all, 1), target);
}
inline void copy_whole(const stored_tensor& source, std::initializer_list<std::int64_t> wanted,
                       tensor_view target) {
  copy_whole(source, std::span<const std::int64_t>(wanted.begin(), wanted.size()), target);
}

}  // namespace rankcast::transformer
