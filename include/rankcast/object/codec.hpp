/// codec<T> says how a T is written and read: the customisation point of objects. Types with a
/// Boost `serialize()` need none; the standard library's have theirs in codecs/.
#pragma once

#include <array>
#include <chrono>
#include <complex>
#include <cstddef>
#include <type_traits>

#include <boost/serialization/is_bitwise_serializable.hpp>
#include <boost/serialization/level.hpp>

#include "rankcast/core/config.hpp"
#include "rankcast/core/dtype.hpp"

namespace rankcast::inline v0 {

class oarchive;
class iarchive;

/// Contiguous data of at least so many bytes travel out of band where that is safe.
inline constexpr std::size_t out_of_band_bytes = 64 * 1024;

/// Classes within classes that an object may have, when written and when read.
inline constexpr int max_object_depth = 1000;

/// How a T is written and read. Specialise it for types that cannot have a serialize():
///
///   template <>
///   struct rankcast::codec<wheel> {
///     static void save(rankcast::oarchive& out, const wheel& w) { out << w.spokes(); }
///     static void load(rankcast::iarchive& in, wheel& w) { int n = 0; in >> n; w.set_spokes(n); }
///   };
///
/// A specialisation wins over a serialize(). load gets an object that exists and may reuse its
/// memory. Members, all optional: `native` (see below), `bitwise` (see below).
template <class T, class = void>
struct codec {
  using unspecialised = void;
  static void save(oarchive& out, const T& value);
  static void load(iarchive& in, T& value);
};

namespace detail {

template <class T>
struct is_plain : std::bool_constant<std::is_arithmetic_v<T> || std::is_enum_v<T> || element<T>> {};
template <class T>
struct is_plain<std::complex<T>> : std::is_floating_point<T> {};
template <class Rep, class Period>
struct is_plain<std::chrono::duration<Rep, Period>> : std::is_arithmetic<Rep> {};
template <class Clock, class Duration>
struct is_plain<std::chrono::time_point<Clock, Duration>> : is_plain<Duration> {};

/// The class has been declared to be no more than its bytes. Being trivially copyable alone is not
/// enough: such a class may hold pointers.
template <class T>
consteval bool declared_bitwise() {
  if constexpr (!std::is_class_v<T> && !std::is_union_v<T>) {
    return false;
  } else if constexpr (!std::is_trivially_copyable_v<T>) {
    return false;
  } else {
    return boost::serialization::is_bitwise_serializable<T>::value ||
           boost::serialization::implementation_level<T>::value ==
               boost::serialization::primitive_type;
  }
}

template <class T>
consteval bool is_bitwise() {
  if constexpr (requires { typename codec<T>::unspecialised; }) {
    if constexpr (is_plain<T>::value) return true;
    else return declared_bitwise<T>();
  } else if constexpr (requires { codec<T>::bitwise; }) {
    return codec<T>::bitwise;
  } else {
    return false;
  }
}

template <class T>
concept own_codec = requires {
  codec<T>::native;
};

template <class T>
consteval bool is_native() {
  if constexpr (is_bitwise<T>()) return true;
  else if constexpr (own_codec<T>) return codec<T>::native;
  else return false;
}

/// Bytes that are bools: 2 is not one.
template <class T>
struct is_bool : std::is_same<T, bool> {};
template <class T>
  requires std::is_enum_v<T>
struct is_bool<T> : std::is_same<std::underlying_type_t<T>, bool> {
};
template <class T, std::size_t N>
struct is_bool<std::array<T, N>> : is_bool<T> {};
template <class T, std::size_t N>
struct is_bool<T[N]> : is_bool<T> {};

/// For static_asserts that fire only where the template is used.
template <class>
inline constexpr bool never = false;

}  // namespace detail

/// True for types written as their bytes: arithmetic types, enums, complex, chrono, float16 and
/// bfloat16, arrays of these, and trivially copyable classes that were declared so with
/// BOOST_IS_BITWISE_SERIALIZABLE or as of implementation level primitive_type.
template <class T>
inline constexpr bool bitwise = detail::is_bitwise<T>();

/// True for types whose loading runs no user's code, so that loading over an old value is known to
/// give the same as loading into a new one. A codec that has the member `native` also promises to
/// write at least one byte, and that its types nest only through other classes.
template <class T>
inline constexpr bool native = detail::is_native<T>();

}  // namespace rankcast::inline v0
