// Broadcasts between ranks at several places, as MPI processes are on hosts: each byte goes between
// places once, and lies in a slot for the ranks of a place. The slots are all free after each test.
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <thread>

#include "rankcast/rankcast.hpp"
#include "support/places.hpp"
#include "support/values.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using support::run_at_places;

support::world_options many_chunks() {
  support::world_options options;
  options.eager_bytes = 256;
  options.chunk_bytes = 1024;
  options.flat_places = 2;
  return options;
}

std::vector<int> numbers(int seed, std::size_t n) {
  std::vector<int> v(n);
  std::iota(v.begin(), v.end(), seed * 10'000);
  return v;
}

const std::vector<std::vector<int>> layouts = {
    {0, 0, 1, 1}, {0, 1, 0, 1, 0}, {0, 1, 1, 1}, {3, 2, 2, 1, 1, 0, 0}, {0, 0, 0}, {0, 1, 2},
};

// Header and segments of any sizes. The decoder of a rank can refuse.
struct text_message final : rankcast::message_source, rankcast::message_sink {
  std::string head;
  std::vector<std::string> parts;
  std::string got;
  bool fails = false;
  bool drops = false;  // all segments but the first

  void encode(int, rankcast::message& out) override {
    const auto bytes = std::as_bytes(std::span(head));
    out.append(bytes);
    for (const auto& p : parts) out.segments.push_back(std::as_bytes(std::span(p)));
  }
  void decode(int, std::span<const std::byte> header, rankcast::segment_reader& segments) override {
    got.assign(reinterpret_cast<const char*>(header.data()), header.size());
    if (fails) throw std::runtime_error("no room for it");
    for (const std::uint64_t size : segments.sizes()) {
      std::string part(static_cast<std::size_t>(size), '\0');
      segments.read(std::as_writable_bytes(std::span(part)));
      got += part;
      if (drops) return;
    }
  }
};

void broadcast(const communicator& world, text_message& m, int root,
               rankcast::completion c = rankcast::completion::local) {
  rankcast::operation op;
  op.code = rankcast::opcode::broadcast;
  op.root = root;
  if (world.rank() == root) op.source = &m;
  else op.sink = &m;
  world.run(op, {.completion = c});
}

TEST(places, tensors_of_any_size_from_any_root) {
  for (const auto& of : layouts) {
    run_at_places(
        of,
        [&](communicator& world) {
          for (int root = 0; root < world.size(); ++root) {
            for (const std::size_t n : {0u, 1u, 63u, 64u, 65u, 256u, 257u, 5003u, 40'000u}) {
              auto v = numbers(world.rank(), n);
              rankcast::broadcast(world, v, {.root = root});
              ASSERT_EQ(v, numbers(root, n)) << "root " << root;
            }
          }
        },
        many_chunks());
  }
}

TEST(places, messages_of_any_size_from_any_root) {
  for (const auto& of : layouts) {
    run_at_places(
        of,
        [&](communicator& world) {
          for (int root = 0; root < world.size(); ++root) {
            for (const std::size_t n : {0u, 10u, 300u, 5000u, 100'000u}) {
              text_message m;
              m.head = "head of " + std::to_string(root) + std::string(n / 3, 'h');
              m.parts = {std::string(n, 'a'), "", std::string(n / 2, 'b')};
              const std::string wanted = m.head + m.parts[0] + m.parts[2];
              broadcast(world, m, root);
              if (world.rank() != root) {
                ASSERT_TRUE(m.got == wanted) << n << ", root " << root;
              }
            }
          }
        },
        many_chunks());
  }
}

// Strided, large and small, many in flight at once.
TEST(places, calls_in_flight_together) {
  run_at_places(
      {0, 0, 1, 1, 1},
      [&](communicator& world) {
        std::vector<std::vector<int>> all;
        std::vector<rankcast::work> works;
        for (int i = 0; i < 40; ++i) {
          all.push_back(numbers(100 * i + world.rank(), i % 3 == 0 ? 20 : 3001));
        }
        for (int i = 0; i < 40; ++i) {
          works.push_back(rankcast::start_broadcast(world, all[static_cast<std::size_t>(i)],
                                                    {.root = i % world.size()}));
        }
        for (auto& w : works) w.wait();
        for (int i = 0; i < 40; ++i) {
          const auto n = all[static_cast<std::size_t>(i)].size();
          ASSERT_EQ(all[static_cast<std::size_t>(i)], numbers(100 * i + i % world.size(), n));
        }
      },
      many_chunks());
}

support::traffic traffic_of(const std::vector<int>& of, std::size_t bytes, bool as_message) {
  return run_at_places(
      of,
      [&](communicator& world) {
        if (as_message) {
          text_message m;
          m.parts = {std::string(bytes, 'x')};
          broadcast(world, m, 0);
        } else {
          std::vector<char> v(bytes, 'x');
          rankcast::broadcast(world, v);
        }
      },
      many_chunks());
}

TEST(places, a_byte_goes_once_to_each_place) {
  constexpr std::size_t bytes = 1'000'000;
  for (const bool as_message : {false, true}) {
    for (const auto& of : layouts) {
      const auto places = std::set<int>(of.begin(), of.end()).size();
      const support::traffic t = traffic_of(of, bytes, as_message);
      const auto sent = static_cast<double>(t.between);
      EXPECT_GE(sent, static_cast<double>(bytes * (places - 1)));
      EXPECT_LE(sent, 1.15 * static_cast<double>(bytes * (places - 1)) + 5000);
      // Within places chunks are read where they came in, but for those that find no slot.
      const std::size_t near = of.size() - places;
      EXPECT_LE(t.within, bytes * near / 2);
      EXPECT_EQ(t.slots != 0, near != 0);
    }
  }
}

// The leader of place 1 is rank 1; rank 2 gets its data from there.
const std::vector<int> two_places{0, 1, 1};

TEST(places, the_root_refuses) {
  run_at_places(
      two_places,
      [](communicator& world) {
        std::vector<int> v(5000, world.rank());
        if (world.rank() == 0) {
          EXPECT_THROW(rankcast::broadcast(world, v, {.root = 9}), rankcast::usage_error);
        } else {
          try {
            rankcast::broadcast(world, v);
            ADD_FAILURE() << "nothing was thrown";
          } catch (const rankcast::remote_error& e) {
            EXPECT_EQ(e.rank(), 0) << e.what();
          }
        }
        rankcast::broadcast(world, v, {.root = 2});  // the group goes on
        EXPECT_EQ(v, std::vector<int>(5000, 2));
      },
      many_chunks());
}

TEST(places, a_leader_refuses) {
  run_at_places(
      two_places,
      [](communicator& world) {
        std::vector<int> v(5000, world.rank());
        if (world.rank() == 1) {
          EXPECT_THROW(rankcast::broadcast(world, v, {.root = -7}), rankcast::usage_error);
        } else if (world.rank() == 2) {
          EXPECT_THROW(rankcast::broadcast(world, v), rankcast::remote_error);
        } else {
          rankcast::broadcast(world, v);
        }
        rankcast::broadcast(world, v, {.root = 2});
        EXPECT_EQ(v, std::vector<int>(5000, 2));
      },
      many_chunks());
}

// Others still get what a leader could not decode, or did not want.
TEST(places, a_leader_fails_or_drops_a_message) {
  for (const bool fails : {true, false}) {
    for (const auto c : {rankcast::completion::local, rankcast::completion::everyone}) {
      run_at_places(
          two_places,
          [&](communicator& world) {
            text_message m;
            m.head = std::string(3000, 'h');
            m.parts = {std::string(30'000, 'a'), std::string(50'000, 'b')};
            m.fails = fails && world.rank() == 1;
            m.drops = !fails && world.rank() == 1;
            const bool throws = fails && (world.rank() == 1 || c == rankcast::completion::everyone);
            if (throws) EXPECT_THROW(broadcast(world, m, 0, c), std::exception);
            else broadcast(world, m, 0, c);
            if (world.rank() == 2) {
              EXPECT_TRUE(m.got == m.head + m.parts[0] + m.parts[1]);
            }
            text_message again;
            again.parts = {std::string(9000, 'c')};
            broadcast(world, again, 2);
            if (world.rank() != 2) {
              EXPECT_EQ(again.got, again.parts[0]);
            }
          },
          many_chunks());
    }
  }
}

TEST(places, a_late_leader_and_an_early_child) {
  for (const int late : {0, 1, 2}) {
    run_at_places(
        two_places,
        [&](communicator& world) {
          if (world.rank() == late) std::this_thread::sleep_for(60ms);
          auto v = numbers(world.rank(), 100'000);
          rankcast::broadcast(world, v);
          EXPECT_EQ(v, numbers(0, 100'000));
          if (world.rank() == late) std::this_thread::sleep_for(60ms);
          text_message m;
          m.parts = {std::string(400'000, 'm')};
          broadcast(world, m, 0);
          if (world.rank() != 0) {
            EXPECT_TRUE(m.got == m.parts[0]);
          }
        },
        many_chunks());
  }
}

// Readers at the root's and at the leader's place that come one after the other: nobody waits for
// those who are late, though they get the same chunks.
TEST(places, a_late_reader_keeps_no_other_from_reading) {
  for (const bool as_message : {false, true}) {
    run_at_places(
        {0, 0, 0, 1, 1, 1},
        [&](communicator& world) {
          const auto move = [&] {
            if (as_message) {
              text_message m;
              m.parts = {std::string(200'000, 'm')};
              broadcast(world, m, 0);
              if (world.rank() != 0) {
                EXPECT_TRUE(m.got == m.parts[0]);
              }
            } else {
              auto v = numbers(world.rank(), 50'000);
              rankcast::broadcast(world, v);
              EXPECT_EQ(v, numbers(0, 50'000));
            }
          };
          // 2 and 5 begin only when 1 and 4 have finished.
          int token = 0;
          if (world.rank() == 2) rankcast::receive(world, token, 1);
          if (world.rank() == 5) rankcast::receive(world, token, 4);
          move();
          if (world.rank() == 1) rankcast::send(world, token, 2);
          if (world.rank() == 4) rankcast::send(world, token, 5);
        },
        many_chunks());
  }
}

TEST(places, a_child_that_does_not_come_is_named) {
  run_at_places(
      two_places,
      [](communicator& world) {
        if (world.rank() == 2) {
          std::this_thread::sleep_for(400ms);
          EXPECT_THROW(world.flush(), rankcast::error);
          return;
        }
        std::vector<int> v(100'000, 1);
        try {
          rankcast::broadcast(world, v, {.timeout = 150ms});
          EXPECT_EQ(world.rank(), 0) << "the root may have finished";
        } catch (const rankcast::timeout_error& e) {
          EXPECT_EQ(e.missing(), std::vector<int>{2}) << e.what();
        } catch (const rankcast::revoked_error&) {
        }
      },
      many_chunks());
}

// Wherever a rank gives up in the middle, all throw, and nobody holds on to a slot.
TEST(places, revoked_in_the_middle) {
  for (const bool as_message : {false, true}) {
    for (int by = 0; by < 6; ++by) {
      run_at_places(
          {0, 0, 1, 1, 1, 2},
          [&](communicator& world) {
            std::vector<int> v(300'000, world.rank());
            text_message m;
            m.parts = {std::string(1'200'000, 'm')};
            const auto call = [&] {
              if (as_message) broadcast(world, m, 0);
              else rankcast::broadcast(world, v);
            };
            if (world.rank() == by) {
              if (as_message || by == 0) {
                std::this_thread::sleep_for(5ms);
              } else {
                auto w = rankcast::start_broadcast(world, v);
                for (int i = 0; i < 20; ++i) (void)w.test();
              }
              world.revoke("enough");
              EXPECT_THROW(call(), rankcast::revoked_error);
            } else {
              try {
                call();
                EXPECT_NE(by, 0);  // else it may have had its part by then
              } catch (const rankcast::revoked_error&) {
              }
            }
          },
          many_chunks());
    }
  }
}

}  // namespace
