// Streams and letters at their edges: refusals in the middle of a large transfer, calls that are
// compared late, decoders that wait while other things arrive.
#include <cstring>

#include "support/ranks.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using rankcast::completion;
using support::error_of;
using support::run_ranks;

void goes_on(const communicator& world) {
  int sum = 1;
  rankcast::all_reduce(world, sum);
  EXPECT_EQ(sum, world.size());
}

// Text of a size that the receiver does not know; one segment.
class text_source final : public rankcast::message_source {
 public:
  explicit text_source(std::string text) : text_(std::move(text)) {}
  void encode(int, rankcast::message& out) override {
    out.segments.push_back(std::as_bytes(std::span(text_)));
  }

 private:
  std::string text_;
};
class text_sink final : public rankcast::message_sink {
 public:
  void decode(int, std::span<const std::byte>, rankcast::segment_reader& segments) override {
    text.resize(segments.sizes()[0]);
    segments.read(std::as_writable_bytes(std::span(text)));
  }
  std::string text;
};
rankcast::operation text_operation(rankcast::opcode code, int root, int tag = 0) {
  rankcast::operation op;
  op.code = code;
  op.root = root;
  op.tag = tag;
  op.message_type = {1, "text"};
  op.where = rankcast::call_site::here();
  return op;
}
rankcast::work start_send_text(const communicator& c, text_source& s, int to, int tag = 0) {
  auto op = text_operation(rankcast::opcode::send, to, tag);
  op.source = &s;
  return c.start(op, {.timeout = 20s});
}
rankcast::work start_receive_text(const communicator& c, text_sink& s, int from, int tag = 0) {
  auto op = text_operation(rankcast::opcode::receive, from, tag);
  op.sink = &s;
  return c.start(op, {.timeout = 20s});
}

// The readers of a root that has run ahead refuse; it need not wait for them.
TEST(streams, a_reader_refuses_what_the_root_streams) {
  for (const int late : {0, 1}) {  // the root or the reader
    run_ranks(2, [&](communicator& world) {
      support::step("broadcast");
      if (world.rank() == late) std::this_thread::sleep_for(50ms);
      std::vector<int> data(5000, world.rank());
      if (world.rank() == 0) {
        const auto begin = rankcast::steady_clock::now();
        rankcast::broadcast(world, data, {.timeout = 30s});
        EXPECT_LT(support::seconds_since(begin), 10);
      } else {
        (void)error_of<rankcast::usage_error>(
            [&] { rankcast::broadcast(world, data, {.root = 9}); });
      }
      goes_on(world);
    });
  }
}

TEST(streams, the_root_of_a_gather_refuses) {
  for (const int late : {0, 1}) {
    run_ranks(3, [&](communicator& world) {
      support::step("gather");
      if ((world.rank() == 0) == (late == 0)) std::this_thread::sleep_for(50ms);
      const std::vector<int> mine(5000, world.rank());
      std::vector<int> all(7);
      const auto begin = rankcast::steady_clock::now();
      if (world.rank() == 0) {
        (void)error_of<rankcast::usage_error>([&] { rankcast::gather(world, mine, all); });
      } else {
        rankcast::gather(world, mine, rankcast::nothing, {.timeout = 30s});
        EXPECT_LT(support::seconds_since(begin), 10);
      }
      goes_on(world);
    });
  }
}

// What a refused call says of itself is not to be compared: it may be nonsense.
TEST(streams, a_refused_call_that_comes_late_is_not_compared) {
  run_ranks(2, [](communicator& world) {
    int x = 0;
    if (world.rank() == 0) {
      rankcast::broadcast(world, x);
    } else {
      std::this_thread::sleep_for(20ms);
      (void)error_of<rankcast::usage_error>(
          [&] { rankcast::gather(world, x, rankcast::nothing, {.root = 1'000'000}); });
    }
    goes_on(world);
  });
}

// Buffers of a refused call are not looked at: not those of a device, nor later those that are
// gone.
TEST(streams, a_refused_exchange_in_place_leaves_its_buffer_alone) {
  run_ranks(2, [](communicator& world) {
    rankcast::operation op;
    op.code = rankcast::opcode::all_to_all;
    op.send.given = true;
    op.send.memory = rankcast::memory_kind::device;
    op.send.address = reinterpret_cast<std::byte*>(std::uintptr_t{64});
    op.send.elements_layout = rankcast::layout::contiguous({100});
    op.receive = op.send;
    (void)error_of<rankcast::error>([&] { world.run(op, {}); });
    goes_on(world);
  });
}

TEST(streams, a_refused_call_beyond_the_window) {
  run_ranks(2, [](communicator& world) {
    if (world.rank() == 1) std::this_thread::sleep_for(100ms);
    std::vector<rankcast::work> works;
    std::vector<int> values(64, 7);
    for (int& v : values) works.push_back(rankcast::start_broadcast(world, v));
    {
      std::vector<int> data(5001);
      (void)error_of<rankcast::usage_error>([&] { rankcast::all_to_all(world, data, data); });
    }
    for (auto& w : works) w.wait();
    goes_on(world);
  });
}

// While the decoder of one receive waits, messages for another come in, which a third one, started
// later, must not take.
TEST(streams, receives_keep_their_order_around_a_decoder_that_waits) {
  run_ranks(2, [](communicator& world) {
    for (int round = 0; round < 50; ++round) {
      support::step("letters");
      const std::string text(20'000, 'x');
      if (world.rank() == 0) {
        text_source source(text);
        std::this_thread::sleep_for(2ms);  // the three receives wait by now
        auto large = start_send_text(world, source, 1, 2);
        std::this_thread::sleep_for(1ms);  // and the decoder of one of them is at work
        rankcast::send(world, 1, 1, {.tag = 1});
        rankcast::send(world, 2, 1, {.tag = 1});
        large.wait();
      } else {
        int first = 0;
        int second = 0;
        text_sink sink;
        auto a = rankcast::start_receive(world, first, 0, {.tag = 1});
        auto b = start_receive_text(world, sink, 0, 2);
        auto c = rankcast::start_receive(world, second, 0, {.tag = 1});
        b.wait();
        a.wait();
        c.wait();
        ASSERT_EQ(first, 1) << "round " << round;
        ASSERT_EQ(second, 2);
        EXPECT_EQ(sink.text, text);
      }
      rankcast::barrier(world);
    }
  });
}

// Both groups have a stream in both directions, and each rank waits on another group.
TEST(streams, messages_on_two_groups_waited_for_in_opposite_orders) {
  run_ranks(2, [](communicator& world) {
    const auto twin = world.duplicate();
    const int peer = 1 - world.rank();
    for (int round = 0; round < 50; ++round) {
      support::step("opposite");
      text_source source(std::string(20'000, 'y'));
      text_sink sinks[2];
      std::vector<rankcast::work> works;
      const communicator* groups[] = {&world, &twin};
      if (world.rank() == 1) std::swap(groups[0], groups[1]);
      for (int i = 0; i < 2; ++i) works.push_back(start_send_text(*groups[i], source, peer));
      for (int i = 0; i < 2; ++i) works.push_back(start_receive_text(*groups[i], sinks[i], peer));
      works[2].wait();
      works[3].wait();
      works[0].wait();
      works[1].wait();
      ASSERT_EQ(sinks[0].text.size(), 20'000u);
      ASSERT_EQ(sinks[1].text.size(), 20'000u);
    }
  });
}

// The same with calls that block: a rank may wait in one group while the other is at work in it.
TEST(streams, blocking_messages_on_two_groups) {
  run_ranks(2, [](communicator& world) {
    const auto twin = world.duplicate();
    const int peer = 1 - world.rank();
    for (int round = 0; round < 50; ++round) {
      support::step("opposite");
      text_source source(std::string(20'000, 'y'));
      text_sink sinks[2];
      const communicator* groups[] = {&world, &twin};
      if (world.rank() == 1) std::swap(groups[0], groups[1]);
      auto a = start_send_text(*groups[0], source, peer);
      auto b = start_send_text(*groups[1], source, peer);
      auto c = start_receive_text(*groups[0], sinks[0], peer);
      auto op = text_operation(rankcast::opcode::receive, peer);
      op.sink = &sinks[1];
      groups[1]->run(op, {.timeout = 20s});
      c.wait();
      a.wait();
      b.wait();
      ASSERT_EQ(sinks[0].text.size(), 20'000u);
      ASSERT_EQ(sinks[1].text.size(), 20'000u);
    }
  });
}

// A decoder that drops other work of its group; its list is being walked then.
class dropping_sink final : public rankcast::message_sink {
 public:
  explicit dropping_sink(std::vector<rankcast::work>& works) : works_(works) {}
  void decode(int, std::span<const std::byte>, rankcast::segment_reader&) override {
    works_.clear();
  }

 private:
  std::vector<rankcast::work>& works_;
};
TEST(streams, receives_dropped_by_a_decoder) {
  run_ranks(2, [](communicator& world) {
    if (world.rank() == 0) {
      std::this_thread::sleep_for(5ms);
      text_source source("x");
      start_send_text(world, source, 1).wait();
    } else {
      std::array<int, 8> values{};
      std::vector<rankcast::work> works;
      dropping_sink sink(works);
      for (int& v : values) works.push_back(rankcast::start_receive(world, v, 0, {.tag = 3}));
      auto op = text_operation(rankcast::opcode::receive, 0);
      op.sink = &sink;
      world.run(op, {});
    }
    goes_on(world);
  });
}
TEST(streams, calls_dropped_by_a_decoder) {
  run_ranks(2, [](communicator& world) {
    try {
      auto op = text_operation(rankcast::opcode::broadcast, 0);
      if (world.rank() == 0) {
        std::this_thread::sleep_for(5ms);
        text_source source("x");
        op.source = &source;
        world.run(op, {});
      } else {
        std::array<int, 8> values{};
        std::vector<rankcast::work> works;
        dropping_sink sink(works);
        op.sink = &sink;
        auto first = world.start(op, {});
        for (int& v : values) works.push_back(rankcast::start_broadcast(world, v));
        first.wait();
      }
      for (;;) world.flush();
    } catch (const rankcast::revoked_error& e) {
      EXPECT_CONTAINS(e.what(), "rank 1 dropped a call");
    }
  });
}

// A rank that cannot fold lets the values of the others pass. Those are no results, and nobody gets
// to see what no rank has given, not even a call that is going to fail.
TEST(streams, a_rank_that_cannot_fold) {
  constexpr std::int64_t unit = 0x0101'0101'0101'0101;
  struct strict {
    int rank = 0;
    int* calls = nullptr;
    bool* strangers = nullptr;
    std::int64_t operator()(std::int64_t a, std::int64_t b) const {
      if ((*calls)++ == 0) {
        if (rank == 3) throw std::domain_error("does not fold");
        if (rank == 2) std::this_thread::sleep_for(100ms);
      }
      if (a % unit != 0 || b % unit != 0) *strangers = true;
      return unit;
    }
  };
  run_ranks(4, [&](communicator& world) {
    std::vector<std::int64_t> data(20'000, unit * (world.rank() + 1));
    int calls = 0;
    bool strangers = false;
    const strict fold{world.rank(), &calls, &strangers};
    if (world.rank() == 3) {
      (void)error_of<std::domain_error>([&] { rankcast::all_reduce(world, data, fold); });
    } else {
      const auto e =
          error_of<rankcast::remote_error>([&] { rankcast::all_reduce(world, data, fold); });
      if (e) {
        EXPECT_EQ(e->rank(), 3);
        EXPECT_CONTAINS(e->what(), "does not fold");
      }
    }
    EXPECT_FALSE(strangers);
    std::vector<std::int64_t> again(20'000, world.rank());
    rankcast::all_reduce(world, again);
    EXPECT_EQ(again, std::vector<std::int64_t>(20'000, 6));
  });
}

// A share of nothing needs no address.
TEST(streams, empty_shares_of_a_started_scatter) {
  run_ranks(2, [](communicator& world) {
    for (const std::int64_t n : {10, 30, 2000}) {  // in the slot, in the stage, large
      const std::vector<std::int64_t> counts{n, 0};
      const auto mine = static_cast<std::size_t>(world.rank() == 0 ? n : 0);
      const std::vector<float> all(mine, 1);
      std::vector<float> share(mine);
      auto w = rankcast::start_scatter(world, all, share, {.root = 0, .counts = counts});
      w.wait();
      EXPECT_EQ(share, all);
    }
  });
}

// One thread of a rank gives up what another waits in.
TEST(streams, any_thread_may_revoke) {
  for (int i = 0; i < 20; ++i) {
    run_ranks(2, [i](communicator& world) {
      std::thread other;
      if (world.rank() == 0) {
        other = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
          world.revoke("the user closed the window");
        });
      }
      const auto e = error_of<rankcast::revoked_error>([&] {
        for (;;) {
          std::vector<int> values(10'000, 1);
          rankcast::all_reduce(world, values, rankcast::sum, {.timeout = rankcast::no_timeout});
        }
      });
      if (other.joinable()) other.join();
      if (e) {
        EXPECT_CONTAINS(e->what(), "the user closed the window");
      }
    });
  }
}

// Completion is each rank's own choice.
TEST(streams, ranks_choose_their_completion) {
  for (const std::size_t n : {std::size_t{2}, std::size_t{5000}}) {
    for (const int waiting : {0, 1}) {
      run_ranks(3, [&](communicator& world) {
        std::vector<int> data(n, world.rank());
        rankcast::broadcast(
            world, data,
            {.timeout = 20s,
             .completion = world.rank() == waiting ? completion::everyone : completion::local});
        EXPECT_EQ(data, std::vector<int>(n, 0));
        goes_on(world);
      });
    }
  }
}

// Other traffic of the group does not put a time limit off.
TEST(streams, a_time_limit_holds_in_a_flood) {
  run_ranks(2, [](communicator& world) {
    if (world.rank() == 0) {
      int x = 0;
      const auto begin = rankcast::steady_clock::now();
      (void)error_of<rankcast::timeout_error>(
          [&] { rankcast::receive(world, x, 1, {.tag = 9, .timeout = 100ms}); });
      EXPECT_LT(support::seconds_since(begin), 2);
    } else {
      const auto begin = rankcast::steady_clock::now();
      while (support::seconds_since(begin) < 3) rankcast::send(world, 1, 0, {.tag = 1});
    }
    goes_on(world);
  });
}

}  // namespace
