// A leader and its workers: wrapped functions, failures that reach all, and ends.
#include <span>
#include <stdexcept>

#include "rankcast/object.hpp"
#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using rankcast::coordinator;
using support::error_of;
using support::run_ranks;

// A "model" whose next token depends on all shards: rank r knows the weights of every n-th number.
std::int64_t next_token(std::span<const std::int64_t> ids, int shard, int shards) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<int>(i % static_cast<std::size_t>(shards)) == shard) {
      sum += ids[i] * static_cast<std::int64_t>(i + 3);
    }
  }
  return sum;
}

// A generate loop that knows of no ranks.
template <class Forward>
std::vector<std::int64_t> generate(Forward&& forward) {
  std::vector<std::int64_t> ids{5, 7};
  for (int i = 0; i < 40; ++i) ids.push_back(forward(ids) % 1009);
  return ids;
}

TEST(coordinator, an_unmodified_loop_gets_the_plain_tokens) {
  const auto plain =
      generate([](const std::vector<std::int64_t>& ids) { return next_token(ids, 0, 1); });
  for (const int ranks : {1, 2, 3, 4}) {
    for (int leader = 0; leader < ranks; ++leader) {
      run_ranks(ranks, [&](communicator& world) {
        coordinator session(world, {.leader = leader});
        EXPECT_EQ(session.is_leader(), world.rank() == leader);
        auto forward = session.wrap([&](std::span<const std::int64_t> ids) {
          std::int64_t sum = next_token(ids, world.rank(), world.size());
          rankcast::all_reduce(world, sum);
          return sum;
        });
        if (session.is_leader()) EXPECT_EQ(generate(forward), plain);
        else session.serve();
      });
    }
  }
}

TEST(coordinator, several_functions_and_kinds_of_arguments) {
  run_ranks(3, [](communicator& world) {
    std::vector<std::string> seen;
    const void* place = nullptr;
    coordinator session(world);
    auto note = session.wrap([&](std::string_view text, int times) {
      for (int i = 0; i < times; ++i) seen.emplace_back(text);
    });
    auto bulk = session.wrap([&](const std::vector<float>& v, std::map<std::string, int> extra) {
      if (place != nullptr && !session.is_leader()) {
        EXPECT_EQ(place, v.data()) << "memory of the last call";
      }
      place = v.data();
      double sum = extra.at("x");
      for (const float f : v) sum += static_cast<double>(f);
      return sum;
    });
    auto nothing = session.wrap([&] { seen.emplace_back("nothing"); });
    if (session.is_leader()) {
      note("a", 2);
      EXPECT_EQ(bulk(std::vector<float>(50'000, 1.0F), {{"x", 1}}), 50'001);
      nothing();
      EXPECT_EQ(bulk(std::vector<float>(50'000, 2.0F), {{"x", 2}}), 100'002);
      note("b", 1);
    } else {
      session.serve();
    }
    EXPECT_EQ(seen, (std::vector<std::string>{"a", "a", "nothing", "b"}));
  });
}

// Whoever throws, whether the others wait for it inside the call or not: it keeps its exception,
// and all others get one that names it.
TEST(coordinator, a_throw_in_any_rank_reaches_all) {
  for (const int ranks : {2, 3}) {
    for (int thrower = 0; thrower < ranks; ++thrower) {
      for (const bool waited_for : {false, true}) {
        run_ranks(ranks, [&](communicator& world) {
          support::step("call");
          const auto group = world.duplicate();
          coordinator session(group, {.leader = ranks - 1, .grace = 30ms});
          auto f = session.wrap([&](int x) {
            if (world.rank() == thrower && x == 2) throw std::range_error("no weights for 2");
            int sum = x;
            if (waited_for) rankcast::all_reduce(group, sum);
            return sum;
          });
          const auto part = [&] {
            if (session.is_leader()) {
              EXPECT_EQ(f(1), waited_for ? ranks : 1);
              f(2);
            } else {
              session.serve();
            }
          };
          const auto begin = rankcast::steady_clock::now();
          if (world.rank() == thrower) {
            const auto e = error_of<std::range_error>(part);
            if (e) {
              EXPECT_STREQ(e->what(), "no weights for 2");
            }
          } else {
            const auto e = error_of<rankcast::remote_error>(part);
            if (e) {
              EXPECT_EQ(e->rank(), thrower);
              EXPECT_CONTAINS(e->what(), "rank " + std::to_string(thrower) + " failed");
              EXPECT_CONTAINS(e->what(), "no weights for 2");
            }
          }
          EXPECT_LT(support::seconds_since(begin), 5);
          if (waited_for) return;
          // The group still stands, and so does the session.
          support::step("again");
          if (session.is_leader()) EXPECT_EQ(f(3), 3);
          else session.serve();
        });
      }
    }
  }
}

TEST(coordinator, the_leader_may_be_busy_for_longer_than_any_limit) {
  run_ranks(3,
            [](communicator& world) {
              coordinator session(world);
              auto f = session.wrap([&](int x) {
                rankcast::all_reduce(world, x);
                return x;
              });
              if (session.is_leader()) {
                for (int i = 0; i < 3; ++i) {
                  std::this_thread::sleep_for(400ms);
                  EXPECT_EQ(f(i), 3 * i);
                }
              } else {
                session.serve();
              }
            },
            {.default_timeout = 1s});
}

TEST(coordinator, an_exception_in_the_loop_sends_the_workers_home) {
  run_ranks(3, [](communicator& world) {
    int calls = 0;
    const auto part = [&] {
      coordinator session(world);
      auto f = session.wrap([&](int) { ++calls; });
      if (!session.is_leader()) return session.serve();
      f(1);
      throw std::runtime_error("the harness is full");
    };
    if (world.rank() == 0) (void)error_of<std::runtime_error>(part);
    else part();
    EXPECT_EQ(calls, 1);
    rankcast::barrier(world);
  });
}

TEST(coordinator, ends_once) {
  run_ranks(2, [](communicator& world) {
    coordinator session(world);
    auto f = session.wrap([&](int x) { return x; });
    if (session.is_leader()) {
      EXPECT_EQ(f(4), 4);
      session.finish();
      session.finish();
      const auto e = error_of<rankcast::usage_error>([&] { (void)f(5); });
      if (e) {
        EXPECT_CONTAINS(e->what(), "has ended");
      }
    } else {
      const auto e = error_of<rankcast::usage_error>([&] { (void)f(4); });
      if (e) {
        EXPECT_CONTAINS(e->what(), "rank 1 is a worker of rank 0");
      }
      session.finish();  // not this rank's to say
      session.serve();
      (void)error_of<rankcast::usage_error>([&] { session.serve(); });
    }
    rankcast::barrier(world);
  });
}

TEST(coordinator, a_call_from_inside_a_call_is_refused) {
  run_ranks(2, [](communicator& world) {
    coordinator session(world);
    auto inner = session.wrap([](int x) { return x; });
    auto outer = session.wrap([&](int x) { return inner(x); });
    const auto part = [&] {
      if (session.is_leader()) (void)outer(1);
      else session.serve();
    };
    const auto e = error_of<rankcast::usage_error>(part);
    if (e) {
      EXPECT_CONTAINS(e->what(), "from inside a function of the same session");
    }
  });
}

// A worker that never comes to serve: the leader is told, and so is the other worker.
TEST(coordinator, a_worker_that_leaves_is_lost) {
  run_ranks(3, [](communicator& world) {
    std::optional<coordinator> session(world);
    if (world.rank() == 1) return;
    auto f = session->wrap([](int x) { return x; });
    if (session->is_leader()) {
      const auto e = error_of<rankcast::peer_lost_error>([&] { (void)f(1); });
      if (e) {
        EXPECT_EQ(e->rank(), 1);
      }
    } else {
      // By the leader's word, or by the end of the control group.
      const auto e = error_of<rankcast::error>([&] { session->serve(); });
      if (e) {
        EXPECT_CONTAINS(e->what(), "rank 1");
      }
    }
  });
}

TEST(coordinator, ranks_that_wrap_different_functions) {
  run_ranks(2, [](communicator& world) {
    coordinator session(world);
    if (session.is_leader()) {
      auto first = session.wrap([](int) {});
      auto second = session.wrap([](int) {});
      (void)first;
      const auto e = error_of<rankcast::remote_error>([&] { second(1); });
      if (e) {
        EXPECT_CONTAINS(e->what(), "wrap the same ones on all ranks");
      }
    } else {
      (void)error_of<rankcast::usage_error>([&] { session.serve([](int) {}); });
    }
    // The same number, another signature.
    coordinator other(world);
    if (other.is_leader()) {
      auto f = other.wrap([](int) {});
      const auto e = error_of<rankcast::remote_error>([&] { f(1); });
      if (e) {
        EXPECT_CONTAINS(e->what(), "another type");
      }
    } else {
      (void)error_of<rankcast::decode_error>([&] { other.serve([](std::string) {}); });
    }
  });
}

TEST(coordinator, every_group_has_a_leader_of_its_own) {
  run_ranks(4, [](communicator& world) {
    const auto group = world.split(world.rank() / 2);
    coordinator session(group);
    auto f = session.wrap([&](int x) {
      rankcast::all_reduce(group, x);
      return x;
    });
    if (session.is_leader()) {
      for (int i = 0; i < 10 * (1 + world.rank()); ++i) EXPECT_EQ(f(i), 2 * i);
    } else {
      session.serve();
    }
  });
}

TEST(coordinator, a_leader_outside_of_the_group) {
  run_ranks(2, [](communicator& world) {
    (void)error_of<rankcast::usage_error>([&] { coordinator session(world, {.leader = 2}); });
  });
}

}  // namespace
