/// Reductions as plain values: a callable with its types erased, so that a transport can fold
/// without knowing what. The fold is a left fold in rank order; 16-bit floats are summed in float
/// and rounded once at the end.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "rankcast/core/config.hpp"
#include "rankcast/core/dtype.hpp"
#include "rankcast/core/layout.hpp"

namespace rankcast::inline v0 {

/// The erased callable. Accumulators are arrays of `accumulator_bytes` per element.
/// The callable is borrowed: it must live until the call has completed.
struct reduction {
  using load_function = void (*)(void* accumulator, const void* values, std::int64_t n);
  using fold_function = void (*)(void* accumulator, const void* values, std::int64_t n,
                                 const void* callable);
  using store_function = void (*)(void* values, const void* accumulator, std::int64_t n);
  using combine_function = void (*)(void* result, const void* first, const void* second,
                                    std::int64_t n, const void* callable);

  load_function load = nullptr;
  fold_function fold = nullptr;
  store_function store = nullptr;
  combine_function combine = nullptr;  // load, fold and store at once, of two ranks' values
  const void* callable = nullptr;
  std::uint64_t type_hash = 0;  // of the callable's type: ranks must agree
  std::string_view name = "";   // for messages
  std::size_t accumulator_bytes = 0;
};

/// The running fold of a stretch of elements over the ranks, small enough for the L1 cache.
class accumulator {
 public:
  explicit accumulator(const reduction& r) noexcept : reduction_(r) {}

  /// Elements it has room for.
  [[nodiscard]] std::int64_t capacity() const noexcept {
    return static_cast<std::int64_t>(sizeof(bytes_) / reduction_.accumulator_bytes);
  }
  /// Takes in one rank's elements [first, first + count) of a layout: the first rank's as they are,
  /// the others' by the callable.
  void add(bool first_rank, const std::byte* data, const layout& l, std::int64_t first,
           std::int64_t count, std::size_t element_bytes) {
    for_each_run(l, first, count, [&](std::int64_t at, std::int64_t offset, std::int64_t run) {
      const std::byte* values = data + offset * static_cast<std::int64_t>(element_bytes);
      if (first_rank) reduction_.load(place(at), values, run);
      else reduction_.fold(place(at), values, run, reduction_.callable);
    });
  }
  /// Rounds and stores to elements [first, first + count).
  void store(std::byte* data, const layout& l, std::int64_t first, std::int64_t count,
             std::size_t element_bytes) {
    for_each_run(l, first, count, [&](std::int64_t at, std::int64_t offset, std::int64_t run) {
      reduction_.store(data + offset * static_cast<std::int64_t>(element_bytes), place(at), run);
    });
  }

 private:
  [[nodiscard]] std::byte* place(std::int64_t at) noexcept {
    return bytes_ + static_cast<std::size_t>(at) * reduction_.accumulator_bytes;
  }
  const reduction& reduction_;
  alignas(64) std::byte bytes_[16 * 1024];
};

namespace detail {

template <class T>
constexpr std::string_view type_name() {
  return __PRETTY_FUNCTION__;
}

/// FNV-1a, 64 bit.
constexpr std::uint64_t hash_text(std::string_view text,
                                  std::uint64_t hash = 0xcbf29ce484222325u) noexcept {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

template <class T>
using accumulator_of =
    std::conditional_t<std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>, float, T>;

}  // namespace detail

/// The operations every reduction knows. Each is also a plain function object.
struct sum_t {
  static constexpr std::string_view name = "sum";
  template <class T>
  constexpr T operator()(T a, T b) const noexcept {
    if constexpr (std::is_same_v<T, bool>) return a || b;
    else if constexpr (std::is_integral_v<T>) {  // wraps, as the hardware does
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else return a + b;
  }
};
struct product_t {
  static constexpr std::string_view name = "product";
  template <class T>
  constexpr T operator()(T a, T b) const noexcept {
    if constexpr (std::is_same_v<T, bool>) return a && b;
    else if constexpr (std::is_integral_v<T>) {
      // Through 64 bits: two 16-bit values would be promoted to int, whose overflow is undefined.
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else return a * b;
  }
};
/// A NaN wins over every number, as in all_reduce of losses it should.
struct minimum_t {
  static constexpr std::string_view name = "minimum";
  template <class T>
  constexpr T operator()(T a, T b) const noexcept {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return a;
      if (b != b) return b;
    }
    return b < a ? b : a;
  }
};
struct maximum_t {
  static constexpr std::string_view name = "maximum";
  template <class T>
  constexpr T operator()(T a, T b) const noexcept {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return a;
      if (b != b) return b;
    }
    return a < b ? b : a;
  }
};
struct logical_and_t {
  static constexpr std::string_view name = "logical_and";
  template <class T>
  constexpr T operator()(T a, T b) const noexcept {
    return static_cast<T>(a != T{} && b != T{});
  }
};
struct logical_or_t {
  static constexpr std::string_view name = "logical_or";
  template <class T>
  constexpr T operator()(T a, T b) const noexcept {
    return static_cast<T>(a != T{} || b != T{});
  }
};

inline constexpr sum_t sum{};
inline constexpr product_t product{};
inline constexpr minimum_t minimum{};
inline constexpr maximum_t maximum{};
inline constexpr logical_and_t logical_and{};
inline constexpr logical_or_t logical_or{};

namespace detail {

// Whether F takes two values of A without losing any of them: a callable of two ints is not for
// doubles. Braces refuse such a conversion; where the types are deduced there is none.
template <class F, class A>
consteval bool takes_exactly() {
  if constexpr (requires { &F::operator(); } || !std::is_class_v<F>) {
    return requires(const F& f, A a) {
      f({a}, {a});
    };
  } else {
    return true;
  }
}

}  // namespace detail

/// A callable that folds two accumulators of T into one. For bfloat16 and float16 the accumulator
/// is float. It must be associative and must not throw; it may carry state, and the copy of the
/// rank that folds a slice is the one that runs. What it does not take exactly is not converted.
template <class F, class T>
concept reduces = std::invocable<const F&, detail::accumulator_of<T>, detail::accumulator_of<T>> &&
    detail::takes_exactly<F, detail::accumulator_of<T>>() && std::convertible_to<
        std::invoke_result_t<const F&, detail::accumulator_of<T>, detail::accumulator_of<T>>,
        detail::accumulator_of<T>>;

RANKCAST_INDEPENDENT_BEGIN
namespace detail {

// The operations above; of others we do not know what they look at.
template <class F>
inline constexpr bool is_ours = std::is_same_v<F, sum_t> || std::is_same_v<F, product_t> ||
                                std::is_same_v<F, minimum_t> || std::is_same_v<F, maximum_t> ||
                                std::is_same_v<F, logical_and_t> || std::is_same_v<F, logical_or_t>;

// step(0) ... step(n - 1). Independent steps go through in blocks of a fixed size, which compilers
// make wide instructions of also where they are not asked for all they can do.
template <bool Independent, class Step>
void for_each_index(std::int64_t n, Step&& step) {
  std::int64_t i = 0;
  if constexpr (Independent) {
    constexpr int block = 64;
    for (; i + block <= n; i += block) {
      RANKCAST_INDEPENDENT
      for (int k = 0; k < block; ++k) step(i + k);
    }
  }
  for (; i < n; ++i) step(i);
}

}  // namespace detail

/// The erased form of a callable for elements of type T.
template <element T, reduces<T> F>
[[nodiscard]] reduction erase_reduction(const F& callable) noexcept {
  using A = detail::accumulator_of<T>;
  reduction r;
  r.load = [](void* accumulator, const void* values, std::int64_t n) {
    auto* a = static_cast<A*>(accumulator);
    const auto* v = static_cast<const T*>(values);
    detail::for_each_index<true>(n, [=](std::int64_t i) { a[i] = static_cast<A>(v[i]); });
  };
  r.fold = [](void* accumulator, const void* values, std::int64_t n, const void* context) {
    const F& f = *static_cast<const F*>(context);
    auto* a = static_cast<A*>(accumulator);
    const auto* v = static_cast<const T*>(values);
    detail::for_each_index<detail::is_ours<F>>(
        n, [=, &f](std::int64_t i) { a[i] = static_cast<A>(f(a[i], static_cast<A>(v[i]))); });
  };
  r.store = [](void* values, const void* accumulator, std::int64_t n) {
    auto* v = static_cast<T*>(values);
    const auto* a = static_cast<const A*>(accumulator);
    detail::for_each_index<true>(n, [=](std::int64_t i) { v[i] = static_cast<T>(a[i]); });
  };
  // The result may be one of the two.
  r.combine = [](void* result, const void* first, const void* second, std::int64_t n,
                 const void* context) {
    const F& f = *static_cast<const F*>(context);
    auto* out = static_cast<T*>(result);
    const auto* a = static_cast<const T*>(first);
    const auto* b = static_cast<const T*>(second);
    detail::for_each_index<detail::is_ours<F>>(n, [=, &f](std::int64_t i) {
      out[i] = static_cast<T>(static_cast<A>(f(static_cast<A>(a[i]), static_cast<A>(b[i]))));
    });
  };
  r.callable = &callable;
  static constexpr std::uint64_t type_hash = detail::hash_text(detail::type_name<F>());
  r.type_hash = type_hash;
  if constexpr (requires {
                  { F::name } -> std::convertible_to<std::string_view>;
                })
    r.name = F::name;
  else r.name = "a callable";
  r.accumulator_bytes = sizeof(A);
  return r;
}
RANKCAST_INDEPENDENT_END

}  // namespace rankcast::inline v0
