// Slots for large chunks by themselves, and as pipes pass them on by reference.
#include "rankcast/transports/local/slots.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "rankcast/rankcast.hpp"
#include "support/pipe_block.hpp"

namespace {

using namespace rankcast;
using support::heap_slots;
using support::pipe_block;
using support::pipe_end;
namespace fr = rankcast::frames;

constexpr std::uint64_t group = 7;

std::shared_ptr<local::slots> make_slots(const local::slots::form& f,
                                         std::size_t most_reserved = ~std::size_t{0}) {
  return std::make_shared<local::slots>(std::make_shared<heap_slots>(f.all_bytes(), most_reserved),
                                        0, f);
}

TEST(slots, are_free_again_when_the_last_lets_go) {
  const local::slots::form form{1, 2, 1000, 100};
  const auto s = make_slots(form);
  EXPECT_EQ(s->free(), 2u);
  fr::room a = s->take(1000);
  ASSERT_TRUE(a);
  EXPECT_EQ(a.whole.size(), 1000u);
  EXPECT_EQ(a.data, a.whole.bytes().data());
  fr::payload part = a.whole.part(10, 20);
  const std::byte* const address = a.data;
  a = {};
  EXPECT_EQ(s->free(), 1u);
  fr::payload moved = std::move(part);
  EXPECT_EQ(moved.bytes().data(), address + 10);
  moved = {};
  EXPECT_EQ(s->free(), 2u);
  EXPECT_EQ(s->take(500).data, address) << "the one that was used last";
}

TEST(slots, none_is_given_beyond_the_last_nor_for_other_sizes) {
  const local::slots::form form{1, 3, 1000, 100};
  const auto s = make_slots(form);
  std::vector<fr::room> held;
  for (int i = 0; i < 3; ++i) held.push_back(s->take(100));
  for (const auto& r : held) EXPECT_TRUE(r);
  EXPECT_FALSE(s->take(100));
  held.erase(held.begin() + 1);
  EXPECT_TRUE(s->take(form.slot_bytes()));
  EXPECT_FALSE(s->take(form.slot_bytes() + 1));
  EXPECT_FALSE(s->take(99));
  held.clear();
  EXPECT_EQ(s->free(), 3u);
}

TEST(slots, memory_is_reserved_as_it_is_needed_and_may_be_lacking) {
  const local::slots::form form{1, 4, 1000, 100};
  const auto memory = std::make_shared<heap_slots>(form.all_bytes(), 2 * form.slot_bytes());
  const auto s = std::make_shared<local::slots>(memory, 0, form);
  EXPECT_EQ(memory->reserved.load(), 0u);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(s->take(200));
  EXPECT_EQ(memory->reserved.load(), form.slot_bytes());
  const fr::room a = s->take(200);
  fr::room b = s->take(200);
  EXPECT_TRUE(b);
  EXPECT_FALSE(s->take(200)) << "no more memory";
  b = {};
  EXPECT_TRUE(s->take(200));
}

TEST(slots, only_what_lies_in_one_is_referred_to) {
  const auto s = make_slots({1, 2, 1000, 100});
  const auto elsewhere = std::make_shared<std::vector<std::byte>>(500);
  EXPECT_FALSE(s->refer(fr::payload(elsewhere, *elsewhere)));
  EXPECT_FALSE(s->refer(fr::payload()));
  fr::room r = s->take(600);
  const auto reference = s->refer(r.whole.part(48, 500));
  ASSERT_TRUE(reference);
  EXPECT_EQ(reference->offset, 48u);
  EXPECT_EQ(reference->bytes, 500u);
  r = {};
  EXPECT_EQ(s->free(), 1u) << "the reference holds it";
  {
    const fr::payload p = s->attach(*reference);
    EXPECT_EQ(p.size(), 500u);
    EXPECT_EQ(s->free(), 1u);
  }
  EXPECT_EQ(s->free(), 2u);
}

TEST(slots, references_that_nobody_has_written) {
  const local::slots::form form{2, 2, 1000, 100};
  const auto s = make_slots(form);
  const fr::room held = s->take(500);
  const auto room = static_cast<std::uint32_t>(form.slot_bytes());
  EXPECT_TRUE(s->attach({1, 0, 1}).empty()) << "a free slot";
  EXPECT_TRUE(s->attach({4, 0, 1}).empty());
  EXPECT_TRUE(s->attach({~0u, 0, 1}).empty());
  EXPECT_TRUE(s->attach({0, room, 1}).empty());
  EXPECT_TRUE(s->attach({0, ~0u, 1}).empty());
  EXPECT_TRUE(s->attach({0, 0, 0}).empty());
  EXPECT_TRUE(s->attach({0, 0, std::uint64_t{room} + 1}).empty());
  EXPECT_TRUE(s->attach({0, 8, room}).empty());
  EXPECT_TRUE(s->attach({0, 8, ~std::uint64_t{0}}).empty());
  EXPECT_EQ(s->free(), 3u);
}

// Through pipes -----------------------------------------------------------------------------------

constexpr std::size_t each = 3;

struct ranks_of_a_block {
  explicit ranks_of_a_block(int ranks, std::size_t pipe_bytes = 1024)
      : block(std::make_shared<pipe_block>(ranks, pipe_bytes, each)) {
    for (int r = 0; r < ranks; ++r) {
      ends.push_back(std::make_unique<pipe_end>(block, r));
      ends.back()->link.open(group);
    }
  }
  local::pipes& link(int r) { return ends[static_cast<std::size_t>(r)]->link; }
  [[nodiscard]] std::size_t free() const { return ends[0]->slots->free(); }
  [[nodiscard]] std::size_t all() const { return block->slot_form.count(); }
  void settle() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (auto& e : ends) moved = e->link.progress() || moved;
    }
  }
  std::vector<fr::frame> take(int r) {
    std::vector<fr::frame> got;
    link(r).take(group, got);
    return got;
  }

  std::shared_ptr<pipe_block> block;
  std::vector<std::unique_ptr<pipe_end>> ends;
};

std::byte at(std::uint64_t sequence, std::size_t i) {
  return static_cast<std::byte>(i * 31 + sequence * 7);
}

// A chunk in a slot, or in memory of the rank's own where there is none.
fr::frame chunk(local::pipes& link, std::uint64_t sequence, std::size_t bytes) {
  fr::frame_header h;
  h.what = fr::kind::chunk;
  h.group = group;
  h.sequence = sequence;
  fr::frame f(sizeof h);
  std::memcpy(f.data(), &h, sizeof h);
  fr::room r = link.shared_room(bytes);
  if (!r) r = link.own_room(bytes);
  for (std::size_t i = 0; i < bytes; ++i) r.data[i] = at(sequence, i);
  f.shared = std::move(r.whole);
  return f;
}
bool intact(const fr::frame& f, std::uint64_t sequence, std::size_t bytes) {
  const auto body = fr::body_of(f);
  if (fr::header_of(f).sequence != sequence || body.size() != bytes) return false;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (body[i] != at(sequence, i)) return false;
  }
  return true;
}

TEST(slots_in_pipes, one_copy_for_all_readers) {
  ranks_of_a_block w(4);
  const fr::frame f = chunk(w.link(0), 0, 3000);
  const std::byte* const address = f.shared.bytes().data();
  for (int r = 1; r < 4; ++r) w.link(0).post(r, f);
  w.settle();
  std::vector<fr::frame> got;
  for (int r = 1; r < 4; ++r) {
    for (fr::frame& g : w.take(r)) got.push_back(std::move(g));
    EXPECT_LE(w.block->head(0, r).written, 100u);
  }
  ASSERT_EQ(got.size(), 3u);
  for (const fr::frame& g : got) {
    EXPECT_TRUE(intact(g, 0, 3000));
    EXPECT_EQ(g.shared.bytes().data(), address);
  }
  EXPECT_EQ(w.free(), w.all() - 1);
}

TEST(slots_in_pipes, a_reader_passes_a_part_on) {
  ranks_of_a_block w(3);
  w.link(0).post(1, chunk(w.link(0), 5, 2000));
  w.settle();
  auto got = w.take(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(intact(got[0], 5, 2000));
  fr::frame next(got[0].begin(), got[0].end());
  next.shared = got[0].shared.part(0, 1500);
  w.link(1).post(2, std::move(next));
  got.clear();
  w.settle();
  EXPECT_EQ(w.free(), w.all() - 1);
  got = w.take(2);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(intact(got[0], 5, 1500));
  w.link(2).recycle(std::move(got[0]));
  EXPECT_EQ(w.free(), w.all());
}

TEST(slots_in_pipes, when_none_is_free_bytes_go_through_the_ring) {
  ranks_of_a_block w(2);
  constexpr std::uint64_t count = 12;
  for (std::uint64_t i = 0; i < count; ++i) w.link(0).post(1, chunk(w.link(0), i, 2000));
  EXPECT_EQ(w.free(), w.all() - each);
  w.settle();
  auto got = w.take(1);
  ASSERT_EQ(got.size(), count);
  for (std::uint64_t i = 0; i < count; ++i) EXPECT_TRUE(intact(got[i], i, 2000)) << i;
  got.clear();
  EXPECT_EQ(w.free(), w.all());
  w.link(0).post(1, chunk(w.link(0), count, 2000));
  EXPECT_EQ(w.free(), w.all() - 1) << "used again";
}

// Frames with and without payload, through the smallest ring.
TEST(slots_in_pipes, frames_of_all_kinds_in_order) {
  ranks_of_a_block w(2, 128);
  std::vector<std::size_t> sizes;
  for (std::uint64_t i = 0; i < 200; ++i) {
    sizes.push_back(1 + i * 37 % 4000);
    fr::frame f = chunk(w.link(0), i, sizes.back());
    if (i % 3 == 1) {  // as one piece
      f.insert(f.end(), f.shared.bytes().begin(), f.shared.bytes().end());
      f.shared = {};
    }
    w.link(0).post(1, std::move(f));
    if (i % 5 == 0) w.link(1).progress();
  }
  w.settle();
  auto got = w.take(1);
  ASSERT_EQ(got.size(), sizes.size());
  for (std::uint64_t i = 0; i < sizes.size(); ++i) EXPECT_TRUE(intact(got[i], i, sizes[i])) << i;
  got.clear();
  EXPECT_EQ(w.free(), w.all());
}

TEST(slots_in_pipes, what_a_closed_group_gets_is_given_back) {
  ranks_of_a_block w(2);
  w.link(1).close(group, 1);
  w.link(0).post(1, chunk(w.link(0), 0, 3000));
  w.settle();
  EXPECT_EQ(w.free(), w.all());
}

TEST(slots_in_pipes, what_a_group_has_not_taken_when_it_closes_is_given_back) {
  ranks_of_a_block w(2);
  for (std::uint64_t i = 0; i < 6; ++i) {  // in slots, and in memory of its own
    w.link(0).post(0, chunk(w.link(0), i, 3000));
  }
  EXPECT_EQ(w.free(), w.all() - each);
  w.link(0).close(group, 1);
  EXPECT_EQ(w.free(), w.all());
}

// A native library may write to a slot after the link has gone.
TEST(slots_in_pipes, a_room_outlives_the_link) {
  fr::room r;
  {
    ranks_of_a_block w(2);
    r = w.link(0).shared_room(4000);
  }
  ASSERT_TRUE(r);
  std::memset(r.data, 1, r.whole.size());
}

void expect_error_of(const local::slot_reference& reference, std::uint64_t length_word,
                     std::size_t slots_each) {
  const auto block = std::make_shared<pipe_block>(2, 512, slots_each);
  pipe_end zero(block, 0);
  local::pipe_head& head = block->head(1, 0);
  std::byte* const ring = reinterpret_cast<std::byte*>(&head) + sizeof head;
  fr::frame_header h;
  h.what = fr::kind::chunk;
  h.group = group;
  std::memcpy(ring, &length_word, sizeof length_word);
  std::memcpy(ring + 8, &h, sizeof h);
  std::memcpy(ring + 8 + sizeof h, &reference, sizeof reference);
  head.written = 8 + sizeof h + sizeof reference;
  EXPECT_THROW(zero.link.progress(), transport_error);
  EXPECT_THROW(zero.link.progress(), transport_error);
}

TEST(slots_in_pipes, corrupt_references) {
  constexpr std::uint64_t refers = std::uint64_t{1} << 63;
  constexpr std::uint64_t whole = refers | (sizeof(fr::frame_header) + 16);
  expect_error_of({2 * each, 0, 10}, whole, each);
  expect_error_of({~0u, 0, 10}, whole, each);
  expect_error_of({0, 0, 10}, whole, each);  // a free slot
  expect_error_of({0, 0, ~std::uint64_t{0}}, whole, each);
  expect_error_of({0, 0, 10}, whole, 0);  // there are none
  expect_error_of({0, 0, 10}, refers | 15, each);
}

// Ranks write, read and pass on at the same time; the bytes are right and all slots free after.
TEST(slots_in_pipes, many_threads) {
  constexpr int ranks = 3;
  constexpr std::uint64_t count = 800;
  const auto block = std::make_shared<pipe_block>(ranks, 2048, each);
  support::departure together(ranks);
  const auto body = [&](int rank) {
    pipe_end end(block, rank);
    end.link.open(group);
    std::uint64_t to_post = count;
    std::uint64_t heard = 0;
    std::uint64_t expected = count * (ranks - 1);
    const auto unsent = std::make_shared<std::atomic<int>>(0);
    std::vector<fr::frame> got;
    while (heard < expected || to_post > 0) {
      bool moved = end.link.progress();
      if (to_post > 0 && unsent->load() < 4) {
        const std::uint64_t sequence = count - to_post--;
        const fr::frame f = chunk(end.link, sequence, 100 + sequence * 13 % 3900);
        for (int to = 0; to < ranks; ++to) {
          if (to != rank) end.link.post(to, f, unsent);
        }
        moved = true;
      }
      got.clear();
      end.link.take(group, got);
      for (fr::frame& f : got) {
        const std::uint64_t sequence = fr::header_of(f).sequence;
        EXPECT_TRUE(intact(f, sequence, 100 + sequence * 13 % 3900));
        end.link.recycle(std::move(f));
        ++heard;
      }
      if (!moved) std::this_thread::yield();
    }
    together.leave(end);
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (auto& t : threads) t.join();
  support::require_free_slots(*block);
}

}  // namespace
