/// tracked(x): objects with shared, raw or polymorphic pointers, by way of Boost's own archive,
/// which knows what is shared and of which class it is. The one header of rankcast that needs a
/// library: link Boost::serialization.
///
///     auto graph = rankcast::tracked(root);        // as a whole
///     rankcast::broadcast_object(world, graph);
///
///     ar & name & rankcast::tracked(parent_);      // as a member, in a serialize()
///
/// Slower than what it wraps would be without pointers, and nothing of it travels out of band.
/// Boost believes the counts it reads, follows chains of pointers as deep as they go, and loses the
/// object behind the pointer at which it fails: use it only between ranks that trust each other.
#pragma once

#include <boost/archive/binary_iarchive.hpp>
#include <boost/archive/binary_oarchive.hpp>
#include <boost/serialization/wrapper.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <ios>
#include <memory>
#include <span>
#include <streambuf>
#include <string>
#include <type_traits>

#include "rankcast/object/archive.hpp"

namespace rankcast::inline v0 {

/// Stands for an object, which must outlive it; made by tracked().
template <class T>
class tracked_object : public boost::serialization::wrapper_traits<const tracked_object<T>> {
 public:
  explicit tracked_object(T& object) noexcept : object_(std::addressof(object)) {}
  [[nodiscard]] T& get() const noexcept { return *object_; }

  /// Inside Boost's own archives everything is tracked already.
  template <class Archive>
  void serialize(Archive& ar, unsigned int) const {
    ar&* object_;
  }

 private:
  T* object_;
};

/// Lets `object` be written and read by Boost's own archive. Constant, as all of Boost's wrappers
/// are, so that it can be used where it is made.
template <class T>
[[nodiscard]] const tracked_object<T> tracked(T& object) noexcept {  // NOLINT: const
  return tracked_object<T>(object);
}

namespace detail {

template <class T>
struct wire_type<tracked_object<T>> {
  using type = tracked_object<std::remove_const_t<T>>;
};

inline constexpr unsigned int tracked_flags =
    boost::archive::no_header | boost::archive::no_codecvt;

/// Writes to an archive of rankcast's.
class archive_output final : public std::streambuf {
 public:
  explicit archive_output(oarchive& out) noexcept : out_(out) {}

 private:
  std::streamsize xsputn(const char* data, std::streamsize n) override {
    out_.save_binary(data, static_cast<std::size_t>(n));
    return n;
  }
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char one = traits_type::to_char_type(c);
    out_.save_binary(&one, 1);
    return c;
  }

  oarchive& out_;
};

/// Reads bytes where they lie.
class bytes_input final : public std::streambuf {
 public:
  explicit bytes_input(std::span<const std::byte> bytes) noexcept {
    auto* first = const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
    setg(first, first, first + bytes.size());  // a streambuf that only reads
  }
  [[nodiscard]] std::size_t remaining() const noexcept {
    return static_cast<std::size_t>(egptr() - gptr());
  }
};

}  // namespace detail

template <class T>
struct codec<tracked_object<T>> {
  static constexpr bool native = false;
  using value_type = std::remove_const_t<T>;

  /// Throws usage_error with Boost's words, for instance for a class that was not exported.
  static void save(oarchive& out, const tracked_object<T>& wrapper) {
    const std::size_t at = out.size();
    out.count(0);
    try {
      detail::archive_output sink(out);
      boost::archive::binary_oarchive archive(sink, detail::tracked_flags);
      const value_type& object = wrapper.get();
      archive << object;
    } catch (const boost::archive::archive_exception& e) {
      throw usage_error(std::string("object: Boost's archive cannot write this ") +
                        std::string(type_name<value_type>()) + ": " + e.what());
    }
    out.patch_count(at, out.size() - at - sizeof(std::uint64_t));
  }

  /// Reads over the object; what it pointed to before is its classes' to release.
  static void load(iarchive& in, tracked_object<T>& wrapper) {
    static_assert(!std::is_const_v<T>, "rankcast: tracked(x) of a constant x cannot be read");
    const std::size_t n = in.count();
    detail::bytes_input source(std::span(in.take(n), n));
    std::string why;
    try {
      boost::archive::binary_iarchive archive(source, detail::tracked_flags);
      archive >> wrapper.get();
      if (source.remaining() != 0)
        why = std::to_string(source.remaining()) + " bytes are left over";
    } catch (const error&) {
      throw;
    } catch (
        const std::exception& e) {  // also what it makes of forged counts: length_error, bad_alloc
      why = e.what();
    }
    if (!why.empty()) {
      in.fail("Boost's archive cannot read a " + std::string(type_name<T>()) + ": " + why);
    }
  }
};

}  // namespace rankcast::inline v0
