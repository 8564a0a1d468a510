/// Objects to bytes and back: both archives, and what they do with a type that has no codec of its
/// own: run its serialize(), or refuse it with a sentence.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <boost/serialization/array_wrapper.hpp>
#include <boost/serialization/collection_size_type.hpp>
#include <boost/serialization/item_version_type.hpp>
#include <boost/serialization/library_version_type.hpp>
#include <boost/serialization/nvp.hpp>

#include "rankcast/object/construct.hpp"  // IWYU pragma: export
#include "rankcast/object/iarchive.hpp"   // IWYU pragma: export
#include "rankcast/object/oarchive.hpp"   // IWYU pragma: export
#include "rankcast/object/probe.hpp"      // IWYU pragma: export

namespace rankcast::inline v0 {

namespace detail {

/// Says at compile time why T cannot be written. False where it can.
template <class T>
consteval bool is_refused() {
  if constexpr (std::is_class_v<T> || std::is_union_v<T>) return !has_serialize<T>;
  else return true;
}

template <class T>
constexpr void refuse() {
  static_assert(
      never<T>,
      "rankcast: this type has no serialize(): give it a Boost.Serialization "
      "serialize(archive, version), member or free, or specialise rankcast::codec for it");
}
template <class Pointer>
constexpr void refuse_pointer() {
  static_assert(never<Pointer>,
                "rankcast: a pointer cannot be sent by itself, for it may be shared, empty or of a "
                "derived class: wrap it, or the object that has it, as rankcast::tracked(x), from "
                "rankcast/object/tracked.hpp");
}
template <class Pointer>
constexpr void refuse_array_pointer() {
  static_assert(never<Pointer>,
                "rankcast: a unique_ptr to an array does not know its length: use a std::vector");
}

}  // namespace detail

template <class T, class Enable>
void codec<T, Enable>::save(oarchive& out, const T& value) {
  if constexpr (detail::is_refused<T>()) {
    detail::refuse<T>();
  } else {
    // Boost's convention: one serialize() for both directions, so it takes what it will not change.
    boost::serialization::serialize_adl(out, const_cast<T&>(value),
                                        boost::serialization::version<T>::value);
  }
}

template <class T, class Enable>
void codec<T, Enable>::load(iarchive& in, T& value) {
  if constexpr (detail::is_refused<T>()) {
    detail::refuse<T>();
  } else {
    boost::serialization::serialize_adl(in, value, boost::serialization::version<T>::value);
  }
}

// --- refused: what needs tracking ----------------------------------------------------------------

template <class T>
struct codec<T*> {
  static constexpr bool native = false;
  static void save(oarchive&, T* const&) { detail::refuse_pointer<T*>(); }
  static void load(iarchive&, T*&) { detail::refuse_pointer<T*>(); }
};
template <class T>
struct codec<std::shared_ptr<T>> {
  static constexpr bool native = false;
  static void save(oarchive&, const std::shared_ptr<T>&) { detail::refuse_pointer<T*>(); }
  static void load(iarchive&, std::shared_ptr<T>&) { detail::refuse_pointer<T*>(); }
};
template <class T>
struct codec<std::weak_ptr<T>> {
  static constexpr bool native = false;
  static void save(oarchive&, const std::weak_ptr<T>&) { detail::refuse_pointer<T*>(); }
  static void load(iarchive&, std::weak_ptr<T>&) { detail::refuse_pointer<T*>(); }
};

// --- Boost's wrappers ----------------------------------------------------------------------------

template <class T>
struct codec<boost::serialization::nvp<T>> {
  static constexpr bool native = false;
  using wrapper = boost::serialization::nvp<T>;
  static void save(oarchive& out, const wrapper& pair) {
    if (!is_bucket_count(pair)) out.put(pair.const_value());
  }
  static void load(iarchive& in, wrapper& pair) {
    if (!is_bucket_count(pair)) in >> pair.value();
  }

 private:
  // A hash map's buckets are counted in the type of sizes, but no elements answer for them. The
  // reader chooses its own.
  static bool is_bucket_count(const wrapper& pair) noexcept {
    if constexpr (std::is_same_v<std::remove_const_t<T>,
                                 boost::serialization::collection_size_type>) {
      return std::strcmp(pair.name(), "bucket_count") == 0;
    } else {
      return false;
    }
  }
};

template <class T>
struct codec<boost::serialization::array_wrapper<T>> {
  static constexpr bool native = false;
  using wrapper = boost::serialization::array_wrapper<T>;
  static void save(oarchive& out, const wrapper& array) {
    if constexpr (bitwise<std::remove_const_t<T>>) {
      out.save_array(array, 0);
    } else {
      for (std::size_t i = 0; i < array.count(); ++i) out.put(array.address()[i]);
    }
  }
  static void load(iarchive& in, wrapper& array) {
    if constexpr (bitwise<std::remove_const_t<T>>) {
      in.load_array(array, 0);
    } else {
      for (std::size_t i = 0; i < array.count(); ++i) in.get(array.address()[i]);
    }
  }
};

/// Sizes in Boost's own headers for containers, which believe them: checked here.
template <>
struct codec<boost::serialization::collection_size_type> {
  static constexpr bool native = true;
  using type = boost::serialization::collection_size_type;
  static void save(oarchive& out, const type& n) { out.count(n); }
  static void load(iarchive& in, type& n) { n = type(in.count()); }
};
/// All ranks run one build, so versions need no bytes.
template <>
struct codec<boost::serialization::item_version_type> {
  static constexpr bool native = false;
  using type = boost::serialization::item_version_type;
  static void save(oarchive&, const type&) {}
  static void load(iarchive&, type&) {}
};
template <>
struct codec<boost::serialization::library_version_type> {
  static constexpr bool native = false;
  using type = boost::serialization::library_version_type;
  static void save(oarchive&, const type&) {}
  static void load(iarchive&, type&) {}
};

// --- whole objects -------------------------------------------------------------------------------

/// Writes `object` into `bytes`, over what they held. Throws usage_error for one that nests too
/// deep or is of a derived class. Allocates only when `bytes` must grow.
template <class T>
void save_object(const T& object, std::vector<std::byte>& bytes) {
  bytes.clear();
  oarchive out(bytes);
  out.root(object);
  out.finish();
}

/// Reads what save_object wrote over `object`, reusing its memory. Throws decode_error, with the
/// offset, when the bytes are not exactly one T.
template <class T>
void load_object(T& object, std::span<const std::byte> bytes) {
  iarchive in(bytes);
  in.root(object);
}

}  // namespace rankcast::inline v0
