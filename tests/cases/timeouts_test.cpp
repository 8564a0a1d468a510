// Cases from public reports about time limits.
#include "support/ranks.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using rankcast::completion;
using rankcast::scoped_timeout;
using rankcast::timeout;
using support::error_of;
using support::run_ranks;

// The limit of the library for one test.
class library_limit {
 public:
  explicit library_limit(timeout limit) { rankcast::set_library_timeout(limit); }
  ~library_limit() { rankcast::set_library_timeout(before_); }
  library_limit(const library_limit&) = delete;
  library_limit& operator=(const library_limit&) = delete;

 private:
  timeout before_ = rankcast::library_timeout();
};

// The limit of the world did not reach its sub-groups, which fell back to the built-in one.
TEST(cases, C22_a_subgroup_inherits_the_limit_of_its_parent) {
  const library_limit built_in(1s);
  run_ranks(4,
            [](communicator& world) {
              EXPECT_EQ(world.effective_timeout(), timeout(3s));
              const auto half = world.split(world.rank() / 2);
              EXPECT_EQ(half.effective_timeout(), timeout(3s));
              EXPECT_EQ(half.default_timeout(), timeout(3s));
              if (world.rank() == 1) std::this_thread::sleep_for(2s);
              const auto begin = rankcast::steady_clock::now();
              rankcast::barrier(half, {.completion = completion::everyone});
              if (world.rank() == 0) {
                EXPECT_GT(support::seconds_since(begin), 1.5);
              }
              // Groups of groups inherit too.
              EXPECT_EQ(half.duplicate().effective_timeout(), timeout(3s));
            },
            {.default_timeout = 3s});
}

TEST(cases, C22_a_subgroup_with_a_limit_of_its_own) {
  const library_limit built_in(1s);
  std::atomic<int> told{0};
  run_ranks(4,
            [&](communicator& world) {
              const auto half =
                  world.split(world.rank() / 2, 0, {.name = "quick", .default_timeout = 300ms});
              EXPECT_EQ(half.effective_timeout(), timeout(300ms));
              EXPECT_EQ(world.effective_timeout(), timeout(3s));
              if (half.rank() == 1) {
                while (told.load() < 2) std::this_thread::sleep_for(1ms);
                return;
              }
              const auto begin = rankcast::steady_clock::now();
              const auto e = error_of<rankcast::timeout_error>(
                  [&] { rankcast::barrier(half, {.completion = completion::everyone}); });
              const double waited = support::seconds_since(begin);
              EXPECT_GE(waited, 0.3);
              EXPECT_LT(waited, 0.9);
              if (e) {
                EXPECT_CONTAINS(e->what(), "barrier");
                EXPECT_CONTAINS(e->what(), world.rank() == 0 ? "'quick' [0,1]" : "'quick' [2,3]");
                EXPECT_EQ(e->missing(), std::vector<int>{1});
              }
              told.fetch_add(1);
            },
            {.default_timeout = 3s});
}

// Operations had captured an old limit, and a limit of the call has to win over that of the group.
// A receive with nobody sending, which leaves the group as it was.
double time_out(const communicator& c, rankcast::timeout of_call = {}) {
  int x = 0;
  const auto begin = rankcast::steady_clock::now();
  const auto e = error_of<rankcast::timeout_error>(
      [&] { rankcast::receive(c, x, (c.rank() + 1) % c.size(), {.tag = 5, .timeout = of_call}); });
  if (e) {
    EXPECT_EQ(e->missing(), std::vector<int>{(c.rank() + 1) % c.size()});
  }
  return support::seconds_since(begin);
}

void expect_scopes(const communicator& c) {
  const auto outside = c.effective_timeout();
  {
    const scoped_timeout scope(c, 200ms);
    double waited = time_out(c);
    EXPECT_GE(waited, 0.2);
    EXPECT_LT(waited, 1);
    waited = 1;  // the limit of the call wins; the best of three, for a machine may be busy
    for (int i = 0; i < 3 && waited >= 0.19; ++i) waited = time_out(c, 100ms);
    EXPECT_GE(waited, 0.1);
    EXPECT_LT(waited, 0.19);
    try {
      const scoped_timeout inner(c, 5s);
      EXPECT_EQ(c.effective_timeout(), timeout(5s));
      throw std::runtime_error("leaves the inner scope");
    } catch (const std::runtime_error&) {
      EXPECT_EQ(c.effective_timeout(), timeout(200ms));
    }
    waited = time_out(c);
    EXPECT_GE(waited, 0.2);
    EXPECT_LT(waited, 1);
  }
  EXPECT_EQ(c.effective_timeout(), outside);
}

TEST(cases, C23_scopes_govern_and_end) {
  for (const int ranks : {2, 3, 4}) {
    run_ranks(ranks,
              [](communicator& world) {
                EXPECT_EQ(world.effective_timeout(), timeout(60s));
                expect_scopes(world);
                rankcast::barrier(world);
              },
              {.default_timeout = {}});
  }
}

TEST(cases, C23_scopes_on_a_subgroup) {
  run_ranks(4, [](communicator& world) {
    const auto group = world.subgroup(std::vector<int>{3, 1});
    if (group.is_member()) expect_scopes(group);
    rankcast::barrier(world);
  });
}

TEST(cases, C23_an_inner_scope_governs_a_collective) {
  run_ranks(3, [](communicator& world) {
    const scoped_timeout scope(world, 200ms);
    const scoped_timeout inner(world, 5s);
    if (world.rank() == 1) std::this_thread::sleep_for(500ms);
    rankcast::barrier(world, {.completion = completion::everyone});  // 0.2 s would not do
  });
}

// The limit is fixed when the call starts; a change holds for later calls at once.
TEST(cases, C23_a_changed_limit_holds_from_the_next_call) {
  run_ranks(2, [](communicator& world) {
    world.set_default_timeout(100ms);
    int x = 0;
    auto w = rankcast::start_receive(world, x, 1 - world.rank(), {.tag = 6});
    world.set_default_timeout(20s);
    const auto begin = rankcast::steady_clock::now();
    (void)error_of<rankcast::timeout_error>([&] { w.wait(); });
    EXPECT_LT(support::seconds_since(begin), 1);
    EXPECT_EQ(world.effective_timeout(), timeout(20s));
    if (world.rank() == 0) std::this_thread::sleep_for(250ms);  // more than the old limit
    rankcast::barrier(world, {.completion = completion::everyone});
    world.set_default_timeout(100ms);
    EXPECT_LT(time_out(world), 1);
    rankcast::barrier(world, {.timeout = 10s});
  });
}

TEST(cases, C23_scopes_do_not_leak_to_other_ranks) {
  run_ranks(2, [](communicator& world) {
    if (world.rank() == 0) {
      const scoped_timeout scope(world, 100ms);
      rankcast::barrier(world, {.timeout = 10s});
      rankcast::barrier(world, {.timeout = 10s});
    } else {
      rankcast::barrier(world);
      EXPECT_EQ(world.effective_timeout(), timeout(30s));  // while the other's scope is alive
      std::thread([&] { EXPECT_EQ(world.effective_timeout(), timeout(30s)); }).join();
      rankcast::barrier(world);
    }
  });
}

}  // namespace
