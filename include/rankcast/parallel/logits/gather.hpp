/// Whole logits from their shards, at one rank or at all: each shard goes straight to its columns
/// of the output, without padding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rankcast/collectives/options.hpp"
#include "rankcast/parallel/logits/exchange.hpp"

namespace rankcast::inline v0 {

namespace detail {

/// Rows of one shard that travel at once; the scratch of a conversion.
inline constexpr std::int64_t gather_block_bytes = 1024 * 1024;

/// Joins shards in row blocks, one shard at a time.
class logit_gatherer {
 public:
  /// Without a root: to all ranks. `out` is looked at on ranks that receive.
  logit_gatherer(const sharded_vocabulary& vocabulary, const const_tensor_view& logits,
                 const tensor_view* out, std::optional<int> root, std::string_view name,
                 const call_options& options, call_site where)
      : call_(vocabulary, logits, name, options, where), logits_(logits), root_(root) {
    const int rank = call_.comm().rank();
    if (root && (*root < 0 || *root >= call_.comm().size())) {
      call_.refuse("root " + std::to_string(*root) + " is outside of a group of " +
                   std::to_string(call_.comm().size()) + " (roots are numbered within the group)");
    }
    receives_ = !root || *root == rank;
    if (receives_ && out == nullptr) call_.refuse("the output is missing at the root");
    if (receives_) {
      out_ = *out;
      check_output();
    }
    call_.agree_on("root, rows or dtype", root.value_or(-1));
    call_.agree_on("root, rows or dtype", logits.dtype());
  }

  void run() {
    row_exchange<std::uint64_t> agreement(call_);  // so that no rank moves data if one cannot
    agreement.begin(0);
    agreement.run();
    const auto element_bytes = static_cast<std::int64_t>(size_of(logits_.dtype()));
    for (int owner = 0; owner < call_.comm().size(); ++owner) {
      const vocabulary_shard& shard = call_.vocabulary().of(owner);
      if (shard.count == 0) continue;
      const std::int64_t block =
          std::max<std::int64_t>(1, gather_block_bytes / (shard.count * element_bytes));
      for (std::int64_t row = 0; row < call_.rows(); row += block) {
        move(owner, shard, row, std::min(block, call_.rows() - row));
      }
    }
  }

 private:
  void check_output() const {
    const std::int64_t size = call_.vocabulary().size();
    if (out_.dimensions() != 2 || out_.extent(0) != call_.rows() || out_.extent(1) != size) {
      call_.refuse("output of " + out_.text() + ", wanted (" + std::to_string(call_.rows()) + "," +
                   std::to_string(size) + ")");
    }
    if (out_.memory() != memory_kind::host) call_.refuse("the output is in device memory");
    if (out_.dtype() != logits_.dtype() && out_.dtype() != dtype::float32) {
      call_.refuse("output of " + std::string(rankcast::name(out_.dtype())) + " for logits of " +
                   std::string(rankcast::name(logits_.dtype())) +
                   ": the same type or float32 is needed");
    }
    if (overlaps_itself(out_.layout())) {
      call_.refuse("the strides of the output visit an address twice");
    }
    const buffer own = make_buffer(real_columns(0, call_.rows()));
    const buffer place = make_buffer(columns_of(call_.vocabulary().mine(), 0, call_.rows()));
    const bool in_place = own.type == place.type && same_place(own, place);
    if (!in_place && overlap(own, make_buffer(out_))) {
      call_.refuse("the logits overlap the output, and not as its own columns");
    }
  }

  [[nodiscard]] const_tensor_view real_columns(std::int64_t row, std::int64_t rows) const {
    return logits_.slice(0, row, rows).slice(1, 0, call_.vocabulary().mine().count);
  }
  [[nodiscard]] tensor_view columns_of(const vocabulary_shard& s, std::int64_t row,
                                       std::int64_t rows) const {
    return out_.slice(0, row, rows).slice(1, s.first, s.count);
  }

  // Rows [row, row + rows) of one shard, from its owner to who receives.
  void move(int owner, const vocabulary_shard& shard, std::int64_t row, std::int64_t rows) {
    const bool own = owner == call_.comm().rank();
    if (own && receives_) convert(real_columns(row, rows), columns_of(shard, row, rows));
    if (root_ && owner == *root_) return;  // it has its own share: nothing travels
    operation op;
    op.code = root_ ? opcode::gather : opcode::broadcast;
    op.root = root_.value_or(owner);
    op.where = call_.where();
    std::vector<std::int64_t> counts;
    if (root_) {  // a gather to which one rank gives all
      counts.resize(static_cast<std::size_t>(call_.comm().size()), 0);
      counts[static_cast<std::size_t>(owner)] = rows * shard.count;
      op.counts = counts;
    }
    if (own) op.send = make_buffer(real_columns(row, rows));
    else if (root_) op.send = make_buffer(real_columns(row, 0));
    if (own || !receives_) {
      call_.comm().run(op, call_.options());
      return;
    }
    const tensor_view place = columns_of(shard, row, rows);
    if (place.dtype() == logits_.dtype()) {
      op.receive = make_buffer(place);
      call_.comm().run(op, call_.options());
      return;
    }
    scratch_.resize(static_cast<std::size_t>(rows * shard.count) * size_of(logits_.dtype()));
    const tensor_view received(scratch_.data(), logits_.dtype(),
                               layout::contiguous({rows, shard.count}));
    op.receive = make_buffer(received);
    call_.comm().run(op, call_.options());
    convert(received, place);
  }

  // The same values, to the output's type.
  static void convert(const const_tensor_view& from, const tensor_view& to) {
    if (from.dtype() == to.dtype()) {
      copy_elements(to.address(), to.layout(), 0, from.address(), from.layout(), 0, from.elements(),
                    size_of(from.dtype()));
      return;
    }
    const logit_rows rows(from, from.extent(1));
    for (std::int64_t row = 0; row < from.extent(0); ++row) {
      float* out = to.data<float>() + row * to.layout().stride(0);
      const std::int64_t stride = to.layout().stride(1);
      rows.each_chunk(row,
                      [&](std::int64_t first, std::int64_t n, const logit_chunk& x, std::size_t) {
                        for (std::int64_t i = 0; i < n; ++i) {
                          out[(first + i) * stride] = x[static_cast<std::size_t>(i)];
                        }
                        return true;
                      });
    }
  }

  logit_call call_;
  const_tensor_view logits_;
  tensor_view out_;
  std::optional<int> root_;
  bool receives_ = false;
  std::vector<std::byte> scratch_;
};

}  // namespace detail

/// Joins the shards of all ranks at the root: out[row][id] is the logit of `id`, padding left out.
///
/// Shape    logits: this rank's shard, [rows, width], one of float32, bfloat16 and float16, the
///          same on all ranks; any strides. out, at the root: [rows, vocabulary] of that type or of
///          float32, any strides; the root's logits may be its own columns of `out`. Elsewhere
///          ignored (pass `nothing`).
/// Errors   usage_error where it is seen and remote_error elsewhere, before any data moves: a root
///          outside the group, shapes or types that do not fit, overlap in part. mismatch_error
///          when ranks give other roots, rows or types. Then as every collective.
/// Cost     an all_gather of 40 bytes, then for each shard but the root's one gather per MiB of
///          it; every other rank sends its real columns once, in their own type. No copy between;
///          only where 16-bit logits become float32 the root allocates 1 MiB (or one row).
inline void gather_logits(const sharded_vocabulary& vocabulary, const const_tensor_view& logits,
                          const tensor_view& out, rooted_options options = {},
                          call_site where = call_site::here()) {
  detail::logit_gatherer(vocabulary, logits, &out, options.root, "gather_logits",
                         detail::common(options), where)
      .run();
}

/// The same on a rank that is not the root.
inline void gather_logits(const sharded_vocabulary& vocabulary, const const_tensor_view& logits,
                          nothing_t, rooted_options options = {},
                          call_site where = call_site::here()) {
  detail::logit_gatherer(vocabulary, logits, nullptr, options.root, "gather_logits",
                         detail::common(options), where)
      .run();
}

/// Joins the shards of all ranks at every rank.
///
/// Shape    as gather_logits, `out` on all ranks; whether it is float32 is each rank's own choice.
/// Errors   as gather_logits.
/// Cost     an all_gather of 40 bytes, then for each shard one broadcast per MiB of it; every rank
///          receives the real columns of the others once. Memory as the root's of gather_logits.
inline void all_gather_logits(const sharded_vocabulary& vocabulary, const const_tensor_view& logits,
                              const tensor_view& out, call_options options = {},
                              call_site where = call_site::here()) {
  detail::logit_gatherer(vocabulary, logits, &out, std::nullopt, "all_gather_logits", options,
                         where)
      .run();
}

}  // namespace rankcast::inline v0
