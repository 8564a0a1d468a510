// Reductions: every operation on every dtype, in the order and the accuracy that is promised.
#include <cmath>
#include <random>

#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using rankcast::dtype;
using support::run_ranks;
using support::oracle::by_rank;
using support::oracle::index;

template <class T>
by_rank<T> inputs(int ranks, std::int64_t n, std::int64_t modulus) {
  by_rank<T> in(index(ranks));
  for (int r = 0; r < ranks; ++r) {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto v = support::pattern(r, i) % modulus;
      if constexpr (std::is_same_v<T, bool>) in[index(r)].push_back(v % 2 != 0);
      else in[index(r)].push_back(static_cast<T>(static_cast<float>(v)));
    }
  }
  return in;
}

template <class T>
rankcast::tensor to_tensor(const std::vector<T>& values) {
  rankcast::tensor t(rankcast::dtype_of<T>(), {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) t.data<T>()[i] = values[i];
  return t;
}

template <class T>
bool equal_bits(const rankcast::tensor& got, const std::vector<T>& wanted) {
  const auto t = to_tensor(wanted);
  return t.bytes() == got.bytes() &&
         (t.bytes() == 0 || std::memcmp(t.view().address(), got.view().address(), t.bytes()) == 0);
}

// Every reducing call with one operation and element type.
template <class T, class F>
void all_calls(rankcast::communicator& world, std::int64_t size, const F& f,
               std::int64_t modulus = 101) {
  const int n = world.size();
  const auto me = index(world.rank());
  const auto type = rankcast::dtype_of<T>();
  const auto in = inputs<T>(n, size * n, modulus);
  const auto wanted = support::oracle::reduce(in, f);
  const auto mine = to_tensor(in[me]);
  const auto trace = [&](const char* call) {
    return std::string(call) + " " + std::string(rankcast::name(type)) + " x " +
           std::to_string(size * n) + ", rank " + std::to_string(world.rank()) + " of " +
           std::to_string(n);
  };

  support::step("all_reduce");
  auto got = support::room(type, size * n);
  rankcast::all_reduce(world, mine, got, f);
  EXPECT_TRUE(equal_bits(got, wanted)) << trace("all_reduce");
  auto in_place = to_tensor(in[me]);
  rankcast::all_reduce(world, in_place, f);
  EXPECT_TRUE(equal_bits(in_place, wanted)) << trace("all_reduce in place");

  support::step("reduce");
  for (const int root : support::roots(n)) {
    if (world.rank() == root) {
      auto at_root = to_tensor(in[me]);
      rankcast::reduce(world, at_root, at_root, f, {.root = root});
      EXPECT_TRUE(equal_bits(at_root, wanted)) << trace("reduce");
    } else {
      rankcast::reduce(world, mine, rankcast::nothing, f, {.root = root});
    }
  }

  support::step("reduce_scatter");
  auto share = support::room(type, size);
  rankcast::reduce_scatter(world, mine, share, f);
  const auto cut = support::oracle::scatter(wanted, support::oracle::counts(index(n), size));
  EXPECT_TRUE(equal_bits(share, cut[me])) << trace("reduce_scatter");
}

template <class F>
void all_types(const F& f, std::int64_t modulus = 101) {
  for (const int ranks : support::rank_counts()) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      for (const dtype type : support::all_dtypes()) {
        if (type == dtype::bytes) continue;
        rankcast::visit(type, "test", [&](auto tag) {
          using T = typename decltype(tag)::type;
          for (const std::int64_t size : support::sizes(sizeof(T))) {
            all_calls<T>(world, size, f, modulus);
          }
        });
      }
    });
  }
}

TEST(reductions, sum) {
  all_types(rankcast::sum);
}
TEST(reductions, product) {
  all_types(rankcast::product, 3);
}
TEST(reductions, minimum) {
  all_types(rankcast::minimum);
}
TEST(reductions, maximum) {
  all_types(rankcast::maximum);
}
TEST(reductions, logical_and) {
  all_types(rankcast::logical_and, 2);
}
TEST(reductions, logical_or) {
  all_types(rankcast::logical_or, 2);
}

TEST(reductions, callable_with_state) {
  for (const int ranks : support::rank_counts()) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      const std::int64_t offset = 1000 * world.size();
      const auto plus = [offset](std::int64_t a, std::int64_t b) { return a + b + offset; };
      for (const std::int64_t size : support::sizes(sizeof(std::int64_t))) {
        all_calls<std::int64_t>(world, size, plus);
        // Ranges know their element type at compile time.
        std::vector<std::int64_t> v = support::pattern_values(world.rank(), size);
        auto in = support::pattern_by_rank(ranks, size);
        rankcast::all_reduce(world, v, plus);
        EXPECT_EQ(v, support::oracle::reduce(in, plus));
      }
    });
  }
}

// By hand, not by the oracle: 8-bit values wrap, bool sums are "or", products "and".
TEST(reductions, wrap_and_bool) {
  run_ranks(3, [](rankcast::communicator& world) {
    std::array<std::int8_t, 3> a{100, -100, 7};
    rankcast::all_reduce(world, a);
    EXPECT_EQ(a, (std::array<std::int8_t, 3>{44, -44, 21}));  // 300 - 256, -300 + 256
    std::array<std::uint8_t, 2> b{200, 16};
    rankcast::all_reduce(world, b, rankcast::product);
    EXPECT_EQ(b, (std::array<std::uint8_t, 2>{0, 0}));  // 200^3 = 8000000 = 31250 * 256
    std::array<std::uint16_t, 1> c{65535};
    rankcast::all_reduce(world, c, rankcast::product);
    EXPECT_EQ(c[0], 65535);  // (-1)^3
    std::array<bool, 2> d{world.rank() == 1, false};
    rankcast::all_reduce(world, d);
    EXPECT_EQ(d, (std::array<bool, 2>{true, false}));
    std::array<bool, 2> e{world.rank() != 1, true};
    rankcast::all_reduce(world, e, rankcast::product);
    EXPECT_EQ(e, (std::array<bool, 2>{false, true}));
  });
}

TEST(reductions, nan_wins) {
  const float nan = std::nanf("");
  run_ranks(3, [&](rankcast::communicator& world) {
    for (int holder = 0; holder < 3; ++holder) {
      float low = world.rank() == holder ? nan : 1.0f;
      float high = low;
      rankcast::all_reduce(world, low, rankcast::minimum);
      rankcast::all_reduce(world, high, rankcast::maximum);
      EXPECT_TRUE(std::isnan(low) && std::isnan(high)) << "held by rank " << holder;
    }
  });
}

// bfloat16 has 8 bits of precision: 256 + 1 rounds back to 256, so a sum that rounds after each
// rank would stay there. In float the ones add up, and the sum is rounded once.
TEST(reductions, sixteen_bits_accumulate_in_float) {
  run_ranks(7, [](rankcast::communicator& world) {
    for (const std::size_t n : {std::size_t{3}, std::size_t{300}}) {
      std::vector<rankcast::bfloat16> b(n, rankcast::bfloat16(world.rank() == 0 ? 256.0f : 1.0f));
      rankcast::all_reduce(world, b);
      std::vector<rankcast::float16> h(n, rankcast::float16(world.rank() == 0 ? 2048.0f : 1.0f));
      rankcast::all_reduce(world, h);
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_EQ(static_cast<float>(b[i]), 262.0f);
        EXPECT_EQ(static_cast<float>(h[i]), 2054.0f);
      }
    }
  });
}

// Floats whose sum hangs on the order: the result is the left fold in rank order, to the bit, on
// every rank, in every call, in both forms and every time. Larger than the scratch of a fold too.
TEST(reductions, order_is_the_rank_order) {
  for (const int ranks : {2, 3, 7, 8}) {
    for (const std::size_t n : {std::size_t{5}, std::size_t{97}, std::size_t{20000}}) {
      by_rank<float> in(index(ranks));
      std::mt19937 random(7);
      std::uniform_real_distribution<float> mantissa(-1, 1);
      std::uniform_int_distribution<int> exponent(-20, 20);
      for (auto& v : in) {
        for (std::size_t i = 0; i < n; ++i)
          v.push_back(std::ldexp(mantissa(random), exponent(random)));
      }
      const auto wanted = support::oracle::reduce(in, rankcast::sum);
      auto backwards = in;
      std::reverse(backwards.begin(), backwards.end());
      if (ranks > 2 && n > 5) {  // the data can tell
        ASSERT_NE(wanted, support::oracle::reduce(backwards, rankcast::sum));
      }
      run_ranks(ranks, [&](rankcast::communicator& world) {
        for (int run = 0; run < 3; ++run) {
          const auto& mine = in[index(world.rank())];
          std::vector<float> got(n);
          rankcast::all_reduce(world, mine, got);
          EXPECT_EQ(std::memcmp(got.data(), wanted.data(), n * sizeof(float)), 0);
          std::vector<float> at_root(n);
          rankcast::reduce(world, mine, at_root, rankcast::sum, {.root = ranks - 1});
          if (world.rank() == ranks - 1) {
            EXPECT_EQ(std::memcmp(at_root.data(), wanted.data(), n * sizeof(float)), 0);
          }
          const auto counts = rankcast::partition_counts(static_cast<std::int64_t>(n), ranks);
          const auto own = rankcast::partition(static_cast<std::int64_t>(n), ranks, world.rank());
          std::vector<float> share(index(own.count));
          rankcast::reduce_scatter(world, mine, share, rankcast::sum, {.counts = counts});
          EXPECT_TRUE(std::equal(share.begin(), share.end(), wanted.begin() + own.first));
        }
      });
    }
  }
}

TEST(reductions, guarantee_is_stated) {
  run_ranks(2, [](rankcast::communicator& world) {
    EXPECT_CONTAINS(std::string(world.reduction_guarantee()), "bit-identical");
  });
}

}  // namespace
