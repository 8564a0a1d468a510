/// Hands every frame that arrives to the call or letter it belongs to. Frames of calls that are
/// over are answered or dropped here; what cannot be read ends the group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/transports/frames/call.hpp"
#include "rankcast/transports/frames/group.hpp"
#include "rankcast/transports/frames/letter.hpp"

namespace rankcast::inline v0::frames {

/// What a rank has in flight, in start order, and the letters that have come for it.
struct in_flight {
  std::vector<std::shared_ptr<call>> calls;
  std::vector<std::shared_ptr<letter>> letters;  // sends and receives
  mailbox box;
  std::uint64_t next_sequence = 0;
};

/// In place of a call's sequence, where a revocation is of no call in particular.
inline constexpr std::uint64_t no_sequence = ~std::uint64_t{0};

class inbox {
 public:
  inbox(group& g, in_flight& f) noexcept : group_(g), flying_(f) {}

  /// Takes in what has arrived. True if anything had.
  bool hear() {
    arrived_.clear();
    group_.lines->take(group_.id, arrived_);
    for (frame& f : arrived_) {
      const int source = header_of(f).source;
      try {
        hear(std::move(f));
      } catch (const error& e) {
        revocation r;
        r.sequence = no_sequence;
        r.text = group_.name + ": rank " + std::to_string(group_.rank) +
                 " cannot read a frame of rank " + std::to_string(source) + ": " + e.what();
        claim(group_, std::move(r));
      }
    }
    return !arrived_.empty();
  }

 private:
  void hear(frame f) {
    const frame_header h = header_of(f);
    if (h.source < 0 || h.source >= group_.size) throw decode_error("its rank is unknown");
    peer& from = group_.of(h.source);
    from.released = std::max(from.released, h.released);
    detail::byte_reader in(body_of(f), "frame");
    const bool of_call = h.what == kind::call || h.what == kind::slice || h.what == kind::done ||
                         (h.what == kind::chunk && h.phase != letter::phase);
    if (of_call && h.sequence >= group_.released + window) {
      throw decode_error("it is ahead of the window");
    }
    switch (h.what) {
      case kind::call: hear_call(h, in, std::move(f)); return;
      case kind::slice: {
        if (h.sequence < group_.released) break;
        peer_call& c = group_.call_of(h.source, h.sequence);
        if (c.streams[1].announced()) throw decode_error("it comes twice");
        c.slice_failure = in.get_text();
        begin_stream(c.streams[1], h, in, std::move(f));
        return;
      }
      case kind::chunk: hear_chunk(h, std::move(f)); return;
      case kind::grant:
        for (const auto& c : flying_.calls) {
          if (h.phase != letter::phase && c->sequence() == h.sequence) c->granted(h.source, h);
        }
        for (const auto& l : flying_.letters) {
          if (h.phase == letter::phase && l->sends(h.sequence)) l->granted(h);
        }
        break;
      case kind::done:
        if (h.sequence >= group_.released) {
          peer_call& c = group_.call_of(h.source, h.sequence);
          c.failure = in.get_text();
          c.consumed = true;
        }
        break;
      case kind::tick: break;
      case kind::revoke: group_.revoke(read_revocation(in), h.source); break;
      case kind::leave: ((h.flags & flag::closed) != 0 ? from.closed : from.left) = true; break;
      case kind::letter: {
        const auto [place, is_new] = flying_.box.try_emplace({h.source, h.sequence});
        if (!is_new) throw decode_error("it comes twice");
        arrived_letter& l = place->second;
        l.tag = h.tag;
        l.whole = (h.flags & flag::complete) != 0;
        read_offer(in, l.offer);
        begin_stream(l.stream, h, in, std::move(f));
        return;
      }
      case kind::answer:
        for (const auto& l : flying_.letters) {
          if (l->sends(h.sequence)) l->answered(h, in.get_text());
        }
        break;
      case kind::withdraw:
        if (auto it = flying_.box.find({h.source, h.sequence}); it != flying_.box.end()) {
          it->second.withdrawn = true;
          if (!it->second.taken) flying_.box.erase(it);
        }
        break;
    }
    group_.lines->recycle(std::move(f));
  }

  void hear_call(const frame_header& h, detail::byte_reader& in, frame f) {
    if (h.sequence < group_.released) {
      arrived_offer late;
      read_offer(in, late);
      require_sound(late);
      if (late.refusal.empty()) compare_late(h, late.record);
      if ((h.flags & flag::wants_all) != 0) answer_late(h);
      if ((h.flags & flag::complete) == 0 && h.position != 0) {  // its sender waits for room
        group_.post(h.source, group_.make(kind::grant, h.sequence, h.position, flag::skip));
      }
      group_.lines->recycle(std::move(f));
      return;
    }
    peer_call& c = group_.call_of(h.source, h.sequence);
    const bool notice = (h.flags & flag::notice) != 0;
    if (notice && c.known) {
      group_.lines->recycle(std::move(f));
      return;
    }
    if (c.arrived) throw decode_error("it comes twice");
    read_offer(in, c.offer);
    require_sound(c.offer);
    c.known = true;
    peer& from = group_.of(h.source);
    from.last_file = c.offer.file;
    from.last = {true,
                 h.sequence,
                 c.offer.record.code,
                 from.last_file.c_str(),
                 c.offer.record.where.line,
                 steady_clock::now()};
    if (notice) {
      group_.lines->recycle(std::move(f));
      return;
    }
    c.arrived = true;
    c.wants_all = (h.flags & flag::wants_all) != 0;
    for (const auto& own : flying_.calls) {
      if (c.wants_all && own->sequence() == h.sequence) own->asked_by(h.source);
    }
    if (!c.offer.refusal.empty()) {
      const bool passed_on = h.tag >= 0 && h.tag < group_.size && h.tag != group_.rank;
      c.refuser = passed_on ? h.tag : h.source;
      c.consumed = true;
      for (const auto& own : flying_.calls) {
        if (own->sequence() == h.sequence) own->refused_by(h.source);
      }
    }
    begin_stream(c.streams[0], h, in, std::move(f));
  }

  // What its sender would have refused itself.
  void require_sound(const call_offer& o) const {
    if (!o.refusal.empty()) return;
    const call_record& r = o.record;
    const bool no_root = has_root(r.code) && (r.root < 0 || r.root >= group_.size);
    const bool no_counts =
        !o.counts.empty() && o.counts.size() != static_cast<std::size_t>(group_.size);
    if (no_root || no_counts) throw decode_error("its call is none of this group");
  }

  // A peer that waits for all comes to a call that this rank has left.
  void answer_late(const frame_header& h) {
    const past_call& past = group_.past[h.sequence % window];
    if (h.sequence + window < flying_.next_sequence || past.told_all) return;
    if (!group_.feeds(past.record, group_.rank, h.source)) {  // else it has been sent
      frame f = group_.make(kind::call, h.sequence, 0, flag::complete);
      write_offer(f, past.record, {}, {});
      group_.post(h.source, std::move(f));
    }
    group_.post_done(h.source, h.sequence, past.failure);
  }

  // A peer makes another call than this rank made and left: found late, but found.
  void compare_late(const frame_header& h, const call_record& theirs) {
    if (h.sequence + window < flying_.next_sequence) return;
    std::vector<const call_record*> records(static_cast<std::size_t>(group_.size), nullptr);
    records[static_cast<std::size_t>(h.source)] = &theirs;
    records[static_cast<std::size_t>(group_.rank)] = &group_.past[h.sequence % window].record;
    if (theirs.code == group_.past[h.sequence % window].record.code) return;
    if (const auto d = compare_calls(records)) {
      operation op;
      op.code = theirs.code;
      claim(group_, mismatch(group_.name, op, h.sequence, *d));
    }
  }

  // The stream that a head frame announces, and, when it is small, brings.
  void begin_stream(incoming& s, const frame_header& h, const detail::byte_reader& in, frame f) {
    s.announce(h.position);
    if ((h.flags & flag::complete) == 0) {
      group_.lines->recycle(std::move(f));
      return;
    }
    if (in.rest().size() < h.position) throw decode_error("its data are cut off");
    if (h.position == 0) group_.lines->recycle(std::move(f));
    else s.push_whole(std::move(f));
  }

  void hear_chunk(const frame_header& h, frame f) {
    incoming* s = nullptr;
    if (h.phase == letter::phase) {
      const auto it = flying_.box.find({h.source, h.sequence});
      if (it != flying_.box.end()) s = &it->second.stream;
    } else if (h.sequence >= group_.released && h.phase < 2) {
      s = &group_.call_of(h.source, h.sequence).streams[h.phase];
    }
    if (s == nullptr || !s->announced()) {  // of a call that is over
      group_.lines->recycle(std::move(f));
      return;
    }
    call* const relay = h.phase == 0 ? relaying(h) : nullptr;
    if (relay != nullptr) group_.lines->share(f);
    const std::uint64_t position = s->arrived();
    const payload body = f.shared;
    s->push(std::move(f));
    if (s->overrun()) throw decode_error("it sends more than was asked for");
    if (relay != nullptr) relay->pass_on(position, body);
  }

  // The call of this rank that passes a chunk on to others.
  [[nodiscard]] call* relaying(const frame_header& h) noexcept {
    for (const auto& own : flying_.calls) {
      if (own->sequence() == h.sequence && own->relays(h.source)) return own.get();
    }
    return nullptr;
  }

  group& group_;
  in_flight& flying_;
  std::vector<frame> arrived_;
};

}  // namespace rankcast::inline v0::frames
