// Groups cut from groups: split, subgroup, duplicate, close; numbers that differ from the world's.
#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using rankcast::communicator;
using support::run_ranks;
using support::oracle::index;

std::vector<int> members_of(const communicator& c) {
  return {c.members().begin(), c.members().end()};
}

// A few collectives that go wrong when the group's numbers are not its own: every member finds the
// values of the group's members, in the group's order.
void exercise(const communicator& group, int world_rank) {
  const auto members = members_of(group);
  ASSERT_EQ(members[index(group.rank())], world_rank);
  std::vector<int> all(members.size());
  rankcast::all_gather(group, world_rank, all);
  EXPECT_EQ(all, members);
  for (int root = 0; root < group.size(); ++root) {
    std::vector<int> large(150, world_rank);
    rankcast::broadcast(group, large, {.root = root});
    EXPECT_EQ(large, std::vector<int>(150, members[index(root)]));
  }
  int sum = world_rank;
  rankcast::all_reduce(group, sum);
  int wanted = 0;
  for (const int m : members) wanted += m;
  EXPECT_EQ(sum, wanted);
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  int got = -1;
  auto w = rankcast::start_receive(group, got, previous);
  rankcast::send(group, world_rank, next);
  w.wait();
  EXPECT_EQ(got, members[index(previous)]);
}

TEST(groups, split_by_color) {
  for (const int ranks : support::rank_counts()) {
    run_ranks(ranks, [](communicator& world) {
      support::step("split");
      const int me = world.rank();
      const auto group = world.split(me % 3);
      std::vector<int> wanted;
      for (int r = me % 3; r < world.size(); r += 3) wanted.push_back(r);
      EXPECT_EQ(members_of(group), wanted);
      EXPECT_TRUE(group.is_member());
      EXPECT_EQ(group.name(), "world/" + std::to_string(me % 3));
      support::step("use");
      exercise(group, me);
      exercise(world, me);
    });
  }
}

TEST(groups, keys_renumber) {
  if (support::most_ranks() < 7) GTEST_SKIP() << "needs 7 ranks";
  run_ranks(7, [](communicator& world) {
    const int me = world.rank();
    const auto backwards = world.split(0, -me);
    EXPECT_EQ(members_of(backwards), (std::vector<int>{6, 5, 4, 3, 2, 1, 0}));
    exercise(backwards, me);
    const auto tied = world.split(me < 4 ? 5 : -5, me % 2);  // ties by the present numbers
    EXPECT_EQ(members_of(tied),
              me < 4 ? (std::vector<int>{0, 2, 1, 3}) : (std::vector<int>{4, 6, 5}));
    exercise(tied, me);
    // A group of a group: the members are still told in the world's numbers.
    const auto inner = backwards.split(backwards.rank() % 2, -backwards.rank());
    EXPECT_EQ(members_of(inner), backwards.rank() % 2 == 0 ? (std::vector<int>{0, 2, 4, 6})
                                                           : (std::vector<int>{1, 3, 5}));
    exercise(inner, me);
  });
}

TEST(groups, without_color_is_no_member) {
  run_ranks(4, [](communicator& world) {
    const int me = world.rank();
    const auto group = world.split(me >= 2 ? std::optional(1) : std::nullopt);
    EXPECT_EQ(group.is_member(), me >= 2);
    EXPECT_EQ(group.size(), 2);
    EXPECT_EQ(members_of(group), (std::vector<int>{2, 3}));
    if (group.is_member()) {
      exercise(group, me);
    } else {
      int x = 0;
      std::vector<int> v(2);
      const auto refused = [&](const char* call, auto&& f) {
        const auto e = support::error_of<rankcast::usage_error>(f);
        if (!e) return;
        EXPECT_CONTAINS(e->what(), std::string(call) + ":");
        EXPECT_CONTAINS(e->what(), "world rank " + std::to_string(me) + " is not a member");
        EXPECT_CONTAINS(e->what(), "[2,3]");
      };
      refused("broadcast", [&] { rankcast::broadcast(group, x); });
      refused("scatter", [&] { rankcast::scatter(group, v, x); });
      refused("gather", [&] { rankcast::gather(group, x, v); });
      refused("all_gather", [&] { rankcast::all_gather(group, x, v); });
      refused("reduce", [&] { rankcast::reduce(group, x, x); });
      refused("all_reduce", [&] { rankcast::all_reduce(group, x); });
      refused("reduce_scatter", [&] { rankcast::reduce_scatter(group, v, x); });
      refused("all_to_all", [&] { rankcast::all_to_all(group, v, v); });
      refused("send", [&] { rankcast::send(group, x, 0); });
      refused("receive", [&] { rankcast::receive(group, x, 0); });
      refused("barrier", [&] { rankcast::barrier(group); });
      refused("broadcast", [&] {
        rankcast::tensor t;
        rankcast::broadcast_tensor(group, t);
      });
      refused("broadcast", [&] { auto w = rankcast::start_broadcast(group, x); });
      refused("split", [&] { (void)group.split(0); });
      refused("split", [&] { (void)group.duplicate(); });
      refused("close", [&] {
        auto copy = group;
        copy.close();
      });
      refused("rank", [&] { (void)group.rank(); });
    }
    rankcast::barrier(world);
  });
}

TEST(groups, subgroup_of_a_list) {
  run_ranks(4, [](communicator& world) {
    const int me = world.rank();
    const std::vector<int> list{3, 1, 2};
    const auto group = world.subgroup(list, {.name = "three"});
    EXPECT_EQ(members_of(group), list);
    EXPECT_EQ(group.name(), "three");
    EXPECT_EQ(group.text(), "group 'three' [3,1,2]");
    EXPECT_EQ(group.is_member(), me != 0);
    if (group.is_member()) exercise(group, me);
    const auto one = world.subgroup(std::vector<int>{2});
    if (me == 2) exercise(one, me);
    for (const std::vector<int>& wrong : {std::vector<int>{}, std::vector<int>{0, 4},
                                          std::vector<int>{-1}, std::vector<int>{1, 1}}) {
      (void)support::error_of<rankcast::usage_error>([&] { (void)world.subgroup(wrong); });
    }
    exercise(world, me);
  });
}

TEST(groups, split_does_not_meet_duplicate) {
  run_ranks(2, [](communicator& world) {
    const auto e = support::error_of<rankcast::mismatch_error>([&] {
      if (world.rank() == 0) (void)world.split(0);
      else (void)world.duplicate();
    });
    if (e) {
      EXPECT_EQ(e->argument(), "type");
      EXPECT_CONTAINS(e->what(),
                      "rank 0 gave split by colour, rank 1 gave a group of listed ranks");
    }
  });
}

TEST(groups, subgroup_of_differing_lists) {
  run_ranks(3, [](communicator& world) {
    const std::vector<int> list{0, world.rank() == 1 ? 1 : 2};
    const auto e = support::error_of<rankcast::mismatch_error>([&] { (void)world.subgroup(list); });
    if (e) {
      EXPECT_EQ(e->odd_ranks(), std::vector<int>{1});
    }
    exercise(world, world.rank());
  });
}

TEST(groups, duplicates_have_sequences_of_their_own) {
  run_ranks(3, [](communicator& world) {
    const auto twin = world.duplicate();
    EXPECT_EQ(members_of(twin), members_of(world));
    // The two are used in another order by each rank.
    std::vector<int> a(100, world.rank() + 1);
    std::vector<int> b(100, 10 * world.rank() + 1);
    if (world.rank() == 1) {
      auto w = rankcast::start_all_reduce(twin, b);
      rankcast::all_reduce(world, a);
      w.wait();
    } else {
      auto w = rankcast::start_all_reduce(world, a);
      rankcast::all_reduce(twin, b);
      w.wait();
    }
    EXPECT_EQ(a, std::vector<int>(100, 6));
    EXPECT_EQ(b, std::vector<int>(100, 33));
    exercise(twin, world.rank());
  });
}

TEST(groups, limits_are_inherited_scopes_are_not) {
  using namespace std::chrono_literals;
  run_ranks(2, [](communicator& world) {
    world.set_default_timeout(7s);
    world.set_default_completion(rankcast::completion::everyone);
    const rankcast::scoped_timeout scope(world, 3s);
    EXPECT_EQ(world.effective_timeout(), rankcast::timeout(3s));
    auto child = world.split(0);
    EXPECT_EQ(child.effective_timeout(), rankcast::timeout(7s));
    EXPECT_EQ(child.default_completion(), rankcast::completion::everyone);
    EXPECT_EQ(world.duplicate().effective_timeout(), rankcast::timeout(7s));
    EXPECT_EQ(world.split(0, 0, {.default_timeout = 2s}).effective_timeout(),
              rankcast::timeout(2s));
    child.set_default_timeout(1s);
    EXPECT_EQ(world.default_timeout(), rankcast::timeout(7s));
  });
}

TEST(groups, close_is_a_goodbye_of_all) {
  for (const int ranks : {1, 2, 4}) {
    std::atomic<int> arrived{0};
    run_ranks(ranks, [&](communicator& world) {
      auto group = world.duplicate({.name = "short"});
      const auto copy = group;
      std::this_thread::sleep_for(std::chrono::milliseconds(world.rank()));
      arrived.fetch_add(1);
      group.close();
      if (support::ranks_are_threads()) {
        EXPECT_EQ(arrived.load(), ranks);
      }
      int x = 0;
      for (int i = 0; i < 2; ++i) {
        const auto e =
            support::error_of<rankcast::usage_error>([&] { rankcast::broadcast(copy, x); });
        if (e) {
          EXPECT_CONTAINS(e->what(), "closed");
        }
        (void)support::error_of<rankcast::usage_error>([&] { rankcast::send(group, x, 0); });
      }
      (void)support::error_of<rankcast::usage_error>([&] { group.close(); });
      EXPECT_EQ(group.size(), ranks);
      exercise(world, world.rank());
    });
  }
}

// Many groups that live and die while others work.
TEST(groups, come_and_go) {
  run_ranks(4, [](communicator& world) {
    for (int i = 0; i < 60; ++i) {
      const auto group = world.split(i % 2 == 0 ? world.rank() % 2 : world.rank() / 2, i);
      int x = 1;
      rankcast::all_reduce(group, x);
      EXPECT_EQ(x, 2);
      const auto nested = group.split(0, -group.rank());
      rankcast::broadcast(nested, x, {.root = 1});
    }
  });
}

TEST(groups, empty_handle) {
  const communicator none;
  int x = 0;
  (void)support::error_of<rankcast::usage_error>([&] { rankcast::broadcast(none, x); });
  (void)support::error_of<rankcast::usage_error>([&] { (void)none.size(); });
  (void)support::error_of<rankcast::usage_error>([&] { rankcast::barrier(none); });
}

}  // namespace
