// Pipes by themselves: ranks are threads over one block, or links that one thread moves on in turn.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <random>
#include <thread>

#include "rankcast/rankcast.hpp"
#include "support/pipe_block.hpp"

namespace {

using namespace std::chrono_literals;
using namespace rankcast;
using support::pipe_block;
using support::pipe_end;
namespace fr = rankcast::frames;

constexpr std::uint64_t group = 7;

// Frame number `sequence` of `from`, whose bytes only that one has.
fr::frame make(int from, std::uint64_t sequence, std::size_t bytes) {
  fr::frame_header h;
  h.source = from;
  h.group = group;
  h.sequence = sequence;
  fr::frame f(sizeof h + bytes);
  std::memcpy(f.data(), &h, sizeof h);
  for (std::size_t i = 0; i < bytes; ++i) {
    f[sizeof h + i] = static_cast<std::byte>(i * 31 + sequence * 7 + static_cast<unsigned>(from));
  }
  return f;
}

// Takes what has arrived, and says how many of them are not the next ones of their senders.
struct receiver {
  explicit receiver(pipe_end& e) : end(e), next(static_cast<std::size_t>(e.link.size())) {
    end.link.open(group);
  }
  void hear() {
    frames.clear();
    end.link.take(group, frames);
    for (fr::frame& f : frames) {
      const fr::frame_header h = fr::header_of(f);
      ASSERT_GE(h.source, 0);
      ASSERT_LT(h.source, end.link.size());
      const std::size_t bytes = f.size() - sizeof h;
      EXPECT_EQ(h.sequence, next[static_cast<std::size_t>(h.source)]++);
      EXPECT_TRUE(f == make(h.source, h.sequence, bytes)) << bytes << " bytes of " << h.source;
      ++count;
      end.link.recycle(std::move(f));
    }
  }

  pipe_end& end;
  std::vector<std::uint64_t> next;  // by sender
  std::vector<fr::frame> frames;
  int count = 0;
};

struct pair {
  explicit pair(std::size_t pipe_bytes) : block(std::make_shared<pipe_block>(2, pipe_bytes)) {}

  std::shared_ptr<pipe_block> block;
  pipe_end zero{block, 0};
  pipe_end one{block, 1};
};

fr::unsent_count counter() {
  return std::make_shared<std::atomic<int>>(0);
}

TEST(pipes, a_small_frame_leaves_at_once) {
  pair p(512);
  receiver at_one(p.one);
  const auto unsent = counter();
  EXPECT_TRUE(p.one.link.quiet());
  EXPECT_FALSE(p.one.link.progress());
  p.zero.link.post(1, make(0, 0, 10), unsent);
  EXPECT_EQ(unsent->load(), 0);
  EXPECT_TRUE(p.zero.link.all_sent());
  EXPECT_FALSE(p.one.link.quiet());
  EXPECT_TRUE(p.one.link.progress());
  at_one.hear();
  EXPECT_EQ(at_one.count, 1);
  EXPECT_TRUE(p.one.link.quiet());
  EXPECT_FALSE(p.one.link.progress());
}

TEST(pipes, a_frame_to_oneself) {
  pair p(512);
  receiver at_zero(p.zero);
  p.zero.link.post(0, make(0, 0, 5000));
  at_zero.hear();
  EXPECT_EQ(at_zero.count, 1);
}

TEST(pipes, one_rank_alone) {
  const auto block = std::make_shared<pipe_block>(1, 512);
  pipe_end alone(block, 0);
  receiver here(alone);
  alone.link.post(0, make(0, 0, 1));
  EXPECT_FALSE(alone.link.progress());
  EXPECT_TRUE(alone.link.quiet());
  here.hear();
  EXPECT_EQ(here.count, 1);
}

// Every length at every place of the ring.
TEST(pipes, frames_that_wrap_around) {
  pair p(128);
  receiver at_one(p.one);
  for (std::size_t i = 0; i < 600; ++i) {
    p.zero.link.post(1, make(0, i, i % 150));
    while (!p.zero.link.all_sent() || !p.one.link.quiet()) {
      p.one.link.progress();
      p.zero.link.progress();
    }
  }
  at_one.hear();
  EXPECT_EQ(at_one.count, 600);
}

TEST(pipes, a_frame_larger_than_the_ring_flows_through_in_pieces) {
  for (const std::size_t pipe_bytes : {1u, 128u, 512u, 4096u}) {
    pair p(pipe_bytes);
    receiver at_one(p.one);
    const auto unsent = counter();
    p.zero.link.post(1, make(0, 0, 3'000'000), unsent);
    EXPECT_EQ(unsent->load(), 1);
    EXPECT_TRUE(p.zero.link.quiet()) << "full: nothing to do before the receiver reads";
    int rounds = 0;
    for (; unsent->load() != 0; ++rounds) {
      EXPECT_TRUE(p.one.link.progress());
      at_one.hear();
      EXPECT_EQ(at_one.count, 0);
      EXPECT_FALSE(p.zero.link.quiet());
      EXPECT_TRUE(p.zero.link.progress());
    }
    EXPECT_GE(rounds, static_cast<int>(3'000'000 / std::max<std::size_t>(pipe_bytes, 128)) - 1);
    p.one.link.progress();
    at_one.hear();
    EXPECT_EQ(at_one.count, 1);
  }
}

TEST(pipes, unsent_counts_what_has_not_left) {
  pair p(512);
  receiver at_one(p.one);
  const auto unsent = counter();
  const auto other = counter();
  for (std::uint64_t i = 0; i < 6; ++i) {
    p.zero.link.post(1, make(0, i, 200), i % 2 == 0 ? unsent : other);
  }
  p.zero.link.post(1, make(0, 6, 1));  // also behind the others, though it would fit
  EXPECT_EQ(unsent->load(), 2);        // 0 and 1 are in the ring
  EXPECT_EQ(other->load(), 2);
  EXPECT_FALSE(p.zero.link.all_sent());
  EXPECT_FALSE(p.zero.link.progress());
  EXPECT_EQ(unsent->load() + other->load(), 4);
  p.one.link.progress();
  p.zero.link.progress();
  EXPECT_LT(unsent->load() + other->load(), 4);
  while (!p.zero.link.all_sent()) {
    EXPECT_TRUE(p.one.link.progress());
    EXPECT_TRUE(p.zero.link.progress());
  }
  EXPECT_EQ(unsent->load(), 0);
  EXPECT_EQ(other->load(), 0);
  p.one.link.progress();
  at_one.hear();
  EXPECT_EQ(at_one.count, 7);
}

// A receiver that does not read keeps nobody from posting, and one peer's queue not another's.
TEST(pipes, a_post_never_waits) {
  const auto block = std::make_shared<pipe_block>(3, 256);
  pipe_end zero(block, 0);
  pipe_end two(block, 2);
  receiver at_two(two);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    zero.link.post(1, make(0, i, 1000));
    zero.link.post(2, make(0, i, 20));
    two.link.progress();
    zero.link.progress();
  }
  at_two.hear();
  EXPECT_EQ(at_two.count, 1000);
}

TEST(pipes, what_is_no_frame_is_dropped) {
  pair p(512);
  receiver at_one(p.one);
  p.zero.link.post(1, {});
  p.zero.link.post(1, fr::frame(5));
  p.zero.link.post(1, fr::frame(500));
  p.zero.link.post(1, make(0, 0, 0));
  while (!p.zero.link.all_sent() || !p.one.link.quiet()) {
    p.one.link.progress();
    p.zero.link.progress();
  }
  at_one.hear();
  EXPECT_EQ(at_one.count, 1);
}

TEST(pipes, the_block_may_have_two_addresses) {
  const std::size_t bytes = local::pipes::bytes_needed(2, 256);
  const int file = memfd_create("pipes_test", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, static_cast<off_t>(bytes)), 0);
  void* maps[2];
  for (void*& at : maps) {
    at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ASSERT_NE(at, MAP_FAILED);
  }
  close(file);
  {
    pair sleepers(128);
    local::pipes zero(static_cast<std::byte*>(maps[0]), 0, 2, 256, sleepers.zero);
    local::pipes one(static_cast<std::byte*>(maps[1]), 1, 2, 256, sleepers.one);
    one.open(group);
    zero.post(1, make(0, 0, 1000));
    while (!zero.all_sent() || !one.quiet()) {
      one.progress();
      zero.progress();
    }
    std::vector<fr::frame> got;
    one.take(group, got);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0], make(0, 0, 1000));
  }
  for (void* at : maps) munmap(at, bytes);
}

TEST(pipes, blocks_and_ranks_that_cannot_be) {
  pair p(128);
  EXPECT_THROW(local::pipes(p.block->data(), 2, 2, 128, p.zero), usage_error);
  EXPECT_THROW(local::pipes(p.block->data(), -1, 2, 128, p.zero), usage_error);
  EXPECT_THROW(local::pipes(p.block->data() + 8, 0, 2, 128, p.zero), usage_error);
}

// What rank 1 may write where rank 0 reads it; rank 2 is honest.
class hostile_pipes : public testing::Test {
 protected:
  void expect_error_after(const std::function<void()>& damage) {
    receiver at_zero(zero);
    damage();
    two.link.post(0, make(2, 0, 10));
    for (int i = 0; i < 3; ++i) {
      try {
        zero.link.progress();
        ADD_FAILURE() << "no error";
      } catch (const transport_error& e) {
        EXPECT_NE(std::string(e.what()).find("what rank 1 has written"), std::string::npos)
            << e.what();
      }
      EXPECT_FALSE(zero.link.quiet());
    }
    at_zero.hear();
    EXPECT_EQ(at_zero.next[2], 1u);
    // What is to be said of it still goes to the others.
    receiver at_two(two);
    zero.link.post(2, make(0, 0, 1000));
    zero.link.post(1, make(0, 0, 1000));
    while (two.link.progress()) EXPECT_THROW(zero.link.progress(), transport_error);
    at_two.hear();
    EXPECT_EQ(at_two.count, 1);
  }
  void write_length(std::uint64_t length, std::uint64_t written) {
    local::pipe_head& h = block->head(1, 0);
    std::memcpy(reinterpret_cast<std::byte*>(&h) + sizeof h, &length, sizeof length);
    h.written = written;
  }

  std::shared_ptr<pipe_block> block = std::make_shared<pipe_block>(3, 512);
  pipe_end zero{block, 0};
  pipe_end two{block, 2};
};

TEST_F(hostile_pipes, a_length_that_nobody_writes) {
  expect_error_after([&] { write_length(~std::uint64_t{0}, 100); });
}
TEST_F(hostile_pipes, a_length_just_beyond_the_limit) {
  expect_error_after([&] { write_length(local::pipes::most_frame_bytes + 1, 512); });
}
TEST_F(hostile_pipes, half_a_length) {
  expect_error_after([&] { write_length(10, 4); });
}
TEST_F(hostile_pipes, more_written_than_the_ring_holds) {
  expect_error_after([&] { write_length(10, 513); });
}
TEST_F(hostile_pipes, written_goes_back) {
  expect_error_after([&] {
    write_length(fr::frame(48).size(), 56);
    zero.link.progress();
    write_length(10, 20);
  });
}
TEST_F(hostile_pipes, read_before_it_was_written) {
  expect_error_after([&] {
    block->head(0, 1).read = 1000;
    for (std::uint64_t i = 0; i < 3; ++i) zero.link.post(1, make(0, i, 400));
  });
}
// The greatest length that is taken does not take the memory before the bytes are there.
TEST_F(hostile_pipes, a_large_length_with_nothing_behind_it) {
  write_length(local::pipes::most_frame_bytes, 512);
  EXPECT_TRUE(zero.link.progress());
  EXPECT_FALSE(zero.link.progress());
}

// Sleeps at once when there is nothing to do; false when nothing ended the sleep, that is, when a
// wake was forgotten.
bool sleep_if_quiet(pipe_end& end) {
  constexpr auto too_long = 20s;
  const auto begin = std::chrono::steady_clock::now();
  end.pause(100, too_long);
  return std::chrono::steady_clock::now() - begin < too_long;
}

// The first `senders` ranks post `frames` frames of random size to all, themselves too, while all
// read what they get.
void hammer(int ranks, std::size_t pipe_bytes, std::uint64_t frames, std::size_t most_bytes,
            int senders) {
  const auto block = std::make_shared<pipe_block>(ranks, pipe_bytes);
  std::atomic<int> finished{0};
  const auto body = [&](int rank) {
    pipe_end end(block, rank);
    receiver here(end);
    const auto unsent = counter();
    std::mt19937 random(static_cast<unsigned>(rank));
    std::uint64_t to_post = rank < senders ? frames : 0;
    bool done = false;
    bool woken = true;
    while (finished < ranks && woken) {
      bool moved = end.link.progress();
      if (to_post > 0 && unsent->load() < 4) {
        for (int to = 0; to < ranks; ++to) {
          const std::size_t bytes = random() % (random() % 8 == 0 ? most_bytes : 64);
          end.link.post(to, make(rank, frames - to_post, bytes), unsent);
        }
        --to_post;
        moved = true;
      }
      here.hear();
      if (!done && here.count == senders * static_cast<int>(frames) && to_post == 0 &&
          end.link.all_sent()) {
        done = true;
        if (++finished == ranks) {
          for (int r = 0; r < ranks; ++r) end.wake(r);
        }
      }
      if (!moved) woken = sleep_if_quiet(end) || finished == ranks;
    }
    EXPECT_TRUE(woken) << "rank " << rank;
    EXPECT_EQ(unsent->load(), 0);
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (auto& t : threads) t.join();
}

// There is one frame on its way, and everybody else sleeps.
TEST(pipes, a_ring_of_ranks_that_wake_each_other) {
  for (const std::size_t bytes : {0u, 3000u}) {
    constexpr int ranks = 3;
    constexpr std::uint64_t rounds = 1000;
    const auto block = std::make_shared<pipe_block>(ranks, 512);
    const auto body = [&](int rank) {
      pipe_end end(block, rank);
      receiver here(end);
      const int next = (rank + 1) % ranks;
      bool woken = true;
      for (std::uint64_t round = 0; round < rounds && woken; ++round) {
        if (rank == 0) end.link.post(next, make(rank, round, bytes));
        while (here.count <= static_cast<int>(round) && woken) {
          if (!end.link.progress()) woken = sleep_if_quiet(end);
          here.hear();
        }
        if (rank != 0) end.link.post(next, make(rank, round, bytes));
        while (!end.link.all_sent() && woken) {
          if (!end.link.progress()) woken = sleep_if_quiet(end);
        }
      }
      EXPECT_TRUE(woken) << "rank " << rank;
    };
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) threads.emplace_back(body, r);
    for (auto& t : threads) t.join();
  }
}

TEST(pipes, one_direction) {
  hammer(2, 512, 1500, 5000, 1);
}
TEST(pipes, both_directions_at_once) {
  hammer(2, 1024, 1500, 5000, 2);
}
TEST(pipes, four_ranks_through_the_smallest_rings) {
  hammer(4, 1, 300, 2000, 4);
}
TEST(pipes, four_ranks) {
  hammer(4, 512, 500, 3000, 4);
}
TEST(pipes, many_small_frames) {
  hammer(3, 16384, 3000, 64, 3);
}
TEST(pipes, large_frames) {
  hammer(2, 65536, 20, 2'500'000, 2);
}

// Threads of one rank share its link: each thread's frames arrive in its order.
TEST(pipes, many_threads_of_one_rank) {
  constexpr int senders = 4;
  constexpr std::uint64_t each = 300;
  const auto block = std::make_shared<pipe_block>(2, 512);
  pipe_end zero(block, 0);
  pipe_end one(block, 1);
  one.link.open(group);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int s = 0; s < senders; ++s) {
    threads.emplace_back([&, s] {
      const auto unsent = counter();
      for (std::uint64_t i = 0; i < each; ++i) {
        zero.link.post(1, make(s, i, i % 9 == 0 ? 2000 : 30), unsent);
        while (unsent->load() > 3) {
          if (!zero.link.progress()) std::this_thread::yield();
        }
      }
      while (!over) {
        if (!zero.link.progress()) std::this_thread::yield();
      }
    });
  }
  threads.emplace_back([&] {  // a second reader beside the one below
    while (!over) {
      if (!one.link.progress()) std::this_thread::yield();
    }
  });
  std::vector<std::uint64_t> next(senders);
  std::vector<fr::frame> got;
  for (std::uint64_t count = 0; count < senders * each;) {
    if (!one.link.progress()) std::this_thread::yield();
    got.clear();
    one.link.take(group, got);
    for (const fr::frame& f : got) {
      const fr::frame_header h = fr::header_of(f);
      EXPECT_EQ(h.sequence, next[static_cast<std::size_t>(h.source)]++);
      EXPECT_TRUE(f == make(h.source, h.sequence, f.size() - sizeof h));
      ++count;
    }
  }
  over = true;
  for (auto& t : threads) t.join();
}

}  // namespace
