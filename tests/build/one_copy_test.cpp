/// C59: rankcast compiled into several units of one program, and into two shared libraries of one
/// process, is still one rankcast. Built twice: with the units linked in, and with each unit in a
/// library of its own that hides its symbols.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "all_headers.hpp"
#include "build/units.hpp"

namespace {

using namespace std::chrono_literals;

TEST(OneCopy, C59_library_timeout_is_one_for_all_units) {
  const rankcast::timeout before = rankcast::library_timeout();
  rankcast::communicator world = second::make_world();
  first::set_library_timeout(7s);
  EXPECT_EQ(rankcast::library_timeout(), rankcast::timeout(7s));
  EXPECT_EQ(second::effective_timeout(world), rankcast::timeout(7s));
  second::set_library_timeout(before);
  EXPECT_EQ(first::effective_timeout(world), before);
}

TEST(OneCopy, C59_scope_opened_in_one_unit_holds_in_the_other) {
  const rankcast::communicator world = first::make_world();
  first::with_scoped_timeout(world, 3s, [&] {
    EXPECT_EQ(second::effective_timeout(world), rankcast::timeout(3s));
    EXPECT_EQ(world.effective_timeout(), rankcast::timeout(3s));
    second::with_scoped_timeout(
        world, 2s, [&] { EXPECT_EQ(first::effective_timeout(world), rankcast::timeout(2s)); });
    EXPECT_EQ(first::effective_timeout(world), rankcast::timeout(3s));
  });
  EXPECT_EQ(second::effective_timeout(world), rankcast::library_timeout());
}

TEST(OneCopy, C59_groups_made_in_different_units_are_different_groups) {
  // Enough of them that two counters of their own would meet.
  std::vector<rankcast::communicator> of_first;
  std::vector<rankcast::communicator> of_second;
  for (int i = 0; i < 8; ++i) {
    of_first.push_back(first::make_world());
    of_second.push_back(second::make_world());
  }
  for (const auto& a : of_first) {
    const rankcast::scoped_timeout scope(a, 3s);
    for (const auto& b : of_second) EXPECT_EQ(b.effective_timeout(), rankcast::library_timeout());
  }
}

TEST(OneCopy, C59_ranks_of_different_units_meet_in_one_call) {
  for (const std::size_t elements : {1u, 100'000u}) {
    rankcast::run(3, [&](rankcast::communicator& world) {
      std::vector<double> values(elements, world.rank() + 1.0);
      if (world.rank() == 0) first::sum(world, values);
      else if (world.rank() == 1) second::sum(world, values);
      else rankcast::all_reduce(world, values);
      EXPECT_EQ(values, std::vector<double>(elements, 6.0));
    });
  }
}

TEST(OneCopy, C59_waiting_in_one_unit_progresses_what_the_other_started) {
  std::atomic<bool> rank_0_has_started{false};
  rankcast::run(2, [&](rankcast::communicator& world) {
    world.set_default_timeout(20s);
    const rankcast::communicator other = world.duplicate();
    while (world.rank() == 1 && !rank_0_has_started) std::this_thread::yield();
    std::vector<double> values(100'000, 1.0);  // too large to be done without a second step
    rankcast::work started = first::start_sum(world, values);
    rank_0_has_started = true;
    if (world.rank() == 1) started.wait();  // needs rank 0 to go on, who waits elsewhere
    second::barrier(other);
    started.wait();
    EXPECT_EQ(values, std::vector<double>(values.size(), 2.0));
  });
}

TEST(OneCopy, C59_error_thrown_in_one_unit_is_caught_by_type_in_another) {
  const rankcast::communicator empty;
  EXPECT_THROW(first::barrier(empty), rankcast::usage_error);
  EXPECT_THROW(second::barrier(empty), rankcast::error);
  rankcast::run(2, [](rankcast::communicator& world) {
    if (world.rank() == 1) {  // stays, and does not come
      std::this_thread::sleep_for(300ms);
      return;
    }
    second::with_scoped_timeout(world, 50ms, [&] {
      EXPECT_THROW(first::barrier(world), rankcast::timeout_error);
      EXPECT_THROW(second::barrier(world), rankcast::revoked_error);
    });
  });
}

}  // namespace
