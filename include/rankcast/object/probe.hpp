/// Whether a class has a serialize() of its own, seen from outside. Asking by a call would not do:
/// Boost declares a serialize() for every type, and a private member answers only its friends.
#pragma once

#include <type_traits>
#include <utility>

#include <boost/serialization/serialization.hpp>

#include "rankcast/core/config.hpp"

namespace rankcast::inline v0 {

class oarchive;

namespace detail {

struct named_serialize {
  int serialize = 0;
};

// Inherits the name `serialize` twice if T has it, so that naming it is ambiguous. Access is
// checked after that, hence private members are found too.
template <class T>
struct with_second_serialize : T, named_serialize {};

template <class T>
consteval bool has_member_serialize() {
  if constexpr (std::is_union_v<T> || std::is_final_v<T>) {
    return true;  // nothing can derive from it: assumed, and the compiler complains if it is not so
  } else {
    return !requires {
      &with_second_serialize<T>::serialize;
    };
  }
}

// A rival exactly as general as Boost's catch-all. A call that could go to both is ambiguous,
// unless there is an overload made for T.
namespace free_probe {

/// Brings its own namespace and that of its argument into the look-up.
template <class Version>
struct version {
  operator unsigned int() const;  // NOLINT: stands for Boost's version_type
};

template <class Archive, class T>
void serialize(Archive&, T&, unsigned int);

template <class Archive, class T>
void save_construct_data(Archive&, const T*, unsigned int);

}  // namespace free_probe

using probe_version = free_probe::version<boost::serialization::version_type>;

template <class T>
concept free_serialize = requires(oarchive& out, T& value, probe_version version) {
  serialize(out, value, version);
};

template <class T>
concept free_construct_data = requires(oarchive& out, const T* value, probe_version version) {
  save_construct_data(out, value, version);
};

}  // namespace detail

/// True if the class T has a member serialize(), whoever may call it, or an overload of the free
/// function. Ask only where T is complete and all overloads have been declared: the compiler
/// remembers the first answer.
template <class T>
inline constexpr bool has_serialize =
    detail::has_member_serialize<T>() || detail::free_serialize<T>;

}  // namespace rankcast::inline v0
