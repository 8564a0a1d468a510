/// An object to bytes and back: equal, and no prefix of the bytes nor anything longer is taken.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "rankcast/object/codecs.hpp"

namespace support {

template <class T>
std::vector<std::byte> encoded(const T& object) {
  std::vector<std::byte> bytes;
  rankcast::save_object(object, bytes);
  return bytes;
}

/// Loads the bytes over `into`, whose old value must leave no trace.
template <class T>
void expect_loads(const T& expected, const std::vector<std::byte>& bytes, T& into) {
  rankcast::load_object(into, bytes);
  EXPECT_TRUE(into == expected) << rankcast::type_name<T>();
  EXPECT_EQ(encoded(into).size(), bytes.size());
}

template <class T>
void expect_only_whole(const std::vector<std::byte>& bytes) {
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    T object{};
    EXPECT_THROW(rankcast::load_object(object, std::span(bytes).first(n)), rankcast::decode_error)
        << rankcast::type_name<T>() << " of " << n << " bytes instead of " << bytes.size();
  }
  auto longer = bytes;
  longer.push_back(std::byte{});
  T object{};
  EXPECT_THROW(rankcast::load_object(object, longer), rankcast::decode_error)
      << rankcast::type_name<T>() << " with a trailing byte";
}

/// Each value into a new object and over each other one.
template <class T>
void round_trip(const std::vector<T>& values) {
  for (const T& value : values) {
    const auto bytes = encoded(value);
    EXPECT_GE(bytes.size(), 1u);
    T fresh{};
    expect_loads(value, bytes, fresh);
    for (const T& old : values) {
      T used = old;
      expect_loads(value, bytes, used);
    }
    expect_only_whole<T>(bytes);
  }
}

template <class T>
void round_trip(const T& value) {
  round_trip(std::vector<T>{value, T{}});
}

}  // namespace support
