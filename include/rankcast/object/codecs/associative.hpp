/// Codecs of maps and sets, sorted and hashed.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "rankcast/object/archive.hpp"

namespace rankcast::inline v0 {

namespace detail {

/// Part of a container's element: its key, or the value a map adds to it.
template <class Key, class Value>
const Key& key_of(const std::pair<const Key, Value>& element) noexcept {
  return element.first;
}
template <class Key>
const Key& key_of(const Key& element) noexcept {
  return element;
}

template <class Container>
concept maps = requires {
  typename Container::mapped_type;
};

template <class Container>
concept unique_keys = requires(Container c, typename Container::value_type v) {
  c.insert(std::move(v)).second;
};

template <class Container>
consteval bool wholly_native() {
  if constexpr (!native<typename Container::key_type>) return false;
  else if constexpr (maps<Container>) return native<typename Container::mapped_type>;
  else return true;
}

template <class Container>
void save_associative(oarchive& out, const Container& c) {
  out.count(c.size());
  oarchive::reach elements(out, &c);
  for (const auto& element : c) {
    elements.over(&element, sizeof element);
    if constexpr (maps<Container>) {
      out.element(element.first);
      out.element(element.second);
    } else {
      out.element(element);
    }
  }
}

/// Reads one element into a container that has no elements but those read before. Throws
/// decode_error when the key is there already and may be there but once.
template <class Container>
void load_new_element(iarchive& in, Container& c) {
  const std::size_t before = c.size();
  built<typename Container::key_type> key(in);
  if constexpr (!maps<Container>) {
    c.insert(c.end(), key.take());
  } else if constexpr (std::is_default_constructible_v<typename Container::mapped_type>) {
    const auto at = c.emplace_hint(c.end(), std::piecewise_construct,
                                   std::forward_as_tuple(key.take()), std::tuple<>());
    in.get(at->second);
  } else {
    built<typename Container::mapped_type> value(in);
    c.emplace_hint(c.end(), key.take(), value.take());
  }
  if (c.size() == before) in.fail("a key comes twice");
}

/// Reads over the elements that are there, whose keys are sorted as the incoming ones are: what is
/// in both keeps its node and the memory of its value.
template <class Container>
void load_over_sorted(iarchive& in, Container& c, std::size_t n) {
  using key_type = typename Container::key_type;
  auto at = c.begin();
  for (; n > 0; --n) {
    if constexpr (requires { in.pass_if(std::declval<const key_type&>()); }) {
      if (at != c.end() && in.pass_if(key_of(*at))) {
        if constexpr (maps<Container>) in.get(at->second);
        ++at;
        continue;
      }
    }
    key_type key{};
    in.get(key);
    while (at != c.end() && c.key_comp()(key_of(*at), key)) at = c.erase(at);
    if (at == c.end() || c.key_comp()(key, key_of(*at))) {
      const std::size_t before = c.size();
      const auto made = [&] {
        if constexpr (maps<Container>) {
          return c.emplace_hint(at, std::piecewise_construct, std::forward_as_tuple(std::move(key)),
                                std::tuple<>());
        } else {
          return c.emplace_hint(at, std::move(key));
        }
      }();
      // Also when the sender sorts in another way: then the keys are not in our order.
      if (c.size() == before || std::next(made) != at) in.fail("keys are not in order");
      at = made;
    }
    if constexpr (maps<Container>) in.get(at->second);
    ++at;
  }
  c.erase(at, c.end());
}

template <class Container>
struct sorted_codec {
  static constexpr bool native = wholly_native<Container>();
  static void save(oarchive& out, const Container& c) { save_associative(out, c); }
  static void load(iarchive& in, Container& c) {
    const std::size_t n = in.count();
    if constexpr (wholly_native<Container>() && unique_keys<Container> &&
                  std::is_default_constructible_v<typename Container::key_type>) {
      load_over_sorted(in, c, n);
    } else {
      c.clear();
      for (std::size_t i = 0; i < n; ++i) load_new_element(in, c);
    }
  }
};

template <class Container>
struct hashed_codec {
  static constexpr bool native = wholly_native<Container>();
  static void save(oarchive& out, const Container& c) { save_associative(out, c); }
  static void load(iarchive& in, Container& c) {
    const std::size_t n = in.count();
    c.clear();
    c.reserve(n);
    for (std::size_t i = 0; i < n; ++i) load_new_element(in, c);
  }
};

}  // namespace detail

template <class K, class V, class C, class A>
struct codec<std::map<K, V, C, A>> : detail::sorted_codec<std::map<K, V, C, A>> {};
template <class K, class V, class C, class A>
struct codec<std::multimap<K, V, C, A>> : detail::sorted_codec<std::multimap<K, V, C, A>> {};
template <class K, class C, class A>
struct codec<std::set<K, C, A>> : detail::sorted_codec<std::set<K, C, A>> {};
template <class K, class C, class A>
struct codec<std::multiset<K, C, A>> : detail::sorted_codec<std::multiset<K, C, A>> {};

template <class K, class V, class H, class E, class A>
struct codec<std::unordered_map<K, V, H, E, A>>
    : detail::hashed_codec<std::unordered_map<K, V, H, E, A>> {};
template <class K, class V, class H, class E, class A>
struct codec<std::unordered_multimap<K, V, H, E, A>>
    : detail::hashed_codec<std::unordered_multimap<K, V, H, E, A>> {};
template <class K, class H, class E, class A>
struct codec<std::unordered_set<K, H, E, A>>
    : detail::hashed_codec<std::unordered_set<K, H, E, A>> {};
template <class K, class H, class E, class A>
struct codec<std::unordered_multiset<K, H, E, A>>
    : detail::hashed_codec<std::unordered_multiset<K, H, E, A>> {};

}  // namespace rankcast::inline v0
