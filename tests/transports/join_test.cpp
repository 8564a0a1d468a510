// Processes that were started by somebody else become a job: who comes, who does not, who must not.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/children.hpp"
#include "support/ranks.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using rankcast::join;
using support::child;
using support::contains;
using support::ending;
using support::error_of;
using support::seconds_since;

constexpr auto now = rankcast::steady_clock::now;

// Names that no other program of this machine uses meanwhile.
std::string job_name(const std::string& what) {
  static int jobs = 0;
  return "join_test " + std::to_string(getpid()) + " " + std::to_string(jobs++) + " " + what;
}

void require_all_here(const communicator& world, int size) {
  REQUIRE_HERE(world.size() == size);
  int sum = world.rank();
  rankcast::all_reduce(world, sum);
  REQUIRE_HERE(sum == size * (size - 1) / 2);
}

// A child that joins, checks that all are there, and does what it is told then.
template <class Then>
child rank_of(const std::string& name, int rank, int size, Then&& then,
              rankcast::run_options options = {.default_timeout = 20s}) {
  return child([&, rank, size] {
    auto world = join(name, rank, size, options);
    require_all_here(world, size);
    then(world);
  });
}
child rank_of(const std::string& name, int rank, int size) {
  return rank_of(name, rank, size, [](communicator&) {});
}

// Waits until rank 0 receives others.
void wait_for_door(const std::string& name) {
  const rankcast::local::meeting_place place(name, 1);
  const auto begin = now();
  while (!place.held() && seconds_since(begin) < 20) std::this_thread::sleep_for(2ms);
  std::this_thread::sleep_for(20ms);
}

// What somebody does who knows the name of the socket.
class raw_guest {
 public:
  raw_guest(uid_t user, const std::string& job)
      : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sun_family = AF_UNIX;
    const std::string path = "rankcast/" + std::to_string(user) + "/" + job + "/meet";
    path.copy(address_.sun_path + 1, sizeof address_.sun_path - 1);
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  }
  ~raw_guest() { ::close(socket_); }
  raw_guest(const raw_guest&) = delete;
  raw_guest& operator=(const raw_guest&) = delete;

  [[nodiscard]] const sockaddr* address() const {
    return reinterpret_cast<const sockaddr*>(&address_);
  }
  [[nodiscard]] socklen_t length() const { return length_; }
  [[nodiscard]] int get() const { return socket_; }
  [[nodiscard]] bool connect() const { return ::connect(socket_, address(), length_) == 0; }
  void say(const void* data, std::size_t bytes) const {
    (void)!::send(socket_, data, bytes, MSG_NOSIGNAL);
  }
  void say_hello(int rank, int size) const {
    rankcast::local::hello h;
    h.rank = rank;
    h.size = size;
    say(&h, sizeof h);
  }
  // The answer with the job's memory, or nothing.
  [[nodiscard]] bool gets_memory() const {
    rankcast::local::descriptor s(dup(socket_));
    rankcast::local::welcome w;
    rankcast::local::descriptor file;
    return rankcast::local::hear(s, w, file) && file.valid();
  }

 private:
  int socket_;
  sockaddr_un address_{};
  socklen_t length_ = 0;
};

TEST(join, in_any_order) {
  for (const int last : {0, 1, 2}) {
    const std::string name = job_name("order");
    std::vector<child> ranks;
    for (int i = 1; i <= 3; ++i) {
      if (i == 3) std::this_thread::sleep_for(60ms);
      ranks.push_back(rank_of(name, (last + i) % 3, 3));
    }
    for (auto& r : ranks) {
      const ending e = r.wait();
      EXPECT_EQ(e.kind, "ok") << e.text;
      EXPECT_LT(e.seconds, 10);
    }
  }
}

TEST(join, of_one_and_of_twelve) {
  for (const int size : {1, 12}) {
    const std::string name = job_name("sizes");
    std::vector<child> ranks;
    for (int r = 0; r < size; ++r) ranks.push_back(rank_of(name, r, size));
    for (auto& r : ranks) {
      const ending e = r.wait();
      EXPECT_EQ(e.kind, "ok") << e.text;
    }
  }
}

TEST(join, wrong_arguments) {
  EXPECT_TRUE(error_of<rankcast::usage_error>([] { (void)join("", 0, 1); }));
  EXPECT_TRUE(error_of<rankcast::usage_error>([] { (void)join("x", 0, 0); }));
  EXPECT_TRUE(error_of<rankcast::usage_error>([] { (void)join("x", -1, 2); }));
  const auto e = error_of<rankcast::usage_error>([] { (void)join("x", 2, 2); });
  ASSERT_TRUE(e);
  EXPECT_CONTAINS(e->what(), "rank 2 of 2");
}

// Names that are long, differ at the end only, or hold what names usually do not.
TEST(join, names_of_all_kinds) {
  const std::string stem = job_name("names");
  const std::string names[] = {stem + std::string(300, 'x') + "1",
                               stem + std::string(300, 'x') + "2",
                               stem,
                               stem + "/meet",
                               stem + std::string(1, '\0') + "hidden",
                               stem + " \n\t'\"/../%s",
                               stem + "\xff\xfe\xc3"};
  std::vector<child> first;  // all at the same time: none meets another
  std::vector<child> others;
  for (const auto& name : names) {
    const auto wait = [](communicator& world) {
      std::this_thread::sleep_for(200ms);
      rankcast::barrier(world);
    };
    first.push_back(rank_of(name, 0, 2, wait));
    others.push_back(rank_of(name, 1, 2, wait));
  }
  for (auto* group : {&first, &others}) {
    for (auto& c : *group) {
      const ending e = c.wait();
      EXPECT_EQ(e.kind, "ok") << e.text;
    }
  }
}

TEST(join, by_the_environment) {
  const std::string name = job_name("environment");
  std::vector<child> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&] {
      setenv("RANKCAST_JOB", name.c_str(), 1);
      setenv("RANKCAST_RANK", std::to_string(r).c_str(), 1);
      setenv("RANKCAST_SIZE", "2", 1);
      setenv("RANK", "5", 1);  // of somebody else
      setenv("WORLD_SIZE", "6", 1);
      setenv("MASTER_ADDR", "elsewhere", 1);
      const auto world = join({.default_timeout = 20s});
      REQUIRE_HERE(world.rank() == r);
      require_all_here(world, 2);
    });
  }
  for (auto& r : ranks) {
    const ending e = r.wait();
    EXPECT_EQ(e.kind, "ok") << e.text;
  }
}

TEST(join, by_what_torchrun_sets) {
  const std::string port = std::to_string(getpid());
  std::vector<child> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.emplace_back([&] {
      unsetenv("RANKCAST_JOB");
      setenv("RANK", std::to_string(r).c_str(), 1);
      setenv("LOCAL_RANK", std::to_string(r).c_str(), 1);
      setenv("WORLD_SIZE", "3", 1);
      setenv("LOCAL_WORLD_SIZE", "3", 1);
      setenv("MASTER_ADDR", "127.0.0.1", 1);
      setenv("MASTER_PORT", port.c_str(), 1);
      setenv("TORCHELASTIC_RUN_ID", "none", 1);
      const auto world = join({.default_timeout = 20s});
      REQUIRE_HERE(world.rank() == r);
      require_all_here(world, 3);
    });
  }
  for (auto& r : ranks) {
    const ending e = r.wait();
    EXPECT_EQ(e.kind, "ok") << e.text;
  }
}

using variables = std::vector<std::pair<const char*, const char*>>;

// The text of the usage_error that `join` throws with nothing but these in the environment.
std::string refused_environment(const variables& given) {
  child c([&] {
    clearenv();
    for (const auto& [name, value] : given) setenv(name, value, 1);
    (void)join({.default_timeout = 5s});
  });
  const ending e = c.wait(10s);
  EXPECT_EQ(e.kind, "usage_error") << e.text;
  return e.text;
}

TEST(join, variables_that_are_missing_or_no_numbers_are_named) {
  EXPECT_CONTAINS(refused_environment({}), "RANKCAST_JOB");
  EXPECT_CONTAINS(refused_environment({{"RANKCAST_RANK", "0"}, {"RANKCAST_SIZE", "1"}}),
                  "RANKCAST_JOB");
  const auto own = [](const char* rank, const char* size) {
    variables v{{"RANKCAST_JOB", "a"}};
    if (rank != nullptr) v.emplace_back("RANKCAST_RANK", rank);
    if (size != nullptr) v.emplace_back("RANKCAST_SIZE", size);
    return refused_environment(v);
  };
  EXPECT_CONTAINS(own(nullptr, "2"), "RANKCAST_RANK is not set");
  EXPECT_CONTAINS(own("0", nullptr), "RANKCAST_SIZE is not set");
  EXPECT_CONTAINS(own("", "2"), "RANKCAST_RANK is not set");
  for (const char* wrong : {"x", "1x", " 1", "1 ", "0x1", "1.0", "99999999999"}) {
    EXPECT_CONTAINS(own(wrong, "2"), "RANKCAST_RANK is '" + std::string(wrong) + "'");
    EXPECT_CONTAINS(own("0", wrong), "RANKCAST_SIZE is '" + std::string(wrong) + "'");
  }
  EXPECT_CONTAINS(own("2", "2"), "rank 2 of 2");
  EXPECT_CONTAINS(own("-1", "2"), "rank -1 of 2");

  const variables torch{
      {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  for (const auto& left_out : torch) {
    variables v;
    for (const auto& given : torch) {
      if (given.first != left_out.first) v.push_back(given);
    }
    EXPECT_CONTAINS(refused_environment(v),
                    left_out.first == std::string("MASTER_ADDR") ? "torchrun" : left_out.first);
  }
  variables hosts = torch;
  hosts[1].second = "4";
  hosts.emplace_back("LOCAL_WORLD_SIZE", "2");
  EXPECT_CONTAINS(refused_environment(hosts), "2 of 4 ranks are on this host");
  EXPECT_CONTAINS(refused_environment(hosts), "rankcast::mpi");
}

TEST(join, another_size_is_turned_away_and_the_job_goes_on) {
  const std::string name = job_name("size");
  child first = rank_of(name, 0, 2);
  wait_for_door(name);
  for (const int size : {3, 5}) {
    child wrong([&] { (void)join(name, 1, size, {.default_timeout = 10s}); });
    const ending e = wrong.wait();
    EXPECT_EQ(e.kind, "transport_error");
    EXPECT_CONTAINS(e.text, "a job of " + std::to_string(size) + " ranks, rank 0 one of 2");
    EXPECT_CONTAINS(e.text, "rank 1");
    EXPECT_LT(e.seconds, 5);
  }
  child right = rank_of(name, 1, 2);
  EXPECT_EQ(right.wait().kind, "ok");
  EXPECT_EQ(first.wait().kind, "ok");
}

TEST(join, a_rank_that_is_there_already_is_turned_away) {
  const std::string name = job_name("twice");
  child first = rank_of(name, 0, 3);
  wait_for_door(name);
  child second = rank_of(name, 1, 3);
  std::this_thread::sleep_for(50ms);
  child twice([&] { (void)join(name, 1, 3, {.default_timeout = 10s}); });
  const ending e = twice.wait();
  EXPECT_EQ(e.kind, "transport_error");
  EXPECT_CONTAINS(e.text, "rank 1 is there already");
  child third = rank_of(name, 2, 3);
  for (child* c : {&first, &second, &third}) {
    const ending good = c->wait();
    EXPECT_EQ(good.kind, "ok") << good.text;
  }
}

TEST(join, of_two_jobs_with_one_name_the_second_is_refused) {
  const std::string name = job_name("clash");
  const auto work = [](communicator& world) {
    for (int i = 0; i < 30; ++i) {
      std::this_thread::sleep_for(100ms);
      require_all_here(world, 2);
    }
  };
  child first = rank_of(name, 0, 2, work);
  child other = rank_of(name, 1, 2, work);
  std::this_thread::sleep_for(200ms);
  for (const int rank : {0, 1}) {
    child clash([&] { (void)join(name, rank, 2, {.default_timeout = 30s}); });
    const ending e = clash.wait();
    EXPECT_EQ(e.kind, "transport_error") << e.text;
    EXPECT_CONTAINS(e.text, "a job of this name is running");
    EXPECT_CONTAINS(e.text, "give this one another name");
    EXPECT_LT(e.seconds, 3);
  }
  for (child* c : {&first, &other}) {
    const ending e = c->wait();
    EXPECT_EQ(e.kind, "ok") << e.text;
  }
}

TEST(join, the_name_is_free_again_at_the_end) {
  const std::string name = job_name("again");
  for (int i = 0; i < 10; ++i) {
    child first = rank_of(name, 0, 2);
    child other = rank_of(name, 1, 2);
    EXPECT_EQ(other.wait().kind, "ok");
    EXPECT_EQ(first.wait().kind, "ok");
  }
  // Also in one process, when the group is dropped.
  for (int i = 0; i < 3; ++i) {
    const auto world = join(name, 0, 1);
    const auto e = error_of<rankcast::transport_error>([&] { (void)join(name, 0, 1); });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->code(), EADDRINUSE);
  }
}

TEST(join, who_did_not_come_is_named) {
  const std::string name = job_name("absent");
  const rankcast::run_options soon{.default_timeout = 500ms};
  std::vector<child> ranks;
  for (const int r : {0, 2}) {
    ranks.emplace_back([&] { (void)join(name, r, 4, r == 0 ? soon : rankcast::run_options{}); });
  }
  const ending zero = ranks[0].wait();
  EXPECT_EQ(zero.kind, "timeout_error") << zero.text;
  EXPECT_CONTAINS(zero.text, "1, 3");
  EXPECT_LT(zero.seconds, 3);
  const ending two = ranks[1].wait();  // is told by rank 0, at once
  EXPECT_NE(two.kind, "ok");
  EXPECT_CONTAINS(two.text, "1, 3");
  EXPECT_LT(two.seconds, 3);

  child alone([&] {
    const auto e = support::caught<rankcast::timeout_error>(
        [&] { (void)join(name, 1, 2, {.default_timeout = 300ms}); });
    REQUIRE_HERE(contains(e.what(), "rank 0 did not come"));
    REQUIRE_HERE(e.missing() == std::vector<int>{0});
    REQUIRE_HERE(e.waited() >= 300ms);
  });
  const ending e = alone.wait();
  EXPECT_EQ(e.kind, "ok") << e.text;
  EXPECT_LT(e.seconds, 3);
}

TEST(join, rank_0_dies_while_others_wait) {
  const std::string name = job_name("orphans");
  child zero([&] { (void)join(name, 0, 4, {.default_timeout = 30s}); });
  wait_for_door(name);
  std::vector<child> ranks;
  for (const int r : {1, 2}) {
    ranks.emplace_back([&] { (void)join(name, r, 4, {.default_timeout = 30s}); });
  }
  std::this_thread::sleep_for(100ms);
  zero.kill();
  for (auto& r : ranks) {
    const ending e = r.wait();
    EXPECT_EQ(e.kind, "peer_lost_error") << e.text;
    EXPECT_CONTAINS(e.text, "rank 0 went away");
    EXPECT_LT(e.seconds, 5);
  }
}

// A launcher that starts a rank anew: the place of the dead one is free.
TEST(join, a_rank_that_dies_while_others_wait_may_come_again) {
  const std::string name = job_name("reborn");
  child zero = rank_of(name, 0, 3);
  wait_for_door(name);
  child one([&] { (void)join(name, 1, 3); });
  std::this_thread::sleep_for(60ms);
  one.kill();
  EXPECT_EQ(one.wait().kind, "killed");
  child again = rank_of(name, 1, 3);
  std::this_thread::sleep_for(60ms);
  child two = rank_of(name, 2, 3);
  for (child* c : {&zero, &again, &two}) {
    const ending e = c->wait();
    EXPECT_EQ(e.kind, "ok") << e.text;
    EXPECT_LT(e.seconds, 10);
  }
}

// It came, and died before the last one did: no job begins without it.
TEST(join, a_dead_rank_is_not_counted) {
  const std::string name = job_name("ghost");
  child zero([&] { (void)join(name, 0, 3, {.default_timeout = 1s}); });
  wait_for_door(name);
  child one([&] { (void)join(name, 1, 3); });
  std::this_thread::sleep_for(60ms);
  one.kill();
  EXPECT_EQ(one.wait().kind, "killed");
  child two([&] { (void)join(name, 2, 3, {.default_timeout = 10s}); });
  const ending e = zero.wait();
  EXPECT_EQ(e.kind, "timeout_error");
  EXPECT_CONTAINS(e.text, "rank 1 did not come");
  EXPECT_CONTAINS(two.wait().text, "rank 1 did not come");
}

// It dies when it has been told and has not yet taken its place.
TEST(join, a_rank_that_dies_on_the_doorstep_is_lost_at_once) {
  const std::string name = job_name("doorstep");
  child zero([&] {
    auto world = join(name, 0, 2, {.default_timeout = 20s});
    const auto begin = now();
    const auto e = support::caught<rankcast::peer_lost_error>([&] { rankcast::barrier(world); });
    REQUIRE_HERE(e.rank() == 1);
    REQUIRE_HERE(seconds_since(begin) < 5);
  });
  wait_for_door(name);
  child one([&] {
    const raw_guest guest(getuid(), name);
    REQUIRE_HERE(guest.connect());
    guest.say_hello(1, 2);
    REQUIRE_HERE(guest.gets_memory());
  });
  EXPECT_EQ(one.wait().kind, "ok");
  const ending e = zero.wait();
  EXPECT_EQ(e.kind, "ok") << e.text;
}

// Who comes and says nothing, too little or nonsense does not keep rank 0 from its time limit, nor
// the others from coming.
TEST(join, guests_that_do_not_speak) {
  const std::string name = job_name("silent");
  child zero([&] { (void)join(name, 0, 2, {.default_timeout = 1s}); });
  wait_for_door(name);
  std::vector<std::unique_ptr<raw_guest>> guests;
  for (int i = 0; i < 3; ++i) {
    guests.push_back(std::make_unique<raw_guest>(getuid(), name));
    EXPECT_TRUE(guests.back()->connect());
    if (i == 1) guests.back()->say("x", 1);
    if (i == 2) guests.back()->say(std::string(64, 'z').data(), 64);
  }
  const ending late = zero.wait(20s);
  EXPECT_EQ(late.kind, "timeout_error") << late.text;
  EXPECT_LT(late.seconds, 3);

  const std::string second = job_name("patient");
  child patient = rank_of(second, 0, 2);
  wait_for_door(second);
  for (int i = 0; i < 2; ++i) {
    guests.push_back(std::make_unique<raw_guest>(getuid(), second));
    EXPECT_TRUE(guests.back()->connect());
    if (i == 1) guests.back()->say("x", 1);
  }
  child one = rank_of(second, 1, 2);
  for (child* c : {&patient, &one}) {
    const ending e = c->wait();
    EXPECT_EQ(e.kind, "ok") << e.text;
  }
}

// Rank 0 has no descriptor left for a guest: it gives up in time.
TEST(join, without_descriptors) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "UndefinedBehaviorSanitizer needs descriptors to look at an exception";
#endif
  const std::string name = job_name("descriptors");
  child zero([&] {
    const rlimit few{64, 64};
    setrlimit(RLIMIT_NOFILE, &few);
    int last = 0;
    for (int fd = 0; (fd = dup(0)) >= 0;) last = fd;
    ::close(last);  // for the name, and for the door
    ::close(last - 1);
    (void)join(name, 0, 2, {.default_timeout = 1s});
  });
  wait_for_door(name);
  child one([&] { (void)join(name, 1, 2, {.default_timeout = 2s}); });
  const ending e = zero.wait(20s);
  EXPECT_EQ(e.kind, "timeout_error") << e.text;
  EXPECT_LT(e.seconds, 3);
  EXPECT_NE(one.wait().kind, "ok");
}

// Signals that interrupt a wait are no ends of connections.
TEST(join, among_signals) {
  const std::string name = job_name("signals");
  const auto with_signals = [&](int rank) {
    return child([&name, rank] {
      struct sigaction action {};
      action.sa_handler = [](int) {};
      sigaction(SIGUSR1, &action, nullptr);
      require_all_here(join(name, rank, 3, {.default_timeout = 20s}), 3);
    });
  };
  child zero = with_signals(0);
  child one = with_signals(1);
  std::this_thread::sleep_for(50ms);
  for (int i = 0; i < 50; ++i) {
    zero.kill(SIGUSR1);
    one.kill(SIGUSR1);
    std::this_thread::sleep_for(2ms);
  }
  child two = rank_of(name, 2, 3);
  for (child* c : {&zero, &one, &two}) {
    const ending e = c->wait();
    EXPECT_EQ(e.kind, "ok") << e.text;
  }
}

constexpr uid_t somebody = 65'123;

void become_somebody() {
  REQUIRE_HERE(setresgid(somebody, somebody, somebody) == 0);
  REQUIRE_HERE(setresuid(somebody, somebody, somebody) == 0);
}

TEST(join, another_user_gets_nothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const std::string name = job_name("strangers");
  const uid_t user = getuid();
  child zero = rank_of(name, 0, 2);
  wait_for_door(name);
  child stranger([&] {
    become_somebody();
    const raw_guest guest(user, name);
    if (guest.connect()) {
      guest.say_hello(1, 2);
      REQUIRE_HERE(!guest.gets_memory());
    }
    // By the usual way it does not even find it.
    const auto e = support::caught<rankcast::timeout_error>(
        [&] { (void)join(name, 1, 2, {.default_timeout = 200ms}); });
    REQUIRE_HERE(contains(e.what(), "rank 0 did not come"));
  });
  const ending e = stranger.wait();
  EXPECT_EQ(e.kind, "ok") << e.text;
  child one = rank_of(name, 1, 2);
  EXPECT_EQ(one.wait().kind, "ok");
  EXPECT_EQ(zero.wait().kind, "ok");
}

TEST(join, a_rank_0_of_another_user_is_not_believed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const std::string name = job_name("impostor");
  const uid_t user = getuid();
  child impostor([&] {
    become_somebody();
    const raw_guest door(user, name);
    REQUIRE_HERE(bind(door.get(), door.address(), door.length()) == 0);
    REQUIRE_HERE(listen(door.get(), 5) == 0);
    for (;;) {  // hands out memory of its own
      const rankcast::local::descriptor guest(accept(door.get(), nullptr, nullptr));
      const auto memory = rankcast::local::job::lay_out(2, {});
      rankcast::local::answer(guest, {}, memory.get());
    }
  });
  std::this_thread::sleep_for(200ms);
  child victim([&] { (void)join(name, 1, 2, {.default_timeout = 10s}); });
  const ending e = victim.wait();
  EXPECT_EQ(e.kind, "transport_error") << e.text;
  EXPECT_CONTAINS(e.text, "another user");
}

TEST(join, nothing_is_left_of_many) {
  if (support::process_has_threads()) GTEST_SKIP() << "this build has a thread in every process";
  const std::string name = job_name("left");
  const auto descriptors = support::open_descriptors();
  for (int i = 0; i < 50; ++i) {
    child one = rank_of(name, 1, 2);
    {
      const auto world = join(name, 0, 2);
      require_all_here(world, 2);
    }
    EXPECT_EQ(one.wait().kind, "ok");
  }
  EXPECT_EQ(support::open_descriptors(), descriptors);
  EXPECT_FALSE(support::has_file("memfd:rankcast"));
}

}  // namespace
