/// Objects that come into being while they are read: elements of a container that had fewer, and
/// types without a default constructor, which say with Boost's load_construct_data() how they
/// begin.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include <boost/serialization/serialization.hpp>
#include <boost/serialization/version.hpp>

#include "rankcast/object/iarchive.hpp"

namespace rankcast::inline v0::detail {

/// A new T, read from an archive where oarchive::element wrote one.
template <class T>
class built {
 public:
  explicit built(iarchive& in) : object_(begin(in)) { in.get(*object_); }
  [[nodiscard]] T&& take() noexcept { return std::move(*object_); }

 private:
  struct destroy {
    void operator()(T* p) const noexcept { p->~T(); }
  };

  T* begin(iarchive& in) {
    T* p = reinterpret_cast<T*>(memory_);
    if constexpr (std::is_default_constructible_v<T>) {
      return ::new (static_cast<void*>(p)) T();
    } else {
      boost::serialization::load_construct_data_adl(in, p, boost::serialization::version<T>::value);
      return std::launder(p);
    }
  }

  alignas(T) std::byte memory_[sizeof(T)];
  std::unique_ptr<T, destroy> object_;
};

}  // namespace rankcast::inline v0::detail
