// What travels: float32 values that differ by rank, sample and place, small enough that sums over
// ranks are exact.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace bench {

inline float value(std::size_t place, std::uint32_t shift) {
  return static_cast<float>((static_cast<std::uint32_t>(place) + shift) & 1023u);
}

/// Where the values of a rank's sample begin.
inline std::uint32_t shift_of(int rank, int sample) {
  return static_cast<std::uint32_t>(17 * rank + 31 * sample);
}

inline void fill(std::span<float> values, int rank, int sample) {
  const std::uint32_t shift = shift_of(rank, sample);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i, shift);
}

/// Nothing that was there before may pass for received.
inline void spoil(std::span<float> values) {
  for (float& v : values) v = -1;
}

/// Throws where a value is not the sum of what `ranks` ranks from `rank` on filled in.
inline void expect(std::span<const float> values, int rank, int sample, int ranks = 1) {
  std::array<float, 1024> wanted;  // a piece at a time, in loops that compilers make fast
  for (std::size_t begin = 0; begin < values.size(); begin += wanted.size()) {
    const auto piece = values.subspan(begin, std::min(wanted.size(), values.size() - begin));
    wanted.fill(0);
    for (int r = rank; r < rank + ranks; ++r) {
      const std::uint32_t shift = shift_of(r, sample);
      for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += value(begin + i, shift);
    }
    const auto wrong = std::mismatch(piece.begin(), piece.end(), wanted.begin());
    if (wrong.first == piece.end()) continue;
    const auto place = begin + static_cast<std::size_t>(wrong.first - piece.begin());
    throw std::runtime_error("WRONG: sample " + std::to_string(sample) + ", value " +
                             std::to_string(place) + " is " + std::to_string(*wrong.first) +
                             ", not " + std::to_string(*wrong.second));
  }
}

}  // namespace bench
