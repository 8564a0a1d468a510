/// The arguments of a call as an object that travels: read where they are at the leader, kept from
/// call to call at the workers, whose memory is used again.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "rankcast/object/codecs.hpp"

namespace rankcast::inline v0 {

namespace detail {

// How an argument is kept at a worker; views become what owns their data.
template <class A>
struct stored_argument {
  using type = std::remove_cvref_t<A>;
};
template <class T, std::size_t N>
struct stored_argument<std::span<T, N>> {
  using type = std::vector<std::remove_const_t<T>>;
};
template <>
struct stored_argument<std::string_view> {
  using type = std::string;
};
template <class A>
using stored_t = typename stored_argument<std::remove_cvref_t<A>>::type;

// Points to what is sent, or to where what is received is kept.
template <class... Stored>
struct argument_pack {
  std::tuple<Stored*...> arguments;
};

// An argument as the stored type: itself, or a copy of what a view shows.
template <class A>
class given_argument {
 public:
  explicit given_argument(const std::remove_cvref_t<A>& value) {
    if constexpr (std::is_same_v<stored_t<A>, std::remove_cvref_t<A>>) pointer_ = &value;
    else copy_.assign(value.begin(), value.end());
  }
  // Only read through.
  [[nodiscard]] stored_t<A>* get() noexcept {
    if constexpr (std::is_same_v<stored_t<A>, std::remove_cvref_t<A>>) {
      return const_cast<stored_t<A>*>(pointer_);
    } else {
      return &copy_;
    }
  }

 private:
  struct none {};
  const std::remove_cvref_t<A>* pointer_ = nullptr;
  std::conditional_t<std::is_same_v<stored_t<A>, std::remove_cvref_t<A>>, none, stored_t<A>> copy_;
};

}  // namespace detail

template <class... Stored>
struct codec<detail::argument_pack<Stored...>> {
  static void save(oarchive& out, const detail::argument_pack<Stored...>& pack) {
    oarchive::reach owned(out, &pack);
    std::apply(
        [&](const auto*... argument) {
          ((owned.over(argument, sizeof(*argument)), out.put(*argument)), ...);
        },
        pack.arguments);
  }
  static void load(iarchive& in, detail::argument_pack<Stored...>& pack) {
    std::apply([&](auto*... argument) { (in.get(*argument), ...); }, pack.arguments);
  }
};

}  // namespace rankcast::inline v0
