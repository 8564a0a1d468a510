// timeout, deadline and scoped_timeout: values, nesting, and what a scope does not touch.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>

#include "rankcast/rankcast.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::deadline;
using rankcast::no_timeout;
using rankcast::scoped_timeout;
using rankcast::timeout;

TEST(timeouts, values) {
  EXPECT_FALSE(timeout().is_set());
  EXPECT_TRUE(no_timeout.is_set() && no_timeout.is_none());
  EXPECT_EQ(timeout(1500ms).limit(), 1500ms);
  EXPECT_EQ(timeout(std::chrono::duration<double>(0.25)).limit(), 250ms);
  EXPECT_EQ(timeout(0s), timeout(0ns));
  EXPECT_EQ(timeout(std::chrono::hours(1'000'000'000)).limit(), std::chrono::nanoseconds::max());
  EXPECT_THROW(timeout(-1ns), rankcast::usage_error);
  EXPECT_EQ(timeout().or_else(2s), timeout(2s));
  EXPECT_EQ(timeout(1s).or_else(2s), timeout(1s));
  EXPECT_EQ(no_timeout.or_else(2s), no_timeout);
}

TEST(timeouts, deadlines) {
  EXPECT_TRUE(deadline().never());
  EXPECT_TRUE(deadline::after({}).never());
  EXPECT_TRUE(deadline::after(no_timeout).never());
  EXPECT_TRUE(deadline::after(std::chrono::hours(1'000'000'000)).never());
  EXPECT_FALSE(deadline().expired());
  EXPECT_TRUE(deadline().remaining().is_none());
  EXPECT_TRUE(deadline::after(0s).expired());
  EXPECT_EQ(deadline::after(0s).remaining(), timeout(0ns));
  const auto d = deadline::after(10s);
  EXPECT_FALSE(d.expired());
  EXPECT_LE(d.remaining().limit(), 10s);
  EXPECT_GT(d.remaining().limit(), 5s);
}

TEST(timeouts, of_the_library) {
  const auto before = rankcast::library_timeout();
  EXPECT_EQ(before, timeout(60s));
  rankcast::set_library_timeout(5s);
  EXPECT_EQ(rankcast::thread_ranks(1).front().effective_timeout(), timeout(5s));
  rankcast::set_library_timeout(no_timeout);
  EXPECT_EQ(rankcast::library_timeout(), no_timeout);
  EXPECT_THROW(rankcast::set_library_timeout({}), rankcast::usage_error);
  rankcast::set_library_timeout(before);
}

TEST(timeouts, precedence) {
  auto group = rankcast::thread_ranks(1).front();
  EXPECT_FALSE(group.default_timeout().is_set());
  EXPECT_EQ(group.effective_timeout(), rankcast::library_timeout());
  group.set_default_timeout(9s);
  EXPECT_EQ(group.effective_timeout(), timeout(9s));
  const scoped_timeout scope(group, 3s);
  EXPECT_EQ(group.effective_timeout(), timeout(3s));
  EXPECT_EQ(group.effective_timeout(1s), timeout(1s));
  EXPECT_EQ(group.effective_timeout(no_timeout), no_timeout);
  group.set_default_timeout(8s);
  EXPECT_EQ(group.effective_timeout(), timeout(3s));
}

TEST(timeouts, scopes_nest_and_end_by_exceptions) {
  const auto group = rankcast::thread_ranks(1).front();
  {
    const scoped_timeout outer(group, 2s);
    try {
      const scoped_timeout inner(group, 5s);
      EXPECT_EQ(group.effective_timeout(), timeout(5s));
      const scoped_timeout innermost(group, no_timeout);
      EXPECT_EQ(group.effective_timeout(), no_timeout);
      throw std::runtime_error("out");
    } catch (const std::runtime_error&) {
      EXPECT_EQ(group.effective_timeout(), timeout(2s));
    }
  }
  EXPECT_EQ(group.effective_timeout(), rankcast::library_timeout());
  EXPECT_THROW(scoped_timeout(group, {}), rankcast::usage_error);
  EXPECT_EQ(group.effective_timeout(), rankcast::library_timeout());
}

TEST(timeouts, scopes_may_end_in_any_order) {
  const auto group = rankcast::thread_ranks(1).front();
  std::optional<scoped_timeout> a(std::in_place, group, 1s);
  std::optional<scoped_timeout> b(std::in_place, group, 2s);
  std::optional<scoped_timeout> c(std::in_place, group, 3s);
  b.reset();
  EXPECT_EQ(group.effective_timeout(), timeout(3s));
  a.reset();
  EXPECT_EQ(group.effective_timeout(), timeout(3s));
  b.emplace(group, 4s);
  c.reset();
  EXPECT_EQ(group.effective_timeout(), timeout(4s));
  b.reset();
  EXPECT_EQ(group.effective_timeout(), rankcast::library_timeout());
}

TEST(timeouts, scopes_belong_to_one_group_and_one_thread) {
  rankcast::run(2, [](rankcast::communicator& world) {
    const auto copy = world;
    const auto twin = world.duplicate();
    if (world.rank() == 0) {
      const scoped_timeout scope(world, 2s);
      EXPECT_EQ(copy.effective_timeout(), timeout(2s));  // handles of one group share it
      EXPECT_EQ(twin.effective_timeout(), rankcast::library_timeout());
      EXPECT_EQ(world.split(0).effective_timeout(), rankcast::library_timeout());
      std::thread([&] {
        EXPECT_EQ(world.effective_timeout(), rankcast::library_timeout());
      }).join();
      rankcast::barrier(world);
      rankcast::barrier(world);
    } else {
      (void)world.split(0);
      rankcast::barrier(world);  // the other rank's scope is alive now
      EXPECT_EQ(world.effective_timeout(), rankcast::library_timeout());
      rankcast::barrier(world);
    }
  });
}

}  // namespace
