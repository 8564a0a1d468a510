/// The matrix product of the transformer example against a float64 triple loop, its guarantees on
/// bits, its misuse, and the bfloat16 rounding it relies on.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rankcast/core/dtype.hpp"
#include "rankcast/core/error.hpp"
#include "transformer/math/bandwidth.hpp"
#include "transformer/math/library_product.hpp"
#include "transformer/math/matrix.hpp"
#include "transformer/math/threads.hpp"

namespace rankcast::transformer {
namespace {

constexpr float untouched = -12345.0F;

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> values(-1.0F, 1.0F);
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& value : result) value = values(generator);
  return result;
}

template <class Weight>
std::vector<Weight> random_weights(std::int64_t count, unsigned seed) {
  std::vector<Weight> result;
  for (const float value : random_values(count, seed)) result.push_back(Weight(value));
  return result;
}

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

/// y with `gap` spare elements after each row, filled by one product on `threads` threads.
std::vector<float> product(const matrix& weights, const std::vector<float>& x, std::int64_t rows,
                           std::int64_t x_stride, std::int64_t gap, int threads) {
  const scoped_threads team(threads);
  const std::int64_t y_stride = weights.out() + gap;
  std::vector<float> y(at(std::max<std::int64_t>(rows, 1) * y_stride), untouched);
  weights.product(x.data(), rows, x_stride, y.data(), y_stride);
  return y;
}

template <class Weight>
void check_products(std::int64_t out, std::int64_t in, storage kept, int threads) {
  constexpr std::int64_t gap = 3;
  const auto values = random_weights<Weight>(out * in, 1);
  const scoped_threads team(threads);
  const auto weights = matrix::copy_of(out, in, std::span<const Weight>(values), kept);
  for (const std::int64_t rows : {0, 1, 2, 5, 33}) {
    const std::int64_t x_stride = in + 5;
    auto x = random_values(std::max<std::int64_t>(rows, 1) * x_stride, 2);
    // bfloat16 products may round x, so that they begin with x that is round already.
    for (float& value : x) value = static_cast<float>(Weight(value));
    const auto y = product(weights, x, rows, x_stride, gap, threads);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t o = 0; o < out; ++o) {
        double sum = 0.0;
        double scale = 0.0;
        for (std::int64_t k = 0; k < in; ++k) {
          const double term = double{static_cast<float>(values[at(o * in + k)])} *
                              double{x[at(row * x_stride + k)]};
          sum += term;
          scale += std::abs(term);
        }
        ASSERT_NEAR(double{y[at(row * (out + gap) + o)]}, sum, scale * 4e-6 + 1e-12)
            << out << "x" << in << ", " << rows << " rows: row " << row << ", output " << o;
      }
      for (std::int64_t o = out; o < out + gap; ++o) {
        ASSERT_EQ(y[at(row * (out + gap) + o)], untouched) << "written past row " << row;
      }
    }
    if (rows == 0) {
      ASSERT_TRUE(std::all_of(y.begin(), y.end(), [](float v) { return v == untouched; }));
    }
  }
}

template <class Weight>
void check_all_products() {
  for (const std::int64_t out : {1, 3, 64, 577}) {
    for (const std::int64_t in : {1, 7, 64, 576}) {
      for (const storage kept : {storage::packed, storage::rows}) {
        for (const int threads : {1, 3}) check_products<Weight>(out, in, kept, threads);
      }
    }
  }
}

TEST(matrix, float32_products_match_float64) {
  check_all_products<float>();
}

TEST(matrix, bfloat16_products_match_float64) {
  check_all_products<bfloat16>();
}

TEST(matrix, bfloat16_products_round_no_more_than_x) {
  constexpr std::int64_t out = 100;
  constexpr std::int64_t in = 300;
  const auto values = random_weights<bfloat16>(out * in, 15);
  const auto weights = matrix::copy_of(out, in, std::span<const bfloat16>(values));
  for (const std::int64_t rows : {1, 5}) {
    const auto x = random_values(rows * in, 16);
    const auto y = product(weights, x, rows, in, 0, 1);
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = 0.0;
      double scale = 0.0;
      for (std::int64_t k = 0; k < in; ++k) {
        const double term = double{static_cast<float>(values[at(o * in + k)])} * double{x[at(k)]};
        sum += term;
        scale += std::abs(term);
      }
      EXPECT_NEAR(double{y[at(o)]}, sum, scale * 0x1p-9) << rows << " rows, output " << o;
    }
  }
}

template <class Weight>
void check_same_bits(storage kept) {
  constexpr std::int64_t out = 577;
  constexpr std::int64_t in = 500;
  const auto values = random_weights<Weight>(out * in, 3);
  const scoped_threads team(2);  // its size cuts the weights; who multiplies later changes no bits
  const auto weights = matrix::copy_of(out, in, std::span<const Weight>(values), kept);
  for (const std::int64_t rows : {1, 4, 9, 40}) {
    const auto x = random_values(rows * in, 4);
    const auto once = product(weights, x, rows, in, 0, 2);
    for (const int threads : {1, 2, 3, 1, 2}) {
      EXPECT_EQ(once, product(weights, x, rows, in, 0, threads)) << rows << " rows";
    }
  }
}

TEST(matrix, the_same_product_has_the_same_bits_on_any_team) {
  for (const storage kept : {storage::packed, storage::rows}) {
    check_same_bits<float>(kept);
    check_same_bits<bfloat16>(kept);
  }
}

TEST(matrix, rows_written_one_by_one_are_read_back) {
  const auto values = random_weights<bfloat16>(35 * 9, 7);
  matrix weights(35, 9, dtype::bfloat16, storage::rows);
  for (std::int64_t o = 0; o < 35; ++o) {
    const auto row = weights.row(o);
    ASSERT_EQ(row.size(), 18U);
    std::memcpy(row.data(), values.data() + o * 9, row.size());
  }
  weights.finish();
  weights.finish();
  EXPECT_EQ(weights.bytes(), 35U * 9U * 2U);
  std::vector<float> read(9);
  for (std::int64_t o = 0; o < 35; ++o) {
    weights.read_row(o, read.data());
    for (std::int64_t k = 0; k < 9; ++k) {
      EXPECT_EQ(read[at(k)], static_cast<float>(values[at(o * 9 + k)]));
    }
  }
}

template <class Weight>
void check_reading_back() {
  const auto values = random_weights<Weight>(300 * 200, 10);
  const std::vector<float> expected(values.begin(), values.end());
  for (const storage kept : {storage::packed, storage::rows}) {
    for (const int threads : {1, 2}) {
      const scoped_threads team(threads);
      const auto weights = matrix::copy_of(300, 200, std::span<const Weight>(values), kept);
      std::vector<float> read(expected.size());
      weights.to_rows(read.data());
      EXPECT_EQ(read, expected);
    }
  }
}

TEST(matrix, all_weights_are_read_back_as_rows) {
  check_reading_back<float>();
  check_reading_back<bfloat16>();
}

TEST(matrix, a_moved_matrix_multiplies_as_before) {
  const auto values = random_weights<float>(100 * 30, 11);
  auto weights = matrix::copy_of(100, 30, std::span<const float>(values));
  const auto x = random_values(30, 12);
  const auto expected = product(weights, x, 1, 30, 0, 1);
  const matrix moved = std::move(weights);
  EXPECT_EQ(product(moved, x, 1, 30, 0, 1), expected);
}

TEST(matrix, infinite_inputs_do_not_reach_other_rows) {
  const std::vector<float> values(3 * 2, 1.0F);
  const auto weights = matrix::copy_of(3, 2, std::span<const float>(values));
  std::vector<float> x{std::numeric_limits<float>::infinity(), 1.0F, 2.0F, 3.0F};
  const auto y = product(weights, x, 2, 2, 0, 1);
  EXPECT_TRUE(std::isinf(y[0]));
  EXPECT_EQ(y[3], 5.0F);
}

TEST(matrix, misuse_is_an_error) {
  EXPECT_THROW(matrix(0, 4, dtype::float32), usage_error);
  EXPECT_THROW(matrix(4, 0, dtype::float32), usage_error);
  EXPECT_THROW(matrix(4, 4, dtype::float16), usage_error);
  EXPECT_THROW(matrix(std::int64_t{1} << 40, std::int64_t{1} << 40, dtype::float32), usage_error);
  const std::vector<float> values(15);
  EXPECT_THROW(static_cast<void>(matrix::copy_of(4, 4, std::span<const float>(values))),
               usage_error);
  matrix weights(4, 4, dtype::float32);
  std::vector<float> x(16);
  std::vector<float> y(16);
  EXPECT_THROW(weights.product(x.data(), 1, 4, y.data(), 4), usage_error);
  EXPECT_THROW(weights.read_row(0, y.data()), usage_error);
  EXPECT_THROW(static_cast<void>(weights.row(4)), usage_error);
  weights.finish();
  EXPECT_THROW(static_cast<void>(weights.row(0)), usage_error);
  EXPECT_THROW(weights.product(x.data(), -1, 4, y.data(), 4), usage_error);
  EXPECT_THROW(weights.product(x.data(), 2, 3, y.data(), 4), usage_error);
  EXPECT_THROW(weights.product(x.data(), 2, 4, y.data(), 3), usage_error);
  EXPECT_THROW(weights.read_row(-1, y.data()), usage_error);
  EXPECT_THROW(weights.read_row(0, y.data()), usage_error) << "packed";
  EXPECT_THROW(matrix(4, 4, dtype::float32).to_rows(y.data()), usage_error);
}

TEST(matrix, two_ranks_multiply_at_once) {
  for (const std::int64_t rows : {1, 7}) {
    const auto values = random_weights<float>(640 * 128, 8);
    const scoped_threads team(2);
    const auto weights = matrix::copy_of(640, 128, std::span<const float>(values));
    const auto x = random_values(rows * 128, 9);
    const auto expected = product(weights, x, rows, 128, 0, 1);
    std::atomic<int> wrong{0};
    const auto rank = [&] {
      for (int i = 0; i < 100; ++i) {
        if (product(weights, x, rows, 128, 0, 1 + i % 2) != expected) ++wrong;
      }
    };
    std::thread other(rank);
    rank();
    other.join();
    EXPECT_EQ(wrong.load(), 0);
  }
}

// OpenMP workers would spin on the cores of other ranks.
TEST(matrix, products_start_no_threads_of_their_own) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  std::thread([&] {
    const auto before = threads();
    const auto values = random_weights<float>(640 * 640, 13);
    const auto weights = matrix::copy_of(640, 640, std::span<const float>(values));
    static_cast<void>(product(weights, random_values(64 * 640, 14), 64, 640, 0, 1));
    EXPECT_EQ(threads(), before);
  }).join();
}

TEST(matrix, failures_of_the_library_are_transport_errors) {
  detail::library_thread& library = detail::library_thread::mine();
  try {
    library.multiply({dtype::float32, detail::block_layout::rows, 1, -1, 4}, nullptr, nullptr,
                     nullptr);
    FAIL() << "nothing thrown";
  } catch (const transport_error& e) {
    EXPECT_NE(e.code(), 0);
    EXPECT_NE(std::string(e.what()).find("float32 weights [-1, 4]"), std::string::npos) << e.what();
  }
}

TEST(threads, a_round_calls_the_body_on_the_caller_and_at_most_once_per_worker) {
  for (const int threads : {1, 2, 5}) {
    thread_team team(threads);
    for (int round = 0; round < 2000; ++round) {
      std::atomic<int> calls{0};
      std::atomic<bool> on_caller{false};
      const auto caller = std::this_thread::get_id();
      team.run([&] {
        ++calls;
        if (std::this_thread::get_id() == caller) on_caller = true;
      });
      ASSERT_GE(calls.load(), 1);
      ASSERT_LE(calls.load(), threads);
      ASSERT_TRUE(on_caller.load());
    }
  }
}

TEST(threads, workers_take_part_when_there_is_time) {
  thread_team team(2);
  std::atomic<int> calls{0};
  team.run([&] {
    ++calls;
    for (int i = 0; i < 10000 && calls.load() < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_EQ(calls.load(), 2);
}

TEST(threads, split_ranges_cover_everything_once) {
  const scoped_threads team(3);
  for (int round = 0; round < 200; ++round) {
    for (const std::int64_t count : {0, 1, 2, 3, 10, 97}) {
      std::vector<int> seen(at(count));
      split_range(count, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) ++seen[at(i)];
      });
      ASSERT_EQ(seen, std::vector<int>(at(count), 1));
    }
  }
}

TEST(threads, a_scope_restores_the_one_before) {
  EXPECT_EQ(scoped_threads::current(), nullptr);
  {
    const scoped_threads outer(2);
    {
      const scoped_threads inner(1);
      EXPECT_EQ(scoped_threads::current()->size(), 1);
    }
    EXPECT_EQ(scoped_threads::current()->size(), 2);
  }
  EXPECT_EQ(scoped_threads::current(), nullptr);
  EXPECT_GE(local::usable_cpus(), 1);
  EXPECT_EQ(compute_threads(1), local::usable_cpus());
  EXPECT_EQ(compute_threads(1 << 20), 1);
  EXPECT_THROW(static_cast<void>(compute_threads(0)), usage_error);
  EXPECT_THROW(thread_team(0), usage_error);
}

TEST(bandwidth, is_positive_and_finite) {
  const double rate = read_bandwidth_bytes_per_second(2, std::size_t{8} << 20, 2);
  EXPECT_GT(rate, 1e6);
  EXPECT_TRUE(std::isfinite(rate));
  EXPECT_THROW(static_cast<void>(read_bandwidth_bytes_per_second(0)), usage_error);
}

TEST(bfloat16_values, round_to_nearest_ties_to_even) {
  const auto rounded = [](std::uint32_t bits) { return bfloat16(std::bit_cast<float>(bits)).bits; };
  EXPECT_EQ(rounded(0x3f800000U), 0x3f80U);
  EXPECT_EQ(rounded(0x3f807fffU), 0x3f80U);
  EXPECT_EQ(rounded(0x3f808000U), 0x3f80U);  // a tie, down to even
  EXPECT_EQ(rounded(0x3f808001U), 0x3f81U);
  EXPECT_EQ(rounded(0x3f818000U), 0x3f82U);  // a tie, up to even
  EXPECT_EQ(rounded(0xbf818000U), 0xbf82U);
  EXPECT_EQ(rounded(0x7f7fffffU), 0x7f80U);  // beyond the largest finite value
  EXPECT_EQ(rounded(0x7f800000U), 0x7f80U);
  EXPECT_EQ(rounded(0xff800000U), 0xff80U);
  EXPECT_EQ(rounded(0x80000000U), 0x8000U);
  EXPECT_TRUE(std::isnan(float{bfloat16(std::numeric_limits<float>::quiet_NaN())}));
  EXPECT_TRUE(std::isnan(float{bfloat16(std::bit_cast<float>(0x7f800001U))}));
}

}  // namespace
}  // namespace rankcast::transformer
