/// Codecs of pair, tuple, optional, variant and unique_ptr.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "rankcast/object/archive.hpp"

namespace rankcast::inline v0 {

template <class A, class B>
struct codec<std::pair<A, B>> {
  static constexpr bool native = rankcast::native<A> && rankcast::native<B>;
  static void save(oarchive& out, const std::pair<A, B>& pair) {
    out.put(pair.first);
    out.put(pair.second);
  }
  static void load(iarchive& in, std::pair<A, B>& pair) {
    // Boost's headers for maps load a pair with a constant key before it goes into the map.
    in.get(const_cast<std::remove_const_t<A>&>(pair.first));
    in.get(const_cast<std::remove_const_t<B>&>(pair.second));
  }
};

template <class... T>
struct codec<std::tuple<T...>> {
  static constexpr bool native = (rankcast::native<T> && ...);
  static void save(oarchive& out, const std::tuple<T...>& tuple) {
    if constexpr (sizeof...(T) == 0) out.filler();
    std::apply([&](const T&... element) { (out.put(element), ...); }, tuple);
  }
  static void load(iarchive& in, std::tuple<T...>& tuple) {
    if constexpr (sizeof...(T) == 0) in.filler();
    std::apply([&](T&... element) { ((in >> element), ...); }, tuple);
  }
};

template <class T>
struct codec<std::optional<T>> {
  static constexpr bool native = rankcast::native<T>;
  static void save(oarchive& out, const std::optional<T>& value) {
    out.put(value.has_value());
    if (value) out.element(*value);
  }
  static void load(iarchive& in, std::optional<T>& value) {
    bool there = false;
    in.get(there);
    if (!there) {
      value.reset();
    } else if constexpr (std::is_default_constructible_v<T>) {
      in.get(value ? *value : value.emplace());
    } else {
      value.emplace(detail::built<T>(in).take());
    }
  }
};

template <>
struct codec<std::monostate> {
  static constexpr bool native = true;
  static void save(oarchive& out, const std::monostate&) { out.filler(); }
  static void load(iarchive& in, std::monostate&) { in.filler(); }
};

template <class... T>
struct codec<std::variant<T...>> {
  static constexpr bool native = (rankcast::native<T> && ...);
  using variant = std::variant<T...>;
  using index_type = std::conditional_t<(sizeof...(T) < 256), std::uint8_t, std::uint32_t>;

  static void save(oarchive& out, const variant& value) {
    if (value.valueless_by_exception()) {
      throw usage_error("object: a variant that lost its value to an exception cannot be sent");
    }
    out.put(static_cast<index_type>(value.index()));
    std::visit([&](const auto& held) { out.element(held); }, value);
  }
  static void load(iarchive& in, variant& value) {
    index_type index = 0;
    in.get(index);
    if (index >= sizeof...(T)) {
      in.fail("alternative " + std::to_string(index) + " of a variant of " +
              std::to_string(sizeof...(T)));
    }
    load_alternative(in, value, index, std::index_sequence_for<T...>());
  }

 private:
  template <std::size_t... I>
  static void load_alternative(iarchive& in, variant& value, std::size_t index,
                               std::index_sequence<I...>) {
    static_cast<void>(((I == index && (load_as<I>(in, value), true)) || ...));
  }
  template <std::size_t I>
  static void load_as(iarchive& in, variant& value) {
    using U = std::variant_alternative_t<I, variant>;
    if constexpr (std::is_default_constructible_v<U>) {
      if (value.index() != I) value.template emplace<I>();
      in.get(*std::get_if<I>(&value));
    } else {
      value.template emplace<I>(detail::built<U>(in).take());
    }
  }
};

/// Owns alone and knows the type of what it owns, so nothing has to be tracked.
template <class T, class Deleter>
struct codec<std::unique_ptr<T, Deleter>> {
  using pointer = std::unique_ptr<T, Deleter>;
  using value_type = std::remove_const_t<T>;
  static constexpr bool native = false;

  static void save(oarchive& out, const pointer& p) {
    if constexpr (std::is_array_v<T>) {
      detail::refuse_array_pointer<T>();
    } else if constexpr (refused) {
      detail::refuse_pointer<T*>();
    } else {
      out.put(p != nullptr);
      if (p == nullptr) return;
      oarchive::reach owned(out, &p);
      owned.over(p.get(), sizeof(T));
      if constexpr (detail::free_construct_data<value_type> && std::is_default_constructible_v<T>) {
        boost::serialization::save_construct_data_adl(
            out, const_cast<value_type*>(p.get()),
            boost::serialization::version<value_type>::value);
      }
      out.element(*p);
    }
  }

  static void load(iarchive& in, pointer& p) {
    if constexpr (std::is_array_v<T>) {
      detail::refuse_array_pointer<T>();
    } else if constexpr (refused) {
      detail::refuse_pointer<T*>();
    } else {
      bool there = false;
      in.get(there);
      if (!there) {
        p.reset();
      } else if constexpr (std::is_default_constructible_v<value_type> &&
                           !detail::free_construct_data<value_type>) {
        if (p == nullptr) p = std::make_unique<value_type>();
        in.get(const_cast<value_type&>(*p));
      } else {
        p = construct(in);
      }
    }
  }

 private:
  static constexpr bool refused =
      std::is_polymorphic_v<T> || !std::is_same_v<Deleter, std::default_delete<T>>;

  // Built where it will stay, for it may be neither copied nor moved.
  static pointer construct(iarchive& in) {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__,
                  "rankcast: a unique_ptr to an over-aligned class without default constructor");
    struct release {
      void operator()(void* memory) const noexcept { ::operator delete(memory); }
    };
    std::unique_ptr<void, release> memory(::operator new(sizeof(T)));
    auto* object = static_cast<value_type*>(memory.get());
    boost::serialization::load_construct_data_adl(in, object,
                                                  boost::serialization::version<value_type>::value);
    static_cast<void>(memory.release());
    pointer p(std::launder(object));
    in.get(*std::launder(object));
    return p;
  }
};

}  // namespace rankcast::inline v0
