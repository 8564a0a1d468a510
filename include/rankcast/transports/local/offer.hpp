/// What a rank shows of a call on the board, and what its peers make of it. The fingerprint covers
/// what must agree; only where that or the elements differ does anybody look at the details.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "rankcast/core/agreement.hpp"
#include "rankcast/core/operation.hpp"
#include "rankcast/transports/local/group.hpp"
#include "rankcast/transports/local/names.hpp"
#include "rankcast/transports/local/revoke.hpp"

namespace rankcast::inline v0::local {

/// What all readers look at: written before the call is shown.
inline void show(const group& g, const operation& op, slot_head& s) noexcept {
  const buffer& own = own_block(op);
  const bool message = is_message(op);
  const int root = has_root(op.code) ? op.root : -1;
  const std::uint64_t small =
      static_cast<std::uint64_t>(op.code) | (static_cast<std::uint64_t>(message) << 8) |
      (static_cast<std::uint64_t>(message ? dtype::bytes : own.type) << 16) |
      (static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << 32);
  // Three products at once: a chain of them would take longer than to move a cache line.
  const std::uint64_t h = (small * 0x9e3779b97f4a7c15u) ^
                          (op.reduction.type_hash * 0xff51afd7ed558ccdu) ^
                          (op.message_type.hash * 0xc4ceb9fe1a85ec53u);
  const std::int64_t elements = own.elements();
  s.fingerprint = h ^ (h >> 29);
  s.elements = op.code == opcode::all_to_all ? elements / g.size : elements;
  s.bytes = 0;
  s.place = 0;
  s.how = form::nothing;
  s.plain = op.counts.empty();
  s.refused = false;
  s.flat = false;
}

/// True when the slot's number of elements is the shape.
[[nodiscard]] inline bool shape_in_slot(const detail_of_call& d) noexcept {
  return d.dimensions == 1 && d.code != opcode::all_to_all;
}

/// What is read only where ranks differ, or give counts: written after the call was shown.
inline void show_detail(const group& g, int rank, std::uint64_t sequence, const operation& op,
                        names& texts) noexcept {
  const buffer& own = own_block(op);
  detail_of_call& d = g.lines.detail(rank, sequence);
  d.code = op.code;
  d.message = is_message(op);
  d.uneven = !op.counts.empty();
  d.type = own.type;
  d.root = has_root(op.code) ? op.root : -1;
  d.line = op.where.line;
  d.file = texts.place_of_file(op.where.file);
  d.reduction_name = texts.place_of(op.reduction.name);
  d.type_name = texts.place_of(op.message_type.name);
  d.reduction_hash = op.reduction.type_hash;
  d.type_hash = op.message_type.hash;
  d.counts_hash = hash_of_counts(op.counts);
  d.failed = false;
  d.slice_failed = false;
  d.dimensions = static_cast<std::uint8_t>(own.elements_layout.dimensions);
  if (!shape_in_slot(d)) {
    std::copy_n(own.elements_layout.shape.begin(), d.dimensions, d.shape);
  }
  if (!d.uneven) return;
  std::int64_t* counts = g.lines.counts(rank, sequence);
  for (std::size_t r = 0; r < op.counts.size() && r < static_cast<std::size_t>(g.size); ++r) {
    counts[r] = op.counts[r];
  }
}

/// A rank's call as `examine` wants it.
[[nodiscard]] inline call_offer offer_of(const group& g, int rank, std::uint64_t sequence) {
  const slot& s = g.lines.slot_of(rank, sequence);
  const detail_of_call& d = g.lines.detail(rank, sequence);
  const name_table& texts = g.of(rank).names;
  call_offer o;
  if (s.refused) o.refusal = get_text(d.text);
  o.record.code = d.code;
  o.record.message = d.message;
  o.record.uneven = d.uneven;
  o.record.type = d.type;
  o.record.root = d.root;
  o.record.elements = s.elements;
  o.record.reduction_hash = d.reduction_hash;
  o.record.counts_hash = d.counts_hash;
  o.record.reduction_name = text_at(texts, d.reduction_name);
  o.record.message_type = {d.type_hash, text_at(texts, d.type_name)};
  const std::size_t dimensions = std::min<std::size_t>(d.dimensions, max_dimensions);
  o.record.shape.dimensions = static_cast<int>(dimensions);
  if (shape_in_slot(d)) o.record.shape.shape[0] = s.elements;
  else std::copy_n(d.shape, dimensions, o.record.shape.shape.begin());
  std::fill_n(o.record.shape.strides.begin(), dimensions, 1);  // nobody asks
  o.record.where = {text_at(texts, d.file), d.line};
  if (d.uneven) {
    const std::int64_t* counts = g.lines.counts(rank, sequence);
    o.counts.assign(counts, counts + g.size);
  }
  return o;
}

/// The counts that a rank gave, empty for equal shares.
[[nodiscard]] inline std::span<const std::int64_t> counts_of(const group& g, int rank,
                                                             std::uint64_t sequence) noexcept {
  if (g.lines.slot_of(rank, sequence).plain) return {};
  return {g.lines.counts(rank, sequence), static_cast<std::size_t>(g.size)};
}

/// What is `place` in the stage ring of a rank.
[[nodiscard]] inline std::byte* staged(const group& g, int rank, std::uint64_t place) noexcept {
  return g.lines.stage_ring(rank) + place % g.sizes.stage_bytes;
}
/// Small data of a rank, wherever they are on the board.
[[nodiscard]] inline const std::byte* data_on_board(const group& g, int rank,
                                                    const slot& s) noexcept {
  return s.how == form::here ? s.data : staged(g, rank, s.place);
}
/// Flat data that a rank lent, where they are now. With the reader's mark raised.
[[nodiscard]] inline const std::byte* data_lent(const group& g, int rank, const slot& s) noexcept {
  if (const std::uint64_t moved = s.lent().here.moved(); moved != 0) {
    return staged(g, rank, moved - 1);
  }
  return reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(s.place));
}

}  // namespace rankcast::inline v0::local
