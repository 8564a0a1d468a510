/// oarchive writes objects. It models Boost.Serialization's archive concept, so a type's
/// serialize() runs on it unchanged, but stores bytes in the order they come: no class names, no
/// tracking.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include <boost/mpl/bool.hpp>
#include <boost/serialization/array_wrapper.hpp>
#include <boost/serialization/serialization.hpp>
#include <boost/serialization/version.hpp>

#include "rankcast/core/error.hpp"
#include "rankcast/object/codec.hpp"
#include "rankcast/object/type_name.hpp"

namespace rankcast::inline v0 {

namespace detail {

/// Set in the count of data that travel out of band.
inline constexpr std::uint64_t apart_mark = std::uint64_t{1} << 63;

}  // namespace detail

class oarchive {
 public:
  using is_saving = boost::mpl::true_;
  using is_loading = boost::mpl::false_;

  /// Writes into a buffer of its own.
  oarchive() noexcept : buffer_(&own_) {}
  /// Writes into `slot`, and moves to a buffer of its own when that is too small: see spilled().
  explicit oarchive(std::span<std::byte> slot) noexcept
      : buffer_(nullptr), begin_(slot.data()), at_(slot.data()), end_(slot.data() + slot.size()) {}
  /// The same, but moves to `buffer`, which is empty.
  oarchive(std::span<std::byte> slot, std::vector<std::byte>& buffer) noexcept : oarchive(slot) {
    spill_ = &buffer;
  }
  /// Appends to `buffer`, which may be longer than what was written until finish().
  explicit oarchive(std::vector<std::byte>& buffer) noexcept
      : buffer_(&buffer), begin_(buffer.data()), at_(begin_ + buffer.size()), end_(at_) {}
  oarchive(const oarchive&) = delete;
  oarchive& operator=(const oarchive&) = delete;

  /// From now on contiguous data of at least `out_of_band_bytes` are not copied but noted in
  /// `segments`, if they certainly outlive the archive: owned by the root object, directly or
  /// through containers. The root object must live, unchanged, as long as the segments are used.
  void collect(std::vector<std::span<const std::byte>>* segments) noexcept { segments_ = segments; }

  /// Writes a whole object. Throws usage_error if it nests deeper than `max_object_depth`, or if it
  /// is really of a class derived from T; and what the buffer and user code throw.
  template <class T>
  void root(const T& object) {
#ifdef __cpp_rtti
    if constexpr (std::is_polymorphic_v<T> && !std::is_final_v<T>) {
      if (typeid(object) != typeid(T)) {
        throw usage_error("object: asked to write a " + std::string(type_name<T>()) +
                          ", but this one is of a class derived from it and would be cut; wrap it "
                          "as rankcast::tracked(x)");
      }
    }
#endif
    if (segments_ != nullptr) trust(&object, sizeof(T));
    put(object);
    trusted_begin_ = trusted_end_ = 0;
  }

  /// Boost's interface: writes one value.
  template <class T>
  oarchive& operator<<(const T& value) {
    put(value);
    return *this;
  }
  template <class T>
  oarchive& operator&(const T& value) {
    put(value);
    return *this;
  }

  // --- for codecs ------------------------------------------------------------------------------

  /// Writes one value that lies within the object being written.
  template <class T>
  void put(const T& value) {
    if constexpr (bitwise<T>) {
      append(&value, sizeof(T));
    } else if constexpr (detail::own_codec<T>) {
      codec<T>::save(*this, value);
    } else {
      if (++depth_ > max_object_depth) throw_depth();
      const std::size_t before = size();
      codec<T>::save(*this, value);
      // A reader bounds counts by the bytes at hand, so nothing may take none.
      if (size() == before) filler();
      --depth_;
    }
  }

  /// Writes one element of a container, with what it takes to construct it.
  template <class T>
  void element(const T& value) {
    if constexpr (!std::is_default_constructible_v<T>) {
      boost::serialization::save_construct_data_adl(*this, &value,
                                                    boost::serialization::version<T>::value);
    }
    put(value);
  }

  void count(std::size_t n) {
    const std::uint64_t wide = n;
    append(&wide, sizeof wide);
  }

  /// Replaces the count that was written at offset `at`.
  void patch_count(std::size_t at, std::size_t n) noexcept {
    const std::uint64_t wide = n;
    std::memcpy(begin_ + at, &wide, sizeof wide);
  }

  /// Writes `n` elements that lie back to back, and their number. `owner` is the container whose
  /// memory they are: if it belongs to the object being written, they may travel out of band.
  template <class T>
  void bulk(const void* owner, const T* data, std::size_t n) {
    static_assert(bitwise<T>);
    const std::size_t bytes = n * sizeof(T);
    const std::uint64_t wide = n;
    if (bytes >= many_bytes) {
      bulk_of_many(owner, data, bytes, wide);
      return;
    }
    std::byte* to = room(sizeof wide + bytes);  // one check for both
    std::memcpy(to, &wide, sizeof wide);
    if (bytes != 0) std::memcpy(to + sizeof wide, data, bytes);
    at_ += sizeof wide + bytes;
  }

  void filler() {
    const std::byte zero{};
    append(&zero, 1);
  }

  /// True if `address` lies in memory that the object being written owns.
  [[nodiscard]] bool trusts(const void* address) const noexcept {
    const auto a = reinterpret_cast<std::uintptr_t>(address);
    return trusted_begin_ <= a && a < trusted_end_;
  }

  /// While it lives, memory owned by `owner` counts as owned by the object being written, if
  /// `owner` does: the elements of a container that is a member, not of one local to some save().
  class reach {
   public:
    reach(oarchive& out, const void* owner) noexcept
        : out_(out),
          begin_(out.trusted_begin_),
          end_(out.trusted_end_),
          owned_(out.trusts(owner)) {}
    reach(const reach&) = delete;
    reach& operator=(const reach&) = delete;
    ~reach() {
      out_.trusted_begin_ = begin_;
      out_.trusted_end_ = end_;
    }
    void over(const void* first, std::size_t bytes) noexcept {
      if (owned_) out_.trust(first, bytes);
    }

   private:
    oarchive& out_;
    std::uintptr_t begin_, end_;
    bool owned_;
  };

  // --- what Boost's archives have too ----------------------------------------------------------

  /// Copies `n` bytes as they are.
  void save_binary(const void* data, std::size_t n) {
    if (n != 0) append(data, n);
  }
  template <class T>
  void save_array(const boost::serialization::array_wrapper<T>& array, unsigned int) {
    save_binary(array.address(), array.count() * sizeof(T));
  }
  template <class T>
  void register_type(const T* = nullptr) noexcept {}
  [[nodiscard]] static constexpr std::uint16_t get_library_version() noexcept {
    return 18;
  }
  template <class Helper>
  Helper& get_helper(const void* = nullptr) {
    static_assert(detail::never<Helper>,
                  "rankcast: this type's serialize() needs Boost's own archive (get_helper); wrap "
                  "the object as rankcast::tracked(x), from rankcast/object/tracked.hpp");
  }

  // --- the result ------------------------------------------------------------------------------

  /// What has been written. Valid until the next write.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {begin_, size()};
  }
  /// Where it begins, for who has something to fill in.
  [[nodiscard]] std::byte* begin() const noexcept {
    return begin_;
  }
  [[nodiscard]] std::size_t size() const noexcept {
    return static_cast<std::size_t>(at_ - begin_);
  }
  /// True if the slot was too small and bytes() lie elsewhere.
  [[nodiscard]] bool spilled() const noexcept {
    return spilled_;
  }
  /// Cuts the buffer to what was written.
  void finish() {
    if (buffer_ == nullptr) return;
    buffer_->resize(size());
    end_ = at_;
  }
  /// Forgets what was written and keeps the memory.
  void clear() noexcept {
    at_ = begin_;
    depth_ = 0;
  }

 private:
  static constexpr std::size_t first_window = 512;
  static constexpr std::size_t last_window = 16 * 1024;
  static constexpr std::size_t many_bytes = 1024;  // for which a call costs nothing

  void append(const void* data, std::size_t n) {
    std::memcpy(room(n), data, n);
    at_ += n;
  }

  std::byte* room(std::size_t n) {
    if (n > static_cast<std::size_t>(end_ - at_)) [[unlikely]]
      open_window(n);
    return at_;
  }

  // A vector grows by zeros. Windows small enough for the first cache keep that cheap, also when
  // the vector has its memory already.
  [[gnu::noinline]] void open_window(std::size_t n) {
    leave_slot(n);
    const std::size_t used = size();
    buffer_->resize(used + std::max(n, window_));
    window_ = std::min(2 * window_, last_window);
    aim(used, buffer_->size());
  }

  [[gnu::noinline]] void bulk_of_many(const void* owner, const void* data, std::size_t bytes,
                                      std::uint64_t n) {
    const auto* first = static_cast<const std::byte*>(data);
    if (segments_ != nullptr && bytes >= out_of_band_bytes && trusts(owner)) {
      n |= detail::apart_mark;
      append(&n, sizeof n);
      segments_->emplace_back(first, bytes);
      return;
    }
    append(&n, sizeof n);
    if (bytes <= static_cast<std::size_t>(end_ - at_)) {
      append(first, bytes);
      return;
    }
    leave_slot(bytes);
    buffer_->resize(size());
    buffer_->insert(buffer_->end(), first, first + bytes);
    window_ = first_window;
    aim(buffer_->size(), buffer_->size());
  }

  void leave_slot(std::size_t n) {
    if (buffer_ != nullptr) return;
    const std::size_t used = size();
    spill_->reserve(2 * (used + n));
    spill_->assign(begin_, at_);
    buffer_ = spill_;
    spilled_ = true;
    aim(used, used);
  }

  void aim(std::size_t used, std::size_t end) noexcept {
    begin_ = buffer_->data();
    at_ = begin_ + used;
    end_ = begin_ + end;
  }

  void trust(const void* first, std::size_t bytes) noexcept {
    trusted_begin_ = reinterpret_cast<std::uintptr_t>(first);
    trusted_end_ = trusted_begin_ + bytes;
  }

  [[noreturn, gnu::cold]] static void throw_depth() {
    throw usage_error("object: it nests deeper than " + std::to_string(max_object_depth) +
                      " objects, the most that can be sent; keep long chains in a vector");
  }

  std::vector<std::byte> own_;
  std::vector<std::byte>* buffer_;  // null: in the slot
  std::vector<std::byte>* spill_ = &own_;
  std::byte* begin_ = nullptr;
  std::byte* at_ = nullptr;
  std::byte* end_ = nullptr;
  std::size_t window_ = first_window;
  std::vector<std::span<const std::byte>>* segments_ = nullptr;
  std::uintptr_t trusted_begin_ = 0;
  std::uintptr_t trusted_end_ = 0;
  int depth_ = 0;
  bool spilled_ = false;
};

}  // namespace rankcast::inline v0

template <>
struct boost::serialization::use_array_optimization<rankcast::oarchive> {
  template <class T>
  struct apply : boost::mpl::bool_<rankcast::bitwise<std::remove_const_t<T>>> {};
};
