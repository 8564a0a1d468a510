/// What one rank knows of its group: for each peer what it has offered for which call, how far it
/// has come, and whether it is still there. Everything is written by the frames that arrive.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/revocation.hpp"
#include "rankcast/core/transport.hpp"
#include "rankcast/transports/frames/chunks.hpp"
#include "rankcast/transports/frames/link.hpp"
#include "rankcast/transports/frames/route.hpp"
#include "rankcast/transports/frames/stream.hpp"

namespace rankcast::inline v0::frames {

/// Calls a rank may be ahead of the slowest of its group.
inline constexpr std::uint64_t window = 64;

/// Sizes that decide how data moves; the same for all ranks of a group.
struct settings {
  std::size_t eager_bytes = 3 * 1024;    // up to here data travel with the call
  std::size_t chunk_bytes = 128 * 1024;  // of one frame
  std::size_t chunks_ahead = 8;          // a receiver grants room for so many
  int flat_places = 8;                   // broadcasts to more of them go along a tree
};

/// What a peer has shown of one call.
struct peer_call {
  arrived_offer offer;
  bool known = false;      // the record can be compared
  bool arrived = false;    // it has made the call; data or an announcement of them came with it
  bool wants_all = false;  // it waits for all, also for those whose data it does not need
  bool consumed = false;   // its part is over
  int refuser = -1;        // of a refusal: whose it is, where it was passed on
  std::string failure;     // how that went
  std::string slice_failure;
  std::array<incoming, 2> streams;  // its data, and its slice of the result

  void clear(link& l) {
    offer.refusal.clear();
    known = arrived = wants_all = consumed = false;
    failure.clear();
    slice_failure.clear();
    for (incoming& s : streams) s.clear(l);
  }
};

struct peer {
  int link_rank = 0;
  std::uint64_t released = 0;  // calls it has done with, as far as it told
  std::uint64_t told = 0;      // what we told it of ours
  bool left = false;
  bool closed = false;
  last_call last;
  std::string last_file;
  std::vector<std::unique_ptr<peer_call>> calls{static_cast<std::size_t>(window)};
};

/// What is left of a call of this rank that is over, for peers that come to it later.
struct past_call {
  call_record record{};
  bool told_all = false;  // all have heard of it, and how it went
  std::string failure;
};

class group {
 public:
  group(std::shared_ptr<frames::link> l, std::uint64_t id_of_group, int rank_in_group,
        const std::vector<int>& link_ranks, std::string text, settings s)
      : lines(std::move(l)),
        id(id_of_group),
        rank(rank_in_group),
        size(static_cast<int>(link_ranks.size())),
        name(std::move(text)),
        sizes{s.eager_bytes, std::max<std::size_t>(s.chunk_bytes / 16, 1) * 16,
              std::max<std::size_t>(s.chunks_ahead, 1),
              s.flat_places},  // chunks hold whole elements
        where(places_of(*lines, link_ranks)),
        peers(link_ranks.size()) {
    for (std::size_t r = 0; r < peers.size(); ++r) peers[r].link_rank = link_ranks[r];
    lines->open(id);
  }

  [[nodiscard]] peer& of(int r) noexcept { return peers[static_cast<std::size_t>(r)]; }
  [[nodiscard]] const peer& of(int r) const noexcept { return peers[static_cast<std::size_t>(r)]; }
  [[nodiscard]] peer_call& call_of(int r, std::uint64_t sequence) {
    auto& slot = of(r).calls[static_cast<std::size_t>(sequence % window)];
    if (slot == nullptr) slot = std::make_unique<peer_call>();
    return *slot;
  }

  /// An empty frame with its header.
  [[nodiscard]] frame make(kind what, std::uint64_t sequence, std::uint64_t position = 0,
                           std::uint8_t flags = 0, std::uint8_t phase = 0, int tag = 0) {
    frame_header h;
    h.what = what;
    h.flags = flags;
    h.phase = phase;
    h.tag = tag;
    h.sequence = sequence;
    h.position = position;
    h.released = released;
    return make(h);
  }
  [[nodiscard]] frame make(frame_header h) const {
    h.source = rank;
    h.group = id;
    frame f = lines->buffer();
    f.resize(sizeof h);
    std::memcpy(f.data(), &h, sizeof h);
    return f;
  }
  void post(int to, frame f, unsent_count unsent = {}) {
    of(to).told = released;
    lines->post(of(to).link_rank, std::move(f), std::move(unsent));
  }
  /// This rank's part of a call is over; `note`: why it failed, if it did.
  void post_done(int to, std::uint64_t sequence, const std::string& note) {
    frame f = make(kind::done, sequence);
    detail::byte_writer(f).put_text(note);
    post(to, std::move(f));
  }
  /// The same frame to all peers.
  void post_all(const frame& f) {
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      frame copy = lines->buffer();
      copy.assign(f.begin(), f.end());
      post(r, std::move(copy));
    }
  }

  /// True when rank `to` reads what rank `from` has in this call.
  [[nodiscard]] bool feeds(const call_record& r, int from, int to) const noexcept {
    return frames::feeds(r, from, to, where, sizes.flat_places);
  }

  /// Lets the receiver of a stream say how much of it it has room for.
  void grant(int from, std::uint64_t sequence, std::uint8_t phase, incoming& s) {
    const std::uint64_t room = sizes.chunk_bytes * sizes.chunks_ahead;
    if (s.granted() >= s.total() || s.granted() > s.settled() + room / 2) return;
    const std::uint64_t up_to = std::min(s.total(), s.settled() + room);
    s.note_granted(up_to);
    post(from, make(kind::grant, sequence, up_to, 0, phase));
  }
  /// The rest of a stream is not wanted.
  void decline(int from, std::uint64_t sequence, std::uint8_t phase, incoming& s) {
    if (!s.announced() || s.granted() >= s.total()) return;
    s.note_granted(s.total());
    post(from, make(kind::grant, sequence, s.total(), flag::skip, phase));
  }
  /// Sends what has been granted of a stream. `shared`: its last chunks, when other ranks get them
  /// too; `near`: one of these is at this rank's place.
  void pump(outgoing& s, std::uint64_t sequence, const unsent_count& unsent,
            chunks* shared = nullptr, bool near = false) {
    while (!s.finished() && s.sent < s.granted) {
      const std::uint64_t wanted = std::min<std::uint64_t>(sizes.chunk_bytes, s.granted - s.sent);
      payload there = shared == nullptr ? payload() : shared->at(s.sent);
      if (there.empty() && s.sent >= s.available) return;
      frame f = make(kind::chunk, sequence, s.sent, 0, s.phase);
      if (!there.empty()) {
        f.shared =
            there.part(0, static_cast<std::size_t>(std::min<std::uint64_t>(wanted, there.size())));
        s.bytes.skip(f.shared.size());
      } else {
        const auto n = static_cast<std::size_t>(std::min(wanted, s.available - s.sent));
        fill(f, s.bytes, n, shared != nullptr, near || is_near(s.to));
        if (shared != nullptr) shared->add(s.sent, f.shared);
      }
      s.sent += body_of(f).size();
      post(s.to, std::move(f), unsent);
    }
  }
  [[nodiscard]] bool is_near(int r) const noexcept { return where.of(r) == where.of(rank); }

  /// The group is over: what has come is not held on to.
  void drop_arrived() noexcept {
    for (peer& p : peers) {
      for (auto& c : p.calls) {
        if (c != nullptr) c->clear(*lines);
      }
    }
  }

  /// The cause of the end of the group, and the rank that gave it; the first one counts.
  void revoke(revocation why, int by) {
    const std::lock_guard lock(cause_mutex_);
    if (!cause_) cause_ = {std::move(why), by};
  }
  [[nodiscard]] bool revoked() const {
    const std::lock_guard lock(cause_mutex_);
    return cause_.has_value();
  }
  /// Only when revoked; it does not change any more then.
  [[nodiscard]] const std::pair<revocation, int>& cause() const noexcept { return *cause_; }

  const std::shared_ptr<frames::link> lines;
  const std::uint64_t id;
  const int rank;
  const int size;
  const std::string name;
  const settings sizes;
  const places where;
  std::vector<peer> peers;
  std::uint64_t released = 0;          // calls this rank has done with
  std::array<past_call, window> past;  // of this rank's last calls, by sequence
  transport_counters counters;
  std::vector<message> spare_messages;  // memory of messages that were sent
  std::vector<std::byte> spare_header;  // and of one that came in

 private:
  [[nodiscard]] static places places_of(const frames::link& l, const std::vector<int>& ranks) {
    std::vector<int> of_rank;
    for (const int r : ranks) of_rank.push_back(l.place_of(r));
    return places(of_rank);
  }

  // The body of a chunk: in shared memory for a rank of this place, in a payload for several ranks,
  // else behind the header.
  void fill(frame& f, supply& from, std::size_t n, bool for_several, bool near) {
    room r = near ? lines->shared_room(n) : room();
    if (!r && for_several) r = lines->own_room(n);
    if (!r) {
      from.append(f, n);
      return;
    }
    from.read({r.data, n});
    f.shared = std::move(r.whole);
  }

  mutable std::mutex cause_mutex_;
  std::optional<std::pair<revocation, int>> cause_;
};

/// Thrown inside the transport when the group is found revoked in the middle of a call; never
/// leaves it.
struct group_revoked {};

/// Ends the group for all its ranks with this rank's cause, unless another was first. Called by any
/// thread, so it touches nothing that belongs to the rank's own.
inline void claim(group& g, revocation why) {
  if (g.revoked()) return;
  frame_header h;
  h.what = kind::revoke;
  h.sequence = why.sequence;
  frame f = g.make(h);
  write_revocation(f, why);
  g.revoke(std::move(why), g.rank);
  for (int r = 0; r < g.size; ++r) {
    if (r != g.rank) g.lines->post(g.of(r).link_rank, f);
  }
}

}  // namespace rankcast::inline v0::frames
