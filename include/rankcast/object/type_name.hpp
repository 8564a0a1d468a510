/// The name of a type as a compile-time string, and the fingerprint that ranks compare before they
/// decode: all ranks run one build, so one compiler's spelling is enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "rankcast/core/config.hpp"
#include "rankcast/core/message.hpp"

namespace rankcast::inline v0 {

namespace detail {

template <class T>
constexpr const char* pretty_function() noexcept {
  return __PRETTY_FUNCTION__;
}

/// What surrounds the type in the text above is measured with a type whose name is known.
template <class T>
constexpr std::string_view cut_type_name() noexcept {
  constexpr std::string_view known = pretty_function<double>();
  constexpr std::size_t before = known.find("double");
  constexpr std::size_t after = known.size() - before - 6;
  constexpr std::string_view text = pretty_function<T>();
  return text.substr(before, text.size() - before - after);
}

/// FNV-1a, continued from `hash`.
constexpr std::uint64_t hash_of(std::string_view text,
                                std::uint64_t hash = 0xcbf29ce484222325u) noexcept {
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

/// The type that stands for T in a message: a wrapper of something const is read as the wrapper of
/// the same thing not const.
template <class T>
struct wire_type {
  using type = T;
};

}  // namespace detail

/// "std::vector<int>", in the compiler's spelling. The text has static storage.
template <class T>
[[nodiscard]] constexpr std::string_view type_name() noexcept {
  return detail::cut_type_name<T>();
}

/// Name and fingerprint of what a message with a T holds. The fingerprint covers the size of T too,
/// so that most changes to a type that kept its name are seen. Never 0.
template <class T>
[[nodiscard]] constexpr message_type message_type_of() noexcept {
  using wire = typename detail::wire_type<std::remove_cv_t<T>>::type;
  constexpr std::string_view name = type_name<wire>();
  constexpr std::uint64_t hash =
      (detail::hash_of(name) ^ sizeof(wire)) * 0x100000001b3u ^ alignof(wire);
  return {hash == 0 ? 1 : hash, name};
}

}  // namespace rankcast::inline v0
