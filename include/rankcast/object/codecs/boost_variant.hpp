/// Codec of boost::variant, also of recursive ones. Boost's own header for it needs a library.
#pragma once

#include <boost/mpl/at.hpp>
#include <boost/mpl/size.hpp>
#include <boost/variant/get.hpp>
#include <boost/variant/static_visitor.hpp>
#include <boost/variant/variant.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "rankcast/object/archive.hpp"

namespace rankcast::inline v0 {

// Without `native`, so that it counts as a level of nesting: a recursive variant needs no class.
template <class T0, class... T>
struct codec<boost::variant<T0, T...>> {
  using variant = boost::variant<T0, T...>;
  using types = typename variant::types;  // recursive wrappers taken off
  static constexpr std::size_t alternatives = boost::mpl::size<types>::value;

  static void save(oarchive& out, const variant& value) {
    out.put(static_cast<std::uint32_t>(value.which()));
    boost::apply_visitor(writer{out}, value);
  }
  static void load(iarchive& in, variant& value) {
    std::uint32_t index = 0;
    in.get(index);
    if (index >= alternatives) {
      in.fail("alternative " + std::to_string(index) + " of a variant of " +
              std::to_string(alternatives));
    }
    load_alternative(in, value, index, std::make_index_sequence<alternatives>());
  }

 private:
  struct writer : boost::static_visitor<> {
    explicit writer(oarchive& archive) : out(archive) {}
    template <class U>
    void operator()(const U& held) const {
      // A recursive alternative lies in memory of its own, which the variant owns.
      out.element(held);
    }
    oarchive& out;
  };

  template <std::size_t... I>
  static void load_alternative(iarchive& in, variant& value, std::size_t index,
                               std::index_sequence<I...>) {
    static_cast<void>(((I == index && (load_as<I>(in, value), true)) || ...));
  }
  template <std::size_t I>
  static void load_as(iarchive& in, variant& value) {
    using U = typename boost::mpl::at_c<types, static_cast<long>(I)>::type;
    if (value.which() != static_cast<int>(I)) {
      value = detail::built<U>(in).take();
    } else if constexpr (std::is_default_constructible_v<U>) {
      in.get(boost::strict_get<U>(value));
    } else {
      value = detail::built<U>(in).take();
    }
  }
};

}  // namespace rankcast::inline v0
