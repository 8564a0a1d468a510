/// iarchive reads what oarchive wrote, out of bytes that are not trusted: nothing is read beyond
/// their end, and nothing is allocated for a count that they cannot hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include <boost/mpl/bool.hpp>
#include <boost/serialization/array_wrapper.hpp>
#include <boost/serialization/serialization.hpp>
#include <boost/serialization/version.hpp>
#include <boost/serialization/wrapper.hpp>

#include "rankcast/core/error.hpp"
#include "rankcast/core/message.hpp"
#include "rankcast/object/codec.hpp"
#include "rankcast/object/oarchive.hpp"

namespace rankcast::inline v0 {

class iarchive {
 public:
  using is_saving = boost::mpl::false_;
  using is_loading = boost::mpl::true_;

  /// Reads `bytes`; data that travelled out of band come from `segments`, during the load, in the
  /// order in which they were written. Both must outlive the archive.
  explicit iarchive(std::span<const std::byte> bytes, segment_reader* segments = nullptr) noexcept
      : begin_(bytes.data()), at_(begin_), end_(begin_ + bytes.size()), segments_(segments) {}
  iarchive(const iarchive&) = delete;
  iarchive& operator=(const iarchive&) = delete;

  /// Reads a whole object over the one that is there. Throws decode_error when the bytes are not
  /// one T, no less and no more; the object is then valid but of no particular value.
  template <class T>
  void root(T& object) {
    *this >> object;
    finish();
  }

  /// Boost's interface: reads one value, or through a wrapper such as make_nvp.
  template <class T>
  iarchive& operator>>(T&& value) {
    using U = std::remove_cvref_t<T>;
    static_assert(!std::is_const_v<std::remove_reference_t<T>> ||
                      boost::serialization::is_wrapper<U>::type::value,
                  "rankcast: a constant cannot be loaded; in a class with constant members, write "
                  "load_construct_data()");
    get(const_cast<U&>(value));
    return *this;
  }
  template <class T>
  iarchive& operator&(T&& value) {
    return *this >> static_cast<T&&>(value);
  }

  // --- for codecs ------------------------------------------------------------------------------

  /// Reads over one value.
  template <class T>
  void get(T& value) {
    if constexpr (bitwise<T>) {
      copy_checked<T>(&value, take(sizeof(T)), sizeof(T));
    } else if constexpr (detail::own_codec<T>) {
      codec<T>::load(*this, value);
    } else {
      if (++depth_ > max_object_depth) {
        fail("nests deeper than " + std::to_string(max_object_depth) + " objects");
      }
      const std::byte* before = at_;
      codec<T>::load(*this, value);
      if (at_ == before) filler();
      --depth_;
    }
  }

  /// The next `n` bytes, where they lie.
  const std::byte* take(std::size_t n) {
    if (n > remaining()) [[unlikely]]
      fail_short(n);
    const std::byte* p = at_;
    at_ += n;
    return p;
  }

  /// The number of elements of a container, each of which takes at least `least` bytes.
  std::size_t count(std::size_t least = 1) {
    const std::uint64_t n = number();
    if (n > remaining() / least) [[unlikely]]
      fail_count(n);
    return static_cast<std::size_t>(n);
  }

  /// True if memory for `n` elements of `bytes` each may be taken at once: a reader is not made to
  /// allocate more than 16 times what has arrived before it has seen the elements.
  [[nodiscard]] bool covers(std::size_t n, std::size_t bytes) const noexcept {
    return n <= 16 * remaining() / bytes;
  }

  /// Elements that lie back to back: how many, and whether they come out of band.
  struct extent {
    std::size_t elements;
    bool apart;
  };

  /// Reads what `oarchive::bulk` wrote, but for the data: they are there, as many as said, or
  /// announced. To be followed by fetch().
  template <class T>
  extent bulk() {
    static_assert(bitwise<T>);
    const std::uint64_t n = number();
    if (n > remaining() / sizeof(T)) [[unlikely]]
      return bulk_apart(n, sizeof(T));
    return {static_cast<std::size_t>(n), false};
  }

  /// Fills `to` with the data of the extent read last.
  template <class T>
  void fetch(extent data, T* to) {
    const std::size_t bytes = data.elements * sizeof(T);
    if (bytes == 0) return;
    if (!data.apart) {
      copy_checked<T>(to, take(bytes), bytes);
      return;
    }
    const std::span<std::byte> all(reinterpret_cast<std::byte*>(to), bytes);
    ++next_segment_;
    segments_->read(all);
    if constexpr (detail::is_bool<T>::value) {
      if (!are_bools(all.data(), bytes)) {
        std::memset(static_cast<void*>(to), 0, bytes);
        fail("a bool that is neither 0 nor 1");
      }
    }
  }

  /// True, and the value is passed over, if the next bytes are exactly those of `value`; else
  /// nothing is read. For types whose bytes decide equality.
  template <class T>
    requires bitwise<T>
  bool pass_if(const T& value) {
    if (sizeof(T) > remaining() || std::memcmp(at_, &value, sizeof(T)) != 0) return false;
    at_ += sizeof(T);
    return true;
  }
  template <class C, class Traits, class Allocator>
  bool pass_if(const std::basic_string<C, Traits, Allocator>& value) {
    const std::uint64_t n = value.size();
    const std::size_t bytes = value.size() * sizeof(C);
    if (remaining() < sizeof n || remaining() - sizeof n < bytes) return false;
    if (std::memcmp(at_, &n, sizeof n) != 0) return false;
    if (std::memcmp(at_ + sizeof n, value.data(), bytes) != 0) return false;
    at_ += sizeof n + bytes;
    return true;
  }

  void filler() {
    if (*take(1) != std::byte{}) fail("a byte that stands for nothing is not 0");
  }

  [[nodiscard]] std::size_t remaining() const noexcept {
    return static_cast<std::size_t>(end_ - at_);
  }
  /// Bytes read so far.
  [[nodiscard]] std::size_t offset() const noexcept {
    return static_cast<std::size_t>(at_ - begin_);
  }

  /// Throws decode_error: `what`, and where.
  [[noreturn, gnu::cold, gnu::noinline]] void fail(const std::string& what) const {
    throw decode_error("object: " + what + ", at byte " + std::to_string(offset()) + " of " +
                       std::to_string(offset() + remaining()));
  }

  /// Throws decode_error unless everything has been read.
  void finish() const {
    if (at_ != end_) fail(std::to_string(remaining()) + " bytes are left over");
    if (segments_ != nullptr && next_segment_ != segments_->sizes().size()) {
      fail(std::to_string(segments_->sizes().size() - next_segment_) +
           " segments have not been asked for");
    }
  }

  // --- what Boost's archives have too ----------------------------------------------------------

  void load_binary(void* to, std::size_t n) {
    if (n != 0) std::memcpy(to, take(n), n);
  }
  template <class T>
  void load_array(boost::serialization::array_wrapper<T>& array, unsigned int) {
    if (array.count() == 0) return;
    if (array.count() > remaining() / sizeof(T)) fail_short(array.count());
    const std::size_t bytes = array.count() * sizeof(T);
    copy_checked<T>(array.address(), take(bytes), bytes);
  }
  template <class T>
  void register_type(const T* = nullptr) noexcept {}
  void reset_object_address(const void*, const void*) noexcept {}
  [[nodiscard]] static constexpr std::uint16_t get_library_version() noexcept {
    return oarchive::get_library_version();
  }
  template <class Helper>
  Helper& get_helper(const void* = nullptr) {
    static_assert(detail::never<Helper>,
                  "rankcast: this type's serialize() needs Boost's own archive (get_helper); wrap "
                  "the object as rankcast::tracked(x), from rankcast/object/tracked.hpp");
  }

 private:
  static constexpr std::uint64_t address_space = std::uint64_t{1} << 47;

  std::uint64_t number() {
    std::uint64_t n = 0;
    std::memcpy(&n, take(sizeof n), sizeof n);
    return n;
  }

  static bool are_bools(const std::byte* p, std::size_t n) noexcept {
    unsigned any = 0;
    for (std::size_t i = 0; i < n; ++i) any |= std::to_integer<unsigned>(p[i]);
    return any <= 1;
  }

  template <class T>
  void copy_checked(void* to, const std::byte* from, std::size_t bytes) {
    if constexpr (detail::is_bool<std::remove_const_t<T>>::value) {
      if (!are_bools(from, bytes)) fail("a bool that is neither 0 nor 1");
    }
    std::memcpy(to, from, bytes);
  }

  // Too many to lie here: out of band then, or forged.
  [[gnu::noinline]] extent bulk_apart(std::uint64_t n, std::size_t element_bytes) {
    if ((n & detail::apart_mark) == 0) fail_count(n);
    n &= ~detail::apart_mark;
    if (segments_ == nullptr) fail("data that came out of band are asked for, but none did");
    const std::span<const std::uint64_t> sizes = segments_->sizes();
    if (next_segment_ >= sizes.size()) {
      fail("segment " + std::to_string(next_segment_) + " is asked for, but there are only " +
           std::to_string(sizes.size()));
    }
    const std::uint64_t announced = sizes[next_segment_];
    if (announced % element_bytes != 0 || announced / element_bytes != n) {
      fail("segment " + std::to_string(next_segment_) + " has " + std::to_string(announced) +
           " bytes where " + std::to_string(n) + " elements of " + std::to_string(element_bytes) +
           " bytes are wanted");
    }
    if (announced > address_space) {
      fail("segment " + std::to_string(next_segment_) + " of " + std::to_string(announced) +
           " bytes, more than any memory");
    }
    return {static_cast<std::size_t>(n), true};
  }

  [[noreturn, gnu::cold, gnu::noinline]] void fail_short(std::size_t n) const {
    fail("ends early: " + std::to_string(n) + " more bytes are needed where " +
         std::to_string(remaining()) + " are left");
  }
  [[noreturn, gnu::cold, gnu::noinline]] void fail_count(std::uint64_t n) const {
    fail("a count of " + std::to_string(n) + " elements where " + std::to_string(remaining()) +
         " bytes are left");
  }

  const std::byte* begin_;
  const std::byte* at_;
  const std::byte* end_;
  segment_reader* segments_;
  std::size_t next_segment_ = 0;
  int depth_ = 0;
};

}  // namespace rankcast::inline v0

template <>
struct boost::serialization::use_array_optimization<rankcast::iarchive> {
  template <class T>
  struct apply : boost::mpl::bool_<rankcast::bitwise<std::remove_const_t<T>>> {};
};
