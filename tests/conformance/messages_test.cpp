// send and receive: order, tags, self, sizes, forms.
#include <random>

#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using rankcast::dtype;
using support::run_ranks;
using support::same;
using support::tensor_of;

TEST(messages, ring_of_every_dtype_and_size) {
  for (const int ranks : {2, 3, 4, 8}) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      const int next = (world.rank() + 1) % ranks;
      const int previous = (world.rank() + ranks - 1) % ranks;
      for (const dtype type : support::all_dtypes()) {
        for (const std::int64_t size : support::sizes(rankcast::size_of(type))) {
          support::step("ring");
          const auto mine = tensor_of(type, support::pattern_values(world.rank(), size));
          auto got = support::room(type, size);
          auto sent = rankcast::start_send(world, mine, next);
          rankcast::receive(world, got, previous);
          sent.wait();
          EXPECT_TRUE(same(got, support::pattern_values(previous, size)));
        }
      }
    });
  }
}

// Small ones overtake nothing, large ones neither, also when both kinds take turns.
TEST(messages, first_in_first_out) {
  run_ranks(3, [](rankcast::communicator& world) {
    constexpr int count = 300;
    const auto length = [](int i) {
      return static_cast<std::size_t>(i % 5 == 0 ? 100 : 1 + i % 3);
    };
    support::step("fifo");
    if (world.rank() != 0) {
      for (int i = 0; i < count; ++i) {
        rankcast::send(world, std::vector<int>(length(i), 1000 * world.rank() + i), 0);
      }
      return;
    }
    for (int i = 0; i < count; ++i) {
      for (const int peer : {2, 1}) {
        std::vector<int> got(length(i));
        rankcast::receive(world, got, peer);
        EXPECT_EQ(got, std::vector<int>(length(i), 1000 * peer + i));
      }
    }
  });
}

// Receives that wait together are served in the order they were started, however the messages
// arrive meanwhile.
TEST(messages, receives_in_flight_keep_their_order) {
  run_ranks(2, [](rankcast::communicator& world) {
    constexpr int batch = 16;
    for (int round = 0; round < 300; ++round) {
      support::step("batch");
      if (world.rank() == 1) {
        for (int i = 0; i < batch; ++i) rankcast::send(world, round * batch + i, 0);
        continue;
      }
      std::array<int, batch> got{};
      std::vector<rankcast::work> works;
      for (auto& g : got) works.push_back(rankcast::start_receive(world, g, 1));
      for (auto& w : works) w.wait();
      for (int i = 0; i < batch; ++i) {
        ASSERT_EQ(got[static_cast<std::size_t>(i)], round * batch + i) << "round " << round;
      }
    }
  });
}

TEST(messages, tags_are_apart) {
  run_ranks(2, [](rankcast::communicator& world) {
    if (world.rank() == 0) {
      for (int tag = 0; tag < 5; ++tag) rankcast::send(world, 10 + tag, 1, {.tag = tag});
      const std::vector<int> large(500, 7);
      auto first = rankcast::start_send(world, large, 1, {.tag = 8});
      auto second = rankcast::start_send(world, 9, 1, {.tag = 9});
      second.wait();
      first.wait();
    } else {
      int got = 0;
      for (int tag = 4; tag >= 0; --tag) {
        rankcast::receive(world, got, 0, {.tag = tag});
        EXPECT_EQ(got, 10 + tag);
      }
      rankcast::receive(world, got, 0, {.tag = 9});
      EXPECT_EQ(got, 9);
      std::vector<int> large(500);
      rankcast::receive(world, large, 0, {.tag = 8});
      EXPECT_EQ(large, std::vector<int>(500, 7));
    }
  });
}

TEST(messages, to_oneself) {
  for (const int ranks : {1, 3}) {
    run_ranks(ranks, [](rankcast::communicator& world) {
      for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
        const std::vector<int> mine(n, world.rank() + 5);
        std::vector<int> got(n);
        auto sent = rankcast::start_send(world, mine, world.rank());
        rankcast::receive(world, got, world.rank());
        sent.wait();
        EXPECT_EQ(got, mine);
        auto awaited = rankcast::start_receive(world, got, world.rank(), {.tag = 3});
        EXPECT_FALSE(awaited.test());
        rankcast::send(world, std::vector<int>(n, 1), world.rank(), {.tag = 3});
        awaited.wait();
        EXPECT_EQ(got, std::vector<int>(n, 1));
      }
    });
  }
}

// Messages have no place in the sequence of collectives, and may cross them.
TEST(messages, across_collectives) {
  run_ranks(4, [](rankcast::communicator& world) {
    std::vector<int> got(200);
    const std::vector<int> mine(200, world.rank());
    const int peer = world.rank() ^ 1;
    auto awaited = rankcast::start_receive(world, got, peer);
    rankcast::barrier(world);
    auto sent = rankcast::start_send(world, mine, peer);
    int sum = 1;
    rankcast::all_reduce(world, sum);
    EXPECT_EQ(sum, 4);
    awaited.wait();
    sent.wait();
    EXPECT_EQ(got, std::vector<int>(200, peer));
  });
}

TEST(messages, of_another_size_or_dtype_are_refused_on_both_sides) {
  run_ranks(2, [](rankcast::communicator& world) {
    for (const std::size_t n : {std::size_t{4}, std::size_t{400}}) {
      if (world.rank() == 0) {
        const std::vector<int> values(n, 1);
        if (n == 4) {  // copied: the sender has gone on
          rankcast::send(world, values, 1);
        } else {
          const auto e = support::error_of<rankcast::mismatch_error>(
              [&] { rankcast::send(world, values, 1); });
          if (e) {
            EXPECT_CONTAINS(e->what(), "wanted " + std::to_string(n));
          }
        }
      } else {
        std::vector<float> got(n, -1.0f);
        const auto e =
            support::error_of<rankcast::mismatch_error>([&] { rankcast::receive(world, got, 0); });
        if (e) {
          EXPECT_CONTAINS(e->what(), "int32");
          EXPECT_CONTAINS(e->what(), "float32");
        }
        EXPECT_EQ(got, std::vector<float>(n, -1.0f));
      }
    }
    rankcast::barrier(world);  // the group goes on
  });
}

// All pairs at once, random order, several tags: every message arrives once and unchanged.
TEST(messages, all_pairs_in_random_order) {
  for (const int ranks : {2, 4, 7}) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      support::step("all pairs");
      constexpr int tags = 3;
      std::mt19937 random(static_cast<unsigned>(world.rank()) + 11);
      struct message {
        int peer;
        int tag;
      };
      std::vector<message> plan;
      for (int peer = 0; peer < ranks; ++peer) {
        for (int tag = 0; tag < tags; ++tag) plan.push_back({peer, tag});
      }
      const auto length = [](int from, int to, int tag) {
        return static_cast<std::size_t>((from * 31 + to * 17 + tag * 40) % 200);
      };
      std::vector<std::vector<int>> out;
      std::vector<std::vector<int>> in;
      for (const auto& m : plan) {
        out.emplace_back(length(world.rank(), m.peer, m.tag), world.rank() * 100 + m.tag);
        in.emplace_back(length(m.peer, world.rank(), m.tag));
      }
      std::vector<std::size_t> order(2 * plan.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      std::vector<rankcast::work> works;
      for (const std::size_t i : order) {
        const auto& m = plan[i / 2];
        works.push_back(i % 2 == 0
                            ? rankcast::start_send(world, out[i / 2], m.peer, {.tag = m.tag})
                            : rankcast::start_receive(world, in[i / 2], m.peer, {.tag = m.tag}));
      }
      std::shuffle(works.begin(), works.end(), random);
      for (auto& w : works) w.wait();
      for (std::size_t i = 0; i < plan.size(); ++i) {
        EXPECT_EQ(in[i], std::vector<int>(length(plan[i].peer, world.rank(), plan[i].tag),
                                          plan[i].peer * 100 + plan[i].tag));
      }
    });
  }
}

}  // namespace
