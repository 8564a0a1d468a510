// The mesh: which ranks form which group, what the groups are called, and what is refused.
#include "rankcast/parallel/mesh.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "rankcast/collectives/reduce.hpp"
#include "rankcast/transports/local/threads.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using rankcast::mesh;
using rankcast::mesh_axis;

std::vector<int> members(const communicator& c) {
  return {c.members().begin(), c.members().end()};
}

TEST(mesh, tensor_neighbours_are_numbered_next_to_each_other) {
  rankcast::run(8, [](communicator& world) {
    const mesh m(world, {.data = 2, .pipeline = 2, .tensor = 2});
    const int r = world.rank();
    EXPECT_EQ(members(m.tensor()), (std::vector<int>{r & ~1, r | 1}));
    EXPECT_EQ(members(m.data()), (std::vector<int>{r & ~2, r | 2}));
    EXPECT_EQ(members(m.pipeline()), (std::vector<int>{r & ~4, r | 4}));
    const rankcast::mesh_coordinates c = m.coordinates();
    EXPECT_EQ(c.tensor, r % 2);
    EXPECT_EQ(c.data, r / 2 % 2);
    EXPECT_EQ(c.pipeline, r / 4);
    EXPECT_EQ(m.tensor().rank(), c.tensor);
    EXPECT_EQ(m.data().rank(), c.data);
    EXPECT_EQ(m.pipeline().rank(), c.pipeline);
    for (int q = 0; q < 8; ++q) EXPECT_EQ(m.rank_at(m.coordinates_of(q)), q);
    // Collectives of the groups do not meet.
    int sum = r;
    rankcast::all_reduce(m.data(), sum);
    EXPECT_EQ(sum, (r & ~2) + (r | 2));
    rankcast::all_reduce(m.tensor(), sum);
    EXPECT_EQ(sum, 4 * (r / 4 * 4) + 6);
  });
}

TEST(mesh, uneven_axes_cover_every_rank_once) {
  rankcast::run(6, [](communicator& world) {
    const mesh m(world, {.data = 2, .tensor = 3});
    const int r = world.rank();
    const int first = r / 3 * 3;
    EXPECT_EQ(members(m.tensor()), (std::vector<int>{first, first + 1, first + 2}));
    EXPECT_EQ(members(m.data()), (std::vector<int>{r % 3, r % 3 + 3}));
    EXPECT_EQ(members(m.pipeline()), (std::vector<int>{r}));
    EXPECT_EQ(m.pipeline().size(), 1);
  });
}

TEST(mesh, groups_over_several_axes) {
  rankcast::run(8, [](communicator& world) {
    const mesh m(world, {.data = 2, .pipeline = 2, .tensor = 2});
    const int r = world.rank();
    const communicator stage = m.group({mesh_axis::data, mesh_axis::tensor});
    const int first = r / 4 * 4;
    EXPECT_EQ(members(stage), (std::vector<int>{first, first + 1, first + 2, first + 3}));
    EXPECT_EQ(stage.name(), "data x tensor " + std::to_string(r / 4));
    const communicator replica = m.group({mesh_axis::tensor, mesh_axis::pipeline});
    const int low = r & 2;
    EXPECT_EQ(members(replica), (std::vector<int>{low, low + 1, low + 4, low + 5}));
    const communicator everyone =
        m.group({mesh_axis::tensor, mesh_axis::data, mesh_axis::pipeline});
    EXPECT_EQ(everyone.size(), 8);
    EXPECT_EQ(everyone.rank(), r);
    EXPECT_EQ(m.group({}).size(), 1);
  });
}

TEST(mesh, groups_are_named_for_messages) {
  rankcast::run(4, [](communicator& world) {
    const mesh m(world, {.data = 2, .tensor = 2});
    const int r = world.rank();
    EXPECT_EQ(m.tensor().text(), r < 2 ? "group 'tensor 0' [0,1]" : "group 'tensor 1' [2,3]");
    EXPECT_EQ(m.data().text(), r % 2 == 0 ? "group 'data 0' [0,2]" : "group 'data 1' [1,3]");
  });
}

TEST(mesh, one_axis_takes_the_remaining_ranks) {
  rankcast::run(6, [](communicator& world) {
    const mesh m(world, {.data = rankcast::remaining_ranks, .tensor = 2});
    EXPECT_EQ(m.axes(), (rankcast::mesh_axes{.data = 3, .pipeline = 1, .tensor = 2}));
  });
}

TEST(mesh, groups_inherit_the_limit_and_not_the_scope) {
  rankcast::run(2, [](communicator& world) {
    world.set_default_timeout(7s);
    const rankcast::scoped_timeout patience(world, 20s);
    const mesh m(world, {.tensor = 2});
    EXPECT_EQ(m.tensor().effective_timeout(), rankcast::timeout(7s));
    EXPECT_EQ(m.data().default_timeout(), rankcast::timeout(7s));
  });
}

// Calls `f` on every rank and expects E with `text` in it everywhere; the group works afterwards.
template <class E, class F>
void expect_refused(int ranks, const std::vector<std::string>& texts, F&& f) {
  rankcast::run(ranks, [&](communicator& world) {
    try {
      f(world);
      ADD_FAILURE() << "rank " << world.rank() << " was not refused";
    } catch (const E& e) {
      for (const std::string& t : texts) {
        EXPECT_NE(std::string(e.what()).find(t), std::string::npos) << e.what();
      }
    }
    int ones = 1;
    rankcast::all_reduce(world, ones);
    EXPECT_EQ(ones, ranks);
  });
}

TEST(mesh, sizes_that_do_not_multiply_to_the_group_are_refused_everywhere) {
  expect_refused<rankcast::usage_error>(
      4, {"data 3 x pipeline 1 x tensor 2", "is not 4 ranks"},
      [](communicator& w) { const mesh m(w, {.data = 3, .tensor = 2}); });
  expect_refused<rankcast::usage_error>(
      3, {"tensor 2", "cannot be completed to 3 ranks"},
      [](communicator& w) { const mesh m(w, {.data = rankcast::remaining_ranks, .tensor = 2}); });
  expect_refused<rankcast::usage_error>(2, {"sizes are positive"}, [](communicator& w) {
    const mesh m(w, {.data = 0, .tensor = 2});
  });
  expect_refused<rankcast::usage_error>(2, {"sizes are positive"}, [](communicator& w) {
    const mesh m(w, {.data = rankcast::remaining_ranks, .tensor = rankcast::remaining_ranks});
  });
  expect_refused<rankcast::usage_error>(4, {"2147483647"}, [](communicator& w) {
    const mesh m(w, {.data = 2147483647, .pipeline = 2147483647, .tensor = 2147483647});
  });
}

TEST(mesh, ranks_that_give_other_sizes_are_told_apart) {
  expect_refused<rankcast::mismatch_error>(
      4,
      {"rank 0 gave data 1 x pipeline 1 x tensor 4", "rank 2 gave data 2 x pipeline 1 x tensor 2"},
      [](communicator& w) {
        const mesh m(w, w.rank() == 2 ? rankcast::mesh_axes{.data = 2, .tensor = 2}
                                      : rankcast::mesh_axes{.tensor = 4});
      });
}

TEST(mesh, places_outside_are_refused) {
  rankcast::run(2, [](communicator& world) {
    const mesh m(world, {.tensor = 2});
    EXPECT_THROW((void)m.coordinates_of(2), rankcast::usage_error);
    EXPECT_THROW((void)m.rank_at({.tensor = 2}), rankcast::usage_error);
    EXPECT_THROW((void)m.rank_at({.data = -1}), rankcast::usage_error);
  });
}

}  // namespace
