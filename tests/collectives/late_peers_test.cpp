// A call that has timed out leaves the caller's memory alone: here it goes back to the system in
// the handler, and then the peer comes after all, or goes on from where it had stopped. The ranks
// keep time by their own clocks, for they may be processes.
#include <memory>

#include "support/ranks.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using support::error_of;
using support::run_ranks;
using values = std::vector<double>;

constexpr auto limit = 800ms;
constexpr auto late = 1600ms;
constexpr std::size_t large = 256 * 1024;  // 2 MiB, which the allocator gives back to the system

support::world_options many_chunks() {
  support::world_options options;
  options.eager_bytes = 1024;
  options.chunk_bytes = 4096;
  return options;
}

// Runs f(world, values of this rank) on two ranks, which then go on with another group.
template <class F>
void on_two(F&& f) {
  run_ranks(
      2,
      [&](communicator& world) {
        const auto other = world.duplicate();
        auto mine = std::make_unique<values>(large, world.rank() + 1.0);
        rankcast::barrier(world, {.completion = rankcast::completion::everyone});
        f(world, mine);
        support::step("another group");
        values after(large, world.rank() + 1.0);
        rankcast::all_reduce(other, after);
        EXPECT_EQ(after, values(large, 3));
        // What the late peer sent to the first group is heard now, if not before.
        try {
          world.flush();
        } catch (const rankcast::revoked_error&) {
        }
        rankcast::barrier(other, {.completion = rankcast::completion::everyone});
      },
      many_chunks());
}

// The call times out; its memory is gone when this returns.
template <class F>
void gives_up(std::unique_ptr<values>& memory, F&& call) {
  const auto begin = rankcast::steady_clock::now();
  try {
    call(*memory);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const rankcast::timeout_error& e) {
    memory.reset();
    EXPECT_EQ(e.missing(), std::vector<int>{1});
    EXPECT_GE(e.waited(), limit);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another error was thrown: " << e.what();
  }
  EXPECT_LT(support::seconds_since(begin), 5);
}

// Rank 0 makes the call in time, rank 1 when the group has been revoked.
template <class F>
void the_peer_comes_late(F&& call) {
  on_two([&](const communicator& world, std::unique_ptr<values>& mine) {
    if (world.rank() == 0) {
      support::step("in time");
      gives_up(mine, [&](values& v) { call(world, v); });
    } else {
      std::this_thread::sleep_for(late);
      support::step("late");
      const auto e = error_of<rankcast::revoked_error>([&] { call(world, *mine); });
      if (e) {
        EXPECT_CONTAINS(e->what(), "timed out");
      }
      mine.reset();
    }
  });
}

TEST(late_peers, broadcast_whose_root_is_late) {
  the_peer_comes_late([](const communicator& world, values& v) {
    rankcast::broadcast(world, v, {.root = 1, .timeout = limit});
  });
}

TEST(late_peers, broadcast_whose_reader_is_late) {
  the_peer_comes_late([](const communicator& world, values& v) {
    rankcast::broadcast(world, v, {.root = 0, .timeout = limit});
  });
}

TEST(late_peers, started_broadcast) {
  the_peer_comes_late([](const communicator& world, values& v) {
    auto w = rankcast::start_broadcast(world, v, {.root = 1, .timeout = limit});
    w.wait();
  });
}

TEST(late_peers, all_reduce) {
  the_peer_comes_late([](const communicator& world, values& v) {
    rankcast::all_reduce(world, v, rankcast::sum, {.timeout = limit});
  });
}

TEST(late_peers, gather_and_scatter) {
  the_peer_comes_late([](const communicator& world, values& v) {
    const std::span<double> all(v);
    const auto half = all.subspan(world.rank() == 0 ? 0 : large / 2, large / 2);
    rankcast::gather(world, half, all, {.root = 0, .timeout = limit});
  });
  the_peer_comes_late([](const communicator& world, values& v) {
    const std::span<double> all(v);
    const auto half = all.subspan(world.rank() == 0 ? 0 : large / 2, large / 2);
    rankcast::scatter(world, all, half, {.root = 0, .timeout = limit});
  });
}

TEST(late_peers, all_to_all_in_place) {
  the_peer_comes_late([](const communicator& world, values& v) {
    rankcast::all_to_all(world, v, v, {.timeout = limit});
  });
}

// Of messages the group survives: what comes late is there for the next receive.
TEST(late_peers, receive_whose_sender_is_late) {
  on_two([](const communicator& world, std::unique_ptr<values>& mine) {
    if (world.rank() == 0) {
      gives_up(mine, [&](values& v) { rankcast::receive(world, v, 1, {.timeout = limit}); });
      values again(large);
      rankcast::receive(world, again, 1);
      EXPECT_EQ(again, values(large, 2));
    } else {
      std::this_thread::sleep_for(late);
      rankcast::send(world, *mine, 0);
    }
  });
}

TEST(late_peers, send_whose_receiver_is_late) {
  on_two([](const communicator& world, std::unique_ptr<values>& mine) {
    if (world.rank() == 0) {
      gives_up(mine, [&](values& v) { rankcast::send(world, v, 1, {.timeout = limit}); });
      rankcast::send(world, values(large, 5), 1, {.tag = 1});
    } else {
      std::this_thread::sleep_for(late);
      values got(large);
      (void)error_of<rankcast::timeout_error>([&] {  // it was taken back
        rankcast::receive(world, got, 0, {.timeout = limit});
      });
      rankcast::receive(world, got, 0, {.tag = 1});
      EXPECT_EQ(got, values(large, 5));
    }
  });
}

// --- a peer that stops half-way -----------------------------------------------------------------

// A message of two halves; its reader may sleep between them.
struct halves final : rankcast::message_source, rankcast::message_sink {
  explicit halves(values& v) : data(v) {}
  void encode(int, rankcast::message& to) override {
    to.header.resize(1);
    to.segments = {std::as_bytes(first()), std::as_bytes(second())};
  }
  void decode(int, std::span<const std::byte>, rankcast::segment_reader& in) override {
    in.read(std::as_writable_bytes(first()));
    std::this_thread::sleep_for(nap);
    in.read(std::as_writable_bytes(second()));
  }
  [[nodiscard]] std::span<double> first() { return std::span(data).first(large / 2); }
  [[nodiscard]] std::span<double> second() { return std::span(data).last(large / 2); }

  values& data;
  std::chrono::milliseconds nap{0};
};

rankcast::operation operation_of(rankcast::opcode code, int root, halves& h, bool gives) {
  rankcast::operation op;
  op.code = code;
  op.root = root;
  if (gives) op.source = &h;
  else op.sink = &h;
  return op;
}

// Helps a started call along for a while, and then no more for so long that its peer gives up. A
// look moves up to two rings (64 KiB) when the reader keeps up, so a few looks do not move it all.
void stop_half_way(rankcast::work& w) {
  for (int i = 0; i < 10; ++i) {  // time for a reader on a busy machine to take something
    EXPECT_FALSE(w.test());
    std::this_thread::sleep_for(20ms);
  }
  std::this_thread::sleep_for(late);
}

// Rank 1 starts what rank 0 gives up in the middle. Not where the readers do all the work.
template <class Start, class Read>
void the_sender_stops_half_way(Start&& start, Read&& read) {
  on_two([&](const communicator& world, std::unique_ptr<values>& mine) {
    if (world.rank() == 0) {
      support::step("reader");
      gives_up(mine, [&](values& v) {
        try {
          read(world, v);
        } catch (const rankcast::timeout_error&) {
          EXPECT_EQ(v.front(), 2);
          EXPECT_EQ(v.back(), 1);
          throw;
        }
      });
    } else {
      support::step("sender");
      auto w = start(world, *mine);
      stop_half_way(w);
      (void)error_of<rankcast::error>([&] { w.wait(); });
      mine.reset();
    }
  });
}

#define SKIP_WHERE_READERS_DO_ALL()                                                  \
  if (support::ranks_share_memory()) {                                               \
    GTEST_SKIP() << "readers take what they need by themselves, no sender can stop"; \
  }

TEST(late_peers, broadcast_that_stops_half_way) {
  SKIP_WHERE_READERS_DO_ALL()
  the_sender_stops_half_way(
      [](const communicator& world, values& v) {
        return rankcast::start_broadcast(world, v, {.root = 1});
      },
      [](const communicator& world, values& v) {
        rankcast::broadcast(world, v, {.root = 1, .timeout = limit});
      });
}

TEST(late_peers, message_that_stops_half_way) {
  SKIP_WHERE_READERS_DO_ALL()
  for (const auto code : {rankcast::opcode::broadcast, rankcast::opcode::send}) {
    const bool sends = code == rankcast::opcode::send;
    the_sender_stops_half_way(
        [&](const communicator& world, values& v) {
          const auto h = std::make_shared<halves>(v);
          return world.start(operation_of(code, sends ? 0 : 1, *h, true), {}, h);
        },
        [&](const communicator& world, values& v) {
          halves h(v);
          world.run(operation_of(sends ? rankcast::opcode::receive : code, 1, h, false),
                    {.timeout = limit});
        });
  }
}

TEST(late_peers, send_that_stops_half_way) {
  SKIP_WHERE_READERS_DO_ALL()
  the_sender_stops_half_way(
      [](const communicator& world, values& v) { return rankcast::start_send(world, v, 0); },
      [](const communicator& world, values& v) {
        rankcast::receive(world, v, 1, {.timeout = limit});
      });
}

// Not waited for until it times out, but dropped in the middle.
TEST(late_peers, receive_that_is_dropped_half_way) {
  SKIP_WHERE_READERS_DO_ALL()
  on_two([](const communicator& world, std::unique_ptr<values>& mine) {
    if (world.rank() == 0) {
      {
        auto w = rankcast::start_receive(world, *mine, 1);
        const auto begin = rankcast::steady_clock::now();
        while (mine->front() < 2 && support::seconds_since(begin) < 20) EXPECT_FALSE(w.test());
        EXPECT_EQ(mine->front(), 2);
        EXPECT_EQ(mine->back(), 1);
        std::this_thread::sleep_for(limit);  // the sender sleeps, too
      }
      mine.reset();
    } else {
      auto w = rankcast::start_send(world, *mine, 0);
      stop_half_way(w);
      (void)error_of<rankcast::remote_error>([&] { w.wait(); });
      mine.reset();
    }
  });
}

// The giving side's memory: a reader falls asleep between the halves, and the sender gives up.
TEST(late_peers, reader_that_stops_half_way) {
  for (const auto code : {rankcast::opcode::broadcast, rankcast::opcode::send}) {
    const bool sends = code == rankcast::opcode::send;
    on_two([&](const communicator& world, std::unique_ptr<values>& mine) {
      if (world.rank() == 0) {
        support::step("sender");
        gives_up(mine, [&](values& v) {
          halves h(v);
          world.run(operation_of(code, sends ? 1 : 0, h, true), {.timeout = limit});
        });
      } else {
        support::step("reader");
        const auto e = error_of<rankcast::error>([&] {
          halves h(*mine);
          h.nap = late;
          world.run(operation_of(sends ? rankcast::opcode::receive : code, 0, h, false), {});
        });
        if (e) {
          EXPECT_CONTAINS(e->what(), sends ? "gave up" : "timed out");
        }
        EXPECT_EQ(mine->front(), 1);  // the first half has come
        EXPECT_EQ((*mine)[large / 2 - 1], 1);
        mine.reset();
      }
    });
  }
}

}  // namespace
