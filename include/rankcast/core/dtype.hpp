/// Element types: their names, sizes and conversions. bfloat16 and float16 are real types that
/// convert with round-to-nearest-even; arithmetic on them is done in float.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "rankcast/core/config.hpp"
#include "rankcast/core/error.hpp"

namespace rankcast::inline v0 {

/// The upper half of a float32: 8 bits of exponent, 7 of mantissa.
struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() noexcept = default;
  constexpr explicit bfloat16(float value) noexcept : bits(round(value)) {}
  constexpr operator float() const noexcept {  // NOLINT: exact, so implicit
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  static constexpr bfloat16 from_bits(std::uint16_t bits) noexcept {
    bfloat16 b;
    b.bits = bits;
    return b;
  }

 private:
  static constexpr std::uint16_t round(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {  // a NaN stays one: rounding could carry it to infinity
      return static_cast<std::uint16_t>((u >> 16) | 0x40u);
    }
    return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

/// IEEE binary16: 5 bits of exponent, 10 of mantissa; largest finite value 65504.
struct float16 {
  std::uint16_t bits = 0;

  constexpr float16() noexcept = default;
  constexpr explicit float16(float value) noexcept : bits(round(value)) {}
  constexpr operator float() const noexcept { return widen(bits); }  // NOLINT: exact, so implicit
  static constexpr float16 from_bits(std::uint16_t bits) noexcept {
    float16 h;
    h.bits = bits;
    return h;
  }

 private:
  static constexpr std::uint16_t round(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000u) {
      half = 0x7e00u;  // NaN
    } else if (magnitude >= 0x47800000u) {
      half = 0x7c00u;                       // 65536 and above, infinity
    } else if (magnitude >= 0x38800000u) {  // normal: drop 13 bits; a carry may reach infinity
      half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    } else if (magnitude >= 0x33000000u) {  // subnormal: units of 2^-24
      const std::uint32_t exponent = magnitude >> 23;
      const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
      const std::uint32_t shift = 126u - exponent;
      const std::uint32_t kept = mantissa >> shift;
      const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
      const std::uint32_t middle = 1u << (shift - 1u);
      half = kept + ((rest > middle || (rest == middle && (kept & 1u) != 0)) ? 1u : 0u);
    }
    return static_cast<std::uint16_t>(sign | half);
  }

  static constexpr float widen(std::uint16_t h) noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
    const std::uint32_t exponent = (h >> 10) & 0x1fu;
    const std::uint32_t mantissa = h & 0x3ffu;
    if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0)
      return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    const float value = static_cast<float>(mantissa) * 0x1p-24f;  // exact
    return sign != 0 ? -value : value;
  }
};

/// What an element is. `bytes` are opaque: they travel but do not reduce.
enum class dtype : std::uint8_t {
  float64,
  float32,
  bfloat16,
  float16,
  int64,
  int32,
  int16,
  int8,
  uint64,
  uint32,
  uint16,
  uint8,
  boolean,
  bytes,
};

inline constexpr int dtype_count = 14;

[[nodiscard]] constexpr std::string_view name(dtype type) noexcept {
  constexpr std::string_view names[dtype_count] = {
      "float64", "float32", "bfloat16", "float16", "int64", "int32", "int16",
      "int8",    "uint64",  "uint32",   "uint16",  "uint8", "bool",  "bytes"};
  return static_cast<int>(type) < dtype_count ? names[static_cast<int>(type)] : "unknown dtype";
}

namespace detail {
inline constexpr std::uint8_t dtype_sizes[dtype_count] = {8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1, 1};
}

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(dtype type) noexcept {
  return static_cast<int>(type) < dtype_count ? detail::dtype_sizes[static_cast<int>(type)] : 1u;
}

/// True for what rankcast can do arithmetic on.
[[nodiscard]] constexpr bool is_numeric(dtype type) noexcept {
  return type != dtype::bytes && static_cast<int>(type) < dtype_count;
}

namespace detail {

template <class T>
consteval bool has_dtype() {
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) return true;
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) return true;
  return std::is_integral_v<T> && sizeof(T) <= 8;
}

}  // namespace detail

/// A C++ type with a dtype of its own: arithmetic types (not long double), bfloat16, float16.
template <class T>
concept element = detail::has_dtype<std::remove_cv_t<T>>();

/// A type that may travel as opaque bytes: trivially copyable, no element type, no pointer.
template <class T>
concept opaque = !element<T> && std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
                 !std::is_empty_v<T> && std::is_object_v<T>;

/// The dtype of a C++ type; `dtype::bytes` for opaque ones.
template <class T>
  requires element<T> || opaque<T>
consteval dtype dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (opaque<U>) return dtype::bytes;
  else if constexpr (std::is_same_v<U, double>) return dtype::float64;
  else if constexpr (std::is_same_v<U, float>) return dtype::float32;
  else if constexpr (std::is_same_v<U, bfloat16>) return dtype::bfloat16;
  else if constexpr (std::is_same_v<U, float16>) return dtype::float16;
  else if constexpr (std::is_same_v<U, bool>) return dtype::boolean;
  else if constexpr (std::is_signed_v<U>) {
    return sizeof(U) == 8   ? dtype::int64
           : sizeof(U) == 4 ? dtype::int32
           : sizeof(U) == 2 ? dtype::int16
                            : dtype::int8;
  } else {
    return sizeof(U) == 8   ? dtype::uint64
           : sizeof(U) == 4 ? dtype::uint32
           : sizeof(U) == 2 ? dtype::uint16
                            : dtype::uint8;
  }
}

/// A type as a value, for `visit`.
template <class T>
struct type_tag {
  using type = T;
};

/// Calls `f(type_tag<T>{})` with the C++ type of a numeric dtype.
/// Throws usage_error for `bytes`, naming `what` was asked.
template <class F>
decltype(auto) visit(dtype type, const char* what, F&& f) {
  switch (type) {
    case dtype::float64: return f(type_tag<double>{});
    case dtype::float32: return f(type_tag<float>{});
    case dtype::bfloat16: return f(type_tag<bfloat16>{});
    case dtype::float16: return f(type_tag<float16>{});
    case dtype::int64: return f(type_tag<std::int64_t>{});
    case dtype::int32: return f(type_tag<std::int32_t>{});
    case dtype::int16: return f(type_tag<std::int16_t>{});
    case dtype::int8: return f(type_tag<std::int8_t>{});
    case dtype::uint64: return f(type_tag<std::uint64_t>{});
    case dtype::uint32: return f(type_tag<std::uint32_t>{});
    case dtype::uint16: return f(type_tag<std::uint16_t>{});
    case dtype::uint8: return f(type_tag<std::uint8_t>{});
    case dtype::boolean: return f(type_tag<bool>{});
    case dtype::bytes: break;
  }
  throw usage_error(std::string(what) + ": opaque bytes have no arithmetic");
}

}  // namespace rankcast::inline v0
