/// Codecs of what has elements in a row: strings, vectors, arrays, deques, lists.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <deque>
#include <forward_list>
#include <iterator>
#include <list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rankcast/object/archive.hpp"
#include "rankcast/object/uninitialised.hpp"

namespace rankcast::inline v0 {

namespace detail {

/// Reads `n` elements over those of `c`, then appends the rest one by one: each of them has to be
/// there before the next is made room for.
template <class Container>
void load_elements(iarchive& in, Container& c, std::size_t n) {
  using T = typename Container::value_type;
  if constexpr (std::is_default_constructible_v<T>) {
    if (c.size() > n) c.resize(n);
    for (T& element : c) in.get(element);
    while (c.size() < n) in.get(c.emplace_back());
  } else {
    c.clear();
    while (c.size() < n) c.push_back(built<T>(in).take());
  }
}

/// Elements [0, n) as bits, eight to a byte; the bits beyond are 0.
template <class Bits>
void save_bits(oarchive& out, std::size_t n, const Bits& bits) {
  for (std::size_t i = 0; i < n; i += 8) {
    unsigned byte = 0;
    for (std::size_t j = i; j < n && j < i + 8; ++j) {
      byte |= static_cast<unsigned>(static_cast<bool>(bits[j])) << (j - i);
    }
    out.put(static_cast<unsigned char>(byte));
  }
}

template <class Bits>
void load_bits(iarchive& in, std::size_t n, Bits& bits) {
  const std::byte* from = in.take((n + 7) / 8);
  for (std::size_t i = 0; i < n; ++i) {
    bits[i] = ((std::to_integer<unsigned>(from[i / 8]) >> (i % 8)) & 1u) != 0;
  }
  if (n % 8 != 0 && (std::to_integer<unsigned>(from[n / 8]) >> (n % 8)) != 0) {
    in.fail("bits beyond the last of " + std::to_string(n));
  }
}

}  // namespace detail

template <class C, class Traits, class Allocator>
struct codec<std::basic_string<C, Traits, Allocator>> {
  static constexpr bool native = rankcast::native<C>;
  using string = std::basic_string<C, Traits, Allocator>;
  static void save(oarchive& out, const string& s) { out.bulk(&s, s.data(), s.size()); }
  static void load(iarchive& in, string& s) {
    const iarchive::extent data = in.bulk<C>();
    if (sizeof(C) == 1 && !data.apart) {
      s.assign(reinterpret_cast<const C*>(in.take(data.elements)), data.elements);
      return;
    }
    if (data.elements > s.capacity()) s.clear();  // nothing to move
    s.resize(data.elements);
    in.fetch(data, s.data());
  }
};

template <class T, class Allocator>
struct codec<std::vector<T, Allocator>> {
  static constexpr bool native = rankcast::native<T>;
  using vector = std::vector<T, Allocator>;
  static void save(oarchive& out, const vector& v) {
    if constexpr (bitwise<T>) {
      out.bulk(&v, v.data(), v.size());
    } else {
      out.count(v.size());
      oarchive::reach elements(out, &v);
      elements.over(v.data(), v.size() * sizeof(T));
      for (const T& element : v) out.element(element);
    }
  }
  static void load(iarchive& in, vector& v) {
    if constexpr (bitwise<T>) {
      const iarchive::extent data = in.bulk<T>();
      detail::resize_for_overwrite(v, data.elements);
      in.fetch(data, v.data());
    } else {
      const std::size_t n = in.count();
      if (in.covers(n, sizeof(T))) v.reserve(n);
      detail::load_elements(in, v, n);
    }
  }
};

template <class Allocator>
struct codec<std::vector<bool, Allocator>> {
  static constexpr bool native = true;
  using vector = std::vector<bool, Allocator>;
  static void save(oarchive& out, const vector& v) {
    out.count(v.size());
    detail::save_bits(out, v.size(), v);
  }
  static void load(iarchive& in, vector& v) {
    std::uint64_t n = 0;
    in.get(n);
    if (n / 8 > in.remaining()) in.fail("a count of " + std::to_string(n) + " bits");
    v.resize(static_cast<std::size_t>(n));
    detail::load_bits(in, v.size(), v);
  }
};

template <std::size_t N>
struct codec<std::bitset<N>> {
  static constexpr bool native = true;
  static void save(oarchive& out, const std::bitset<N>& bits) {
    if constexpr (N == 0) out.filler();
    else detail::save_bits(out, N, bits);
  }
  static void load(iarchive& in, std::bitset<N>& bits) {
    if constexpr (N == 0) in.filler();
    else detail::load_bits(in, N, bits);
  }
};

template <class T, std::size_t N>
struct codec<std::array<T, N>> {
  static constexpr bool native = rankcast::native<T>;
  static constexpr bool bitwise = N != 0 && rankcast::bitwise<T>;
  static void save(oarchive& out, const std::array<T, N>& array) {
    if constexpr (N == 0) out.filler();
    for (const T& element : array) out.put(element);
  }
  static void load(iarchive& in, std::array<T, N>& array) {
    if constexpr (N == 0) in.filler();
    for (T& element : array) in.get(element);
  }
};

template <class T, std::size_t N>
struct codec<T[N]> {
  static constexpr bool native = rankcast::native<T>;
  static constexpr bool bitwise = rankcast::bitwise<T>;
  static void save(oarchive& out, const T (&array)[N]) {
    for (const T& element : array) out.put(element);
  }
  static void load(iarchive& in, T (&array)[N]) {
    for (T& element : array) in.get(element);
  }
};

template <class T, class Allocator>
struct codec<std::deque<T, Allocator>> {
  static constexpr bool native = rankcast::native<T>;
  static void save(oarchive& out, const std::deque<T, Allocator>& d) {
    out.count(d.size());
    oarchive::reach elements(out, &d);
    for (const T& element : d) {
      elements.over(&element, sizeof element);
      out.element(element);
    }
  }
  static void load(iarchive& in, std::deque<T, Allocator>& d) {
    detail::load_elements(in, d, in.count());
  }
};

template <class T, class Allocator>
struct codec<std::list<T, Allocator>> {
  static constexpr bool native = rankcast::native<T>;
  static void save(oarchive& out, const std::list<T, Allocator>& l) {
    out.count(l.size());
    oarchive::reach elements(out, &l);
    for (const T& element : l) {
      elements.over(&element, sizeof element);
      out.element(element);
    }
  }
  static void load(iarchive& in, std::list<T, Allocator>& l) {
    detail::load_elements(in, l, in.count());
  }
};

template <class T, class Allocator>
struct codec<std::forward_list<T, Allocator>> {
  static constexpr bool native = rankcast::native<T>;
  using list = std::forward_list<T, Allocator>;
  static void save(oarchive& out, const list& l) {
    out.count(static_cast<std::size_t>(std::distance(l.begin(), l.end())));
    oarchive::reach elements(out, &l);
    for (const T& element : l) {
      elements.over(&element, sizeof element);
      out.element(element);
    }
  }
  static void load(iarchive& in, list& l) {
    const std::size_t n = in.count();
    auto last = l.before_begin();
    if constexpr (!std::is_default_constructible_v<T>) l.clear();
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (std::is_default_constructible_v<T>) {
        if (std::next(last) == l.end()) l.emplace_after(last);
        in.get(*++last);
      } else {
        last = l.insert_after(last, detail::built<T>(in).take());
      }
    }
    l.erase_after(last, l.end());
  }
};

}  // namespace rankcast::inline v0
