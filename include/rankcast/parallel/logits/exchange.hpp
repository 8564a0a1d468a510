/// What the calls on logits share: the check of their arguments, and the exchange of one small
/// record per row and rank. Every exchange is headed by what all ranks must have given alike and by
/// the first faulty row a rank has met, so that all ranks throw the same error or none does, and
/// the group can be used afterwards.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "rankcast/collectives/gather.hpp"
#include "rankcast/core/communicator.hpp"
#include "rankcast/core/timeout.hpp"
#include "rankcast/parallel/logits/rows.hpp"
#include "rankcast/parallel/logits/vocabulary.hpp"

namespace rankcast::inline v0 {

/// Token ids, borrowed: any contiguous range of 32- or 64-bit integers.
class token_ids {
 public:
  token_ids() = default;
  template <std::ranges::contiguous_range R>
    requires std::ranges::sized_range<R> &&
        (std::same_as<std::ranges::range_value_t<R>, std::int32_t> ||
         std::same_as<std::ranges::range_value_t<R>, std::int64_t>)
            token_ids(const R& ids) noexcept  // NOLINT: implicit, as a span is
        : data_(std::ranges::data(ids)),
          size_(static_cast<std::int64_t>(std::ranges::size(ids))),
          wide_(sizeof(std::ranges::range_value_t<R>) == sizeof(std::int64_t)) {}

    [[nodiscard]] std::int64_t size() const noexcept {
      return size_;
    }
    [[nodiscard]] std::int64_t operator[](std::int64_t i) const noexcept {
      return wide_ ? static_cast<const std::int64_t*>(data_)[i]
                   : std::int64_t{static_cast<const std::int32_t*>(data_)[i]};
    }

   private:
    const void* data_ = nullptr;
    std::int64_t size_ = 0;
    bool wide_ = true;
};

namespace detail {

enum class row_fault : std::int32_t { none, nan, infinite, target };

/// Scratch of an exchange, per rank; rows are taken in blocks that fit.
inline constexpr std::int64_t exchange_bytes = 8 * 1024;

[[nodiscard]] inline std::int64_t rows_per_exchange(std::int64_t bytes_per_row) noexcept {
  return std::max<std::int64_t>(1, exchange_bytes / bytes_per_row);
}

/// Mixes a value into the fingerprint of a call's arguments.
template <class T>
  requires std::is_trivially_copyable_v<T>
void mix(std::uint64_t& hash, const T& value) noexcept {
  std::uint64_t bits = 0;
  static_assert(sizeof(T) <= sizeof(bits));
  std::memcpy(&bits, &value, sizeof(T));
  hash = (hash ^ bits) * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 32;
}

/// One call on sharded logits: its arguments, its one deadline, its words for errors.
class logit_call {
 public:
  logit_call(const sharded_vocabulary& vocabulary, const const_tensor_view& logits,
             std::string_view name, const call_options& options, call_site where)
      : vocabulary_(vocabulary),
        name_(name),
        completion_(options.completion),
        where_(where),
        until_(deadline::after(vocabulary.comm().effective_timeout(options.timeout))) {
    const std::int64_t width = vocabulary.mine().width();
    if (!is_logit_type(logits.dtype())) {
      refuse("logits of " + logits.text() + ": float32, bfloat16 or float16 are needed");
    }
    if (logits.memory() != memory_kind::host) refuse("the logits are in device memory");
    if (logits.dimensions() != 2 || logits.extent(1) != width) {
      refuse("logits of " + logits.text() + ", wanted (rows," + std::to_string(width) +
             "): this rank holds " + std::to_string(vocabulary.mine().count) + " ids and " +
             std::to_string(vocabulary.mine().padding) + " columns of padding");
    }
    row_count_ = logits.extent(0);
    rows_ = logit_rows(logits, vocabulary.mine().count);
    call_hash_ = hash_text(name);
    mix(arguments_, row_count_);
  }

  [[nodiscard]] const communicator& comm() const noexcept { return vocabulary_.comm(); }
  [[nodiscard]] const sharded_vocabulary& vocabulary() const noexcept { return vocabulary_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return row_count_; }
  [[nodiscard]] const logit_rows& logits() const noexcept { return rows_; }
  [[nodiscard]] call_options options() const {
    return {.timeout = until_.remaining(), .completion = completion_};
  }
  [[nodiscard]] call_site where() const noexcept { return where_; }

  /// What every rank has to give alike, beside the call and the number of rows; `label` is what a
  /// mismatch_error calls it.
  template <class T>
  void agree_on(std::string_view label, const T& value) {
    label_ = label;
    mix(arguments_, value);
  }

  /// Fails the call on all ranks for a fault that only this one may see. Before the first exchange.
  [[noreturn]] void refuse(const std::string& wrong) const {
    operation op;
    op.code = opcode::all_gather;
    op.where = where_;
    comm().refuse(op, std::string(name_) + ": " + wrong);
  }

  /// Notes a row that cannot be used; the next exchange makes all ranks throw. The first counts.
  void report(row_fault what, std::int64_t row, std::int64_t id = -1) noexcept {
    if (head_.fault != row_fault::none) return;
    head_.fault = what;
    head_.row = row;
    head_.id = id;
  }

  [[nodiscard]] bool faulty() const noexcept { return head_.fault != row_fault::none; }

  /// True when a row's summary can be worked with; else notes why not.
  bool usable(const row_summary& s, std::int64_t row, bool finite) noexcept {
    const std::int64_t first = vocabulary_.mine().first;
    if (s.nan_column >= 0) report(row_fault::nan, row, first + s.nan_column);
    if (finite && s.largest == plus_infinity) report(row_fault::infinite, row, first + s.column);
    return s.nan_column < 0 && !(finite && s.largest == plus_infinity);
  }

  /// A row without any token above -infinity on any rank: all ranks know, and all throw.
  [[noreturn]] void throw_masked(std::int64_t row) const {
    throw usage_error(text() + "row " + std::to_string(row) + " has no logit above -infinity");
  }

 private:
  template <class Record>
  friend class row_exchange;

  struct head {
    std::uint64_t call = 0;
    std::uint64_t arguments = 0;
    std::int64_t row = -1;
    std::int64_t id = -1;
    row_fault fault = row_fault::none;
    std::int32_t unused = 0;  // no padding bytes travel
  };

  [[nodiscard]] head own_head() const noexcept {
    head h = head_;
    h.call = call_hash_;
    h.arguments = arguments_;
    return h;
  }

  [[nodiscard]] std::string text() const {
    std::string s = std::string(name_) + " on " + comm().text();
    if (where_.line != 0) {
      s += std::string(" at ") + where_.file + ":" + std::to_string(where_.line);
    }
    return s + ": ";
  }

  // Every rank looks at the same heads and comes to the same end.
  void judge(std::span<const head> heads) const {
    const auto disagree = [&](std::size_t r, std::string_view argument) {
      throw mismatch_error(text() + "rank " + std::to_string(r) + " gave other " +
                               std::string(argument) + " than rank 0",
                           std::string(argument), {0, static_cast<int>(r)});
    };
    for (std::size_t r = 1; r < heads.size(); ++r) {
      if (heads[r].call != heads[0].call) disagree(r, "call");
      if (heads[r].arguments != heads[0].arguments) disagree(r, label_);
    }
    std::size_t worst = 0;
    const auto row_of = [](const head& h) {
      return h.fault == row_fault::none ? std::numeric_limits<std::int64_t>::max() : h.row;
    };
    for (std::size_t r = 1; r < heads.size(); ++r) {
      if (row_of(heads[r]) < row_of(heads[worst])) worst = r;
    }
    const head& h = heads[worst];
    const std::string row = "row " + std::to_string(h.row);
    const std::string place =
        "for id " + std::to_string(h.id) + " (rank " + std::to_string(worst) + ")";
    switch (h.fault) {
      case row_fault::none: return;
      case row_fault::nan: throw usage_error(text() + row + " has a NaN " + place);
      case row_fault::infinite: throw usage_error(text() + row + " has +infinity " + place);
      case row_fault::target:
        throw usage_error(text() + "target " + std::to_string(h.id) + " of " + row +
                          " is outside of a vocabulary of " + std::to_string(vocabulary_.size()));
    }
  }

  const sharded_vocabulary& vocabulary_;
  std::string_view name_;
  completion completion_;
  call_site where_;
  deadline until_;
  std::string_view label_ = "rows";
  std::uint64_t call_hash_ = 0;
  std::uint64_t arguments_ = 0;
  std::int64_t row_count_ = 0;
  logit_rows rows_;
  head head_;
};

/// Records of every rank, `n` of each, exchanged in one all_gather. The memory is kept from one
/// exchange to the next.
template <class Record>
class row_exchange {
  static_assert(std::is_trivially_copyable_v<Record>);

 public:
  explicit row_exchange(const logit_call& call) noexcept : call_(call) {}

  /// Room for the records of the next exchange.
  void begin(std::int64_t records) {
    records_ = static_cast<std::size_t>(records);
    mine_.resize(sizeof(head) + records_ * sizeof(Record));
    all_.resize(mine_.size() * static_cast<std::size_t>(call_.comm().size()));
  }
  void set(std::int64_t i, const Record& r) noexcept {
    std::memcpy(mine_.data() + offset(i), &r, sizeof(Record));
  }
  /// Errors: what `logit_call` describes, the same on all ranks; and as every collective.
  void run() {
    const head h = call_.own_head();
    std::memcpy(mine_.data(), &h, sizeof(head));
    const call_options o = call_.options();
    all_gather(call_.comm(), mine_, all_, {.timeout = o.timeout, .completion = o.completion},
               call_.where());
    std::vector<head> heads(static_cast<std::size_t>(call_.comm().size()));
    for (std::size_t r = 0; r < heads.size(); ++r) {
      std::memcpy(&heads[r], all_.data() + r * mine_.size(), sizeof(head));
    }
    call_.judge(heads);
  }
  [[nodiscard]] Record get(int rank, std::int64_t i) const noexcept {
    Record r;
    std::memcpy(&r, all_.data() + static_cast<std::size_t>(rank) * mine_.size() + offset(i),
                sizeof(Record));
    return r;
  }

 private:
  using head = logit_call::head;
  static std::size_t offset(std::int64_t i) noexcept {
    return sizeof(head) + static_cast<std::size_t>(i) * sizeof(Record);
  }

  const logit_call& call_;
  std::size_t records_ = 0;
  std::vector<std::byte> mine_;  // head, then records
  std::vector<std::byte> all_;   // the same of every rank
};

}  // namespace detail

}  // namespace rankcast::inline v0
