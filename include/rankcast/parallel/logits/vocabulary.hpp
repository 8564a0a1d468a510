/// Who holds which token ids: the share of one rank, and the shares of a group, checked once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "rankcast/collectives/gather.hpp"
#include "rankcast/core/communicator.hpp"
#include "rankcast/core/partition.hpp"

namespace rankcast::inline v0 {

/// One rank's share of the vocabulary: ids [first, first + count) in its first `count` columns,
/// then `padding` columns that stand for no token. A share may be empty, or all padding.
struct vocabulary_shard {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t padding = 0;
  std::int64_t vocabulary = 0;  // ids of all ranks

  [[nodiscard]] constexpr std::int64_t end() const noexcept { return first + count; }
  /// Columns of the rank's logits.
  [[nodiscard]] constexpr std::int64_t width() const noexcept { return count + padding; }
  friend constexpr bool operator==(const vocabulary_shard&,
                                   const vocabulary_shard&) noexcept = default;

  /// The share of `rank` by the common rule (`partition`): near-even, larger shares first, no
  /// padding. Throws usage_error as `partition` does.
  [[nodiscard]] static vocabulary_shard near_even(std::int64_t vocabulary, int ranks, int rank) {
    const slice s = partition(vocabulary, ranks, rank);
    return {.first = s.first, .count = s.count, .padding = 0, .vocabulary = vocabulary};
  }
  [[nodiscard]] static vocabulary_shard near_even(std::int64_t vocabulary,
                                                  const communicator& comm) {
    return near_even(vocabulary, comm.size(), comm.rank());
  }

  /// The share of `rank` where the table was padded at its end to `padded` rows before it was cut,
  /// as Megatron-LM does: the last ranks hold the padding.
  /// Throws usage_error when `padded` is less than the vocabulary.
  [[nodiscard]] static vocabulary_shard padded_to(std::int64_t padded, std::int64_t vocabulary,
                                                  int ranks, int rank) {
    if (padded < vocabulary) {
      throw usage_error("vocabulary_shard: a vocabulary of " + std::to_string(vocabulary) +
                        " cannot be padded to " + std::to_string(padded));
    }
    const slice s = partition(padded, ranks, rank);
    const std::int64_t first = std::min(s.first, vocabulary);
    const std::int64_t end = std::min(s.end(), vocabulary);
    return {.first = first,
            .count = end - first,
            .padding = s.count - (end - first),
            .vocabulary = vocabulary};
  }
};

/// A group of ranks and the share of the vocabulary that each of them holds. Cheap to copy and to
/// keep: make one per model and give it to every call.
class sharded_vocabulary {
 public:
  /// Tells the shares to all ranks and checks that they tile [0, vocabulary) in rank order.
  ///
  /// Errors   on every rank: usage_error naming the rank whose share does not fit, mismatch_error
  ///          when ranks speak of different vocabularies. Then as every collective.
  /// Cost     one all_gather of 32 bytes a rank; allocates the list of shares.
  sharded_vocabulary(communicator comm, const vocabulary_shard& mine, call_options options = {},
                     call_site where = call_site::here())
      : comm_(std::move(comm)), shards_(static_cast<std::size_t>(comm_.size())) {
    all_gather(comm_, mine, shards_, {.timeout = options.timeout, .completion = options.completion},
               where);
    check();
  }

  /// The near-even shares of `vocabulary`, without padding.
  sharded_vocabulary(const communicator& comm, std::int64_t vocabulary, call_options options = {},
                     call_site where = call_site::here())
      : sharded_vocabulary(comm, near_even_or_empty(vocabulary, comm), options, where) {}

  [[nodiscard]] const communicator& comm() const noexcept { return comm_; }
  [[nodiscard]] std::int64_t size() const noexcept { return shards_.front().vocabulary; }
  /// This rank's share.
  [[nodiscard]] const vocabulary_shard& mine() const { return of(comm_.rank()); }
  [[nodiscard]] const vocabulary_shard& of(int rank) const {
    return shards_.at(static_cast<std::size_t>(rank));
  }

  /// The rank that holds an id. Throws usage_error naming the id and the vocabulary.
  [[nodiscard]] int owner(std::int64_t id) const {
    for (int r = 0; r < comm_.size() && id >= 0; ++r) {
      if (id < of(r).end()) return r;
    }
    throw usage_error("token id " + std::to_string(id) + " is outside of a vocabulary of " +
                      std::to_string(size()));
  }

  /// Ids of the largest share.
  [[nodiscard]] std::int64_t largest_count() const noexcept {
    std::int64_t most = 0;
    for (const vocabulary_shard& s : shards_) most = std::max(most, s.count);
    return most;
  }

 private:
  // A vocabulary that cannot be cut is for check() to refuse, on all ranks and in one sentence.
  static vocabulary_shard near_even_or_empty(std::int64_t vocabulary, const communicator& comm) {
    if (vocabulary < 0) return {.vocabulary = vocabulary};
    return vocabulary_shard::near_even(vocabulary, comm);
  }

  void check() const {
    const std::string head = "vocabulary shards on " + comm_.text() + ": ";
    const auto share = [&](int r) {
      const vocabulary_shard& s = of(r);
      return "rank " + std::to_string(r) + " holds " + std::to_string(s.count) + " ids from " +
             std::to_string(s.first) + " on and " + std::to_string(s.padding) + " of padding";
    };
    for (int r = 1; r < comm_.size(); ++r) {
      if (of(r).vocabulary == size()) continue;
      throw mismatch_error(head + "rank 0 has a vocabulary of " + std::to_string(size()) +
                               ", rank " + std::to_string(r) + " one of " +
                               std::to_string(of(r).vocabulary),
                           "vocabulary", {0, r});
    }
    // Ids travel as 32 bits.
    if (size() < 1 || size() > std::numeric_limits<std::int32_t>::max()) {
      throw usage_error(head + "a vocabulary of " + std::to_string(size()) +
                        " ids; 1 to 2147483647 are supported");
    }
    std::int64_t next = 0;
    for (int r = 0; r < comm_.size(); ++r) {
      const vocabulary_shard& s = of(r);
      if (s.count < 0 || s.padding < 0 || s.count > size() - next) {
        throw usage_error(head + share(r) + ", in a vocabulary of " + std::to_string(size()));
      }
      if (s.first != next) {
        throw usage_error(head + share(r) + ", but the ranks before it end at " +
                          std::to_string(next));
      }
      next = s.end();
    }
    if (next != size()) {
      throw usage_error(head + "they end at " + std::to_string(next) + ", the vocabulary has " +
                        std::to_string(size()) + " ids");
    }
  }

  communicator comm_;
  std::vector<vocabulary_shard> shards_;  // by rank
};

}  // namespace rankcast::inline v0
