// bfloat16 and float16 against arithmetic in double: all 65536 patterns, and rounding of many
// floats.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "rankcast/core/dtype.hpp"

namespace {

using rankcast::bfloat16;
using rankcast::dtype;
using rankcast::float16;

// A binary format by its numbers.
struct format {
  int exponent_bits;
  int mantissa_bits;
  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] int lowest_exponent() const { return 1 - bias(); }  // of normal numbers
  [[nodiscard]] int special() const { return (1 << exponent_bits) - 1; }
};
constexpr format bf16{8, 7};
constexpr format fp16{5, 10};

double decode(format f, std::uint16_t bits) {
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const int exponent = (bits >> f.mantissa_bits) & f.special();
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == f.special()) {
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << f.mantissa_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - f.bias() - f.mantissa_bits);
}

// Round to nearest, ties to even, with frexp and nearbyint; overflow at the middle between the
// largest finite number and the next that would be.
std::uint16_t encode(format f, double x) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const auto infinity = static_cast<std::uint16_t>(f.special() << f.mantissa_bits);
  x = std::fabs(x);
  if (std::isinf(x)) return sign | infinity;
  if (x == 0) return sign;
  int exponent = 0;
  std::frexp(x, &exponent);  // x = [0.5, 1) * 2^exponent
  const int unit = std::max(exponent - 1, f.lowest_exponent()) - f.mantissa_bits;
  double units = std::nearbyint(std::ldexp(x, -unit));
  // units * 2^unit: a carry out of the mantissa adds one to the exponent by itself.
  const int biased = unit + f.mantissa_bits + f.bias();
  const bool subnormal = units < std::ldexp(1.0, f.mantissa_bits);
  const int bits = subnormal ? static_cast<int>(units)
                             : static_cast<int>(units) + ((biased - 1) << f.mantissa_bits);
  return sign | static_cast<std::uint16_t>(std::min<int>(bits, infinity));
}

template <class T>
void every_pattern(format f) {
  for (unsigned u = 0; u < 65536; ++u) {
    const auto bits = static_cast<std::uint16_t>(u);
    const float value = T::from_bits(bits);
    const double wanted = decode(f, bits);
    const std::uint16_t back = T(value).bits;
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(value)) << u;
      ASSERT_TRUE(std::isnan(static_cast<float>(T::from_bits(back)))) << u;
      ASSERT_EQ(back & 0x8000, bits & 0x8000) << u;
    } else {
      ASSERT_EQ(value, wanted) << u;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << u;
      ASSERT_EQ(back, bits);
    }
  }
}

template <class T>
void same_rounding(format f, float x) {
  if (std::isnan(x)) {
    ASSERT_TRUE(std::isnan(static_cast<float>(T(x))));
  } else {
    ASSERT_EQ(T(x).bits, encode(f, x)) << std::hexfloat << x;
  }
}

// Between all neighbours: just below the middle, the middle (a tie), just above; both signs.
template <class T>
void around_every_middle(format f) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (unsigned u = 0; u + 1 < static_cast<unsigned>(f.special()) << f.mantissa_bits; ++u) {
    const double low = decode(f, static_cast<std::uint16_t>(u));
    const double high = decode(f, static_cast<std::uint16_t>(u + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float x :
         {std::nextafter(middle, -infinity), middle, std::nextafter(middle, infinity)}) {
      same_rounding<T>(f, x);
      same_rounding<T>(f, -x);
    }
    if (static_cast<double>(middle) == (low + high) / 2) {
      ASSERT_EQ(T(middle).bits, u + (u & 1u));  // a tie goes to the even one
    }
  }
}

TEST(dtype, bfloat16_every_pattern) {
  every_pattern<bfloat16>(bf16);
}
TEST(dtype, float16_every_pattern) {
  every_pattern<float16>(fp16);
}
TEST(dtype, bfloat16_around_every_middle) {
  around_every_middle<bfloat16>(bf16);
}
TEST(dtype, float16_around_every_middle) {
  around_every_middle<float16>(fp16);
}

TEST(dtype, random_floats_round_to_nearest) {
  std::mt19937 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    const auto u = static_cast<std::uint32_t>(random());
    float x = 0;
    std::memcpy(&x, &u, sizeof x);
    same_rounding<bfloat16>(bf16, x);
    same_rounding<float16>(fp16, x);
  }
}

TEST(dtype, limits) {
  EXPECT_EQ(static_cast<float>(float16(65504.0f)), 65504.0f);
  EXPECT_EQ(static_cast<float>(float16(65519.99f)), 65504.0f);
  EXPECT_TRUE(std::isinf(static_cast<float>(float16(65520.0f))));
  EXPECT_TRUE(std::isinf(static_cast<float>(bfloat16(std::numeric_limits<float>::max()))));
  EXPECT_EQ(float16(0x1p-24f).bits, 1);
  EXPECT_EQ(float16(0x1p-25f).bits, 0);         // a tie, to even
  EXPECT_EQ(float16(0x1.000002p-25f).bits, 1);  // just above
  EXPECT_EQ(float16(-0.0f).bits, 0x8000);
  EXPECT_EQ(bfloat16(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(dtype, nan_with_its_payload_in_the_lower_half) {
  float x = 0;
  const std::uint32_t u = 0x7f800001u;  // cut to 16 bits it would be infinity
  std::memcpy(&x, &u, sizeof x);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(x))));
  EXPECT_TRUE(std::isnan(static_cast<float>(float16(x))));
}

static_assert(rankcast::dtype_of<double>() == dtype::float64);
static_assert(rankcast::dtype_of<float>() == dtype::float32);
static_assert(rankcast::dtype_of<bfloat16>() == dtype::bfloat16);
static_assert(rankcast::dtype_of<float16>() == dtype::float16);
static_assert(rankcast::dtype_of<long>() == dtype::int64);
static_assert(rankcast::dtype_of<long long>() == dtype::int64);
static_assert(rankcast::dtype_of<unsigned>() == dtype::uint32);
static_assert(rankcast::dtype_of<const short>() == dtype::int16);
static_assert(rankcast::dtype_of<bool>() == dtype::boolean);
static_assert(rankcast::dtype_of<signed char>() == dtype::int8);
static_assert(rankcast::dtype_of<unsigned char>() == dtype::uint8);
static_assert(rankcast::element<float> && !rankcast::element<long double>);
static_assert(!rankcast::element<int*>);

TEST(dtype, names_and_sizes) {
  for (int t = 0; t < rankcast::dtype_count; ++t) {
    const auto type = static_cast<dtype>(t);
    if (type == dtype::bytes) continue;
    rankcast::visit(type, "test", [&](auto tag) {
      using T = typename decltype(tag)::type;
      EXPECT_EQ(rankcast::dtype_of<T>(), type);
      EXPECT_EQ(rankcast::size_of(type), sizeof(T));
    });
    EXPECT_TRUE(rankcast::is_numeric(type));
  }
  EXPECT_FALSE(rankcast::is_numeric(dtype::bytes));
  EXPECT_EQ(rankcast::name(static_cast<dtype>(77)), "unknown dtype");
  EXPECT_THROW(rankcast::visit(dtype::bytes, "test", [](auto) {}), rankcast::usage_error);
}

}  // namespace
