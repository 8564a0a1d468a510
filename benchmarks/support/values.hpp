// What travels: float32 values that differ by rank, sample and place, small enough that sums over
// ranks are exact.
#pragma once

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
  for (std::size_t i = 0; i < values.size(); ++i) {
    float wanted = 0;
    for (int r = rank; r < rank + ranks; ++r) wanted += value(i, shift_of(r, sample));
    if (values[i] == wanted) continue;
    throw std::runtime_error("WRONG: sample " + std::to_string(sample) + ", value " +
                             std::to_string(i) + " is " + std::to_string(values[i]) + ", not " +
                             std::to_string(wanted));
  }
}

}  // namespace bench
