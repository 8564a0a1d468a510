// Cases from public reports about the memory that processes share.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

#include "support/children.hpp"
#include "support/ranks.hpp"

namespace {

// Reservations of more than this fail, as where the memory has run out.
long long most_reserved = -1;

}  // namespace

// The system's, but for a limit that a test sets: the program's own definition goes first.
extern "C" int fallocate(int file, int mode, off_t offset, off_t bytes) {
  if (mode == 0 && most_reserved >= 0 && bytes > most_reserved) {
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fallocate, file, mode, offset, bytes));
}

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using rankcast::fork_ranks;
using rankcast::join;
using support::child;
using support::contains;
using support::ending;

constexpr auto now = rankcast::steady_clock::now;

class memory_limit {
 public:
  explicit memory_limit(long long most) { most_reserved = most; }
  ~memory_limit() { most_reserved = -1; }
  memory_limit(const memory_limit&) = delete;
  memory_limit& operator=(const memory_limit&) = delete;
};

class cases : public testing::Test {
 protected:
  void SetUp() override {
    if (support::process_has_threads()) {
      GTEST_SKIP() << "this build has a thread of its own in every process";
    }
    alarm(100);
  }
  void TearDown() override { alarm(0); }
};

std::string job_name(const std::string& what) {
  return "shared_memory_test " + std::to_string(getpid()) + " " + what;
}

void use_everything(const communicator& world) {
  const int n = world.size();
  for (const std::size_t size : {std::size_t{10}, std::size_t{1'000}, std::size_t{1} << 18}) {
    std::vector<int> data(size, world.rank() + 1);
    rankcast::all_reduce(world, data);
    REQUIRE_HERE(data.front() == n * (n + 1) / 2 && data.back() == data.front());
    rankcast::broadcast(world, data, {.root = n - 1});
    REQUIRE_HERE(data.back() == n * (n + 1) / 2);
  }
}

// Says what is needed and what there is, and what to do.
void require_memory_text(const std::string& text) {
  REQUIRE_HERE(contains(text, "bytes are needed"));
  REQUIRE_HERE(contains(text, "are available"));
  REQUIRE_HERE(contains(text, "smaller rings"));
}

// The memory of a job does not live where containers keep 64 MB for all.
TEST_F(cases, C64_a_small_shared_mount_does_not_matter) {
  child namespaced([] {
    if (unshare(CLONE_NEWNS) != 0) throw std::runtime_error("skip: no namespace of mounts");
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0) {
      throw std::runtime_error("skip: no mounts");
    }
    rankcast::run_options options;
    options.default_timeout = 30s;
    options.sizes.ring_bytes = 1 << 20;
    options.sizes.stage_bytes = 1 << 20;
    options.sizes.pipe_bytes = 1 << 20;
    fork_ranks(4, use_everything, options);
    REQUIRE_HERE(support::entries_of("/dev/shm").empty());
    // Full, and without any right to write there.
    REQUIRE_HERE(mount("tmpfs", "/dev/shm", "tmpfs", MS_REMOUNT | MS_RDONLY, "size=1m") == 0);
    fork_ranks(4, use_everything, options);
  });
  const ending e = namespaced.wait();
  if (contains(e.text, "skip: ")) GTEST_SKIP() << e.text;
  EXPECT_EQ(e.kind, "ok") << e.text;
}

TEST_F(cases, C64_no_memory_at_set_up) {
  const memory_limit none(0);
  const auto e = support::error_of<rankcast::transport_error>(
      [] { fork_ranks(4, [](communicator&) { ADD_FAILURE() << "it has begun"; }); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->code(), ENOSPC);
  EXPECT_NO_THROW(require_memory_text(e->what()));
  EXPECT_FALSE(support::has_children());
}

TEST_F(cases, C64_no_memory_at_set_up_is_told_to_all_who_join) {
  const std::string name = job_name("none");
  const auto rank = [&](int r) {
    return child([&name, r] {
      const memory_limit none(r == 0 ? 0 : -1);
      const auto e = support::caught<rankcast::transport_error>(
          [&] { (void)join(name, r, 3, {.default_timeout = 20s}); });
      require_memory_text(e.what());
    });
  };
  std::vector<child> ranks;
  for (int r = 0; r < 3; ++r) ranks.push_back(rank(r));
  for (auto& r : ranks) {
    const ending e = r.wait();
    EXPECT_EQ(e.kind, "ok") << e.text;
    EXPECT_LT(e.seconds, 10);
  }
}

// A ring is reserved when it is first used: the call fails on all its ranks, and nothing else.
TEST_F(cases, C64_no_memory_at_run_time) {
  for (const bool staged : {true, false}) {
    fork_ranks(4,
               [&](communicator& world) {
                 const auto other = world.duplicate();
                 rankcast::barrier(world, {.completion = rankcast::completion::everyone});
                 if (world.rank() == 2)
                   std::this_thread::sleep_for(100ms);  // the others wait for it
                 const memory_limit none(world.rank() == 2 ? 0 : -1);
                 std::vector<int> data(staged ? 1'000 : 100'000, world.rank());
                 const auto begin = now();
                 const auto e = support::caught<rankcast::transport_error>([&] {
                   rankcast::broadcast(world, data,
                                       {.root = 2, .completion = rankcast::completion::everyone});
                 });
                 require_memory_text(e.what());
                 REQUIRE_HERE(e.code() == ENOSPC);
                 REQUIRE_HERE(contains(e.what(), "rank 2"));
                 REQUIRE_HERE(contains(e.what(), "broadcast #"));
                 REQUIRE_HERE(support::seconds_since(begin) < 10);
                 const auto later =
                     support::caught<rankcast::revoked_error>([&] { rankcast::barrier(world); });
                 require_memory_text(later.what());
                 int small = 1;  // what has been reserved works on
                 rankcast::all_reduce(other, small);
                 REQUIRE_HERE(small == 4);
               },
               {.default_timeout = 20s});
  }
}

TEST_F(cases, C64_no_memory_for_a_new_group) {
  fork_ranks(3,
             [](communicator& world) {
               {
                 const memory_limit none(world.rank() == 0 ? 0 : -1);
                 const auto e =
                     support::caught<rankcast::transport_error>([&] { (void)world.duplicate(); });
                 require_memory_text(e.what());
               }
               const auto again = world.duplicate();
               use_everything(again);
             },
             {.default_timeout = 20s});
}

// A limit on the size of files is no signal either.
TEST_F(cases, C64_a_limit_on_files) {
  child limited([] {
    const rlimit small{1 << 20, 1 << 20};
    REQUIRE_HERE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const auto e = support::caught<rankcast::transport_error>(
        [] { fork_ranks(2, [](communicator& world) { rankcast::barrier(world); }); });
    REQUIRE_HERE(contains(e.what(), "ulimit -f"));
  });
  const ending e = limited.wait();
  EXPECT_EQ(e.kind, "ok") << e.text;
}

TEST_F(cases, C65_a_killed_job_leaves_nothing_and_its_name) {
  const std::string name = job_name("killed");
  for (int i = 0; i < 20; ++i) {
    std::vector<child> ranks;
    for (int r = 0; r < 3; ++r) {
      ranks.emplace_back([&] {
        const auto world = join(name, r, 3, {.default_timeout = 20s});
        use_everything(world);
        REQUIRE_HERE(!support::has_file("/dev/shm/"));
        std::vector<int> data(1'000'000);
        for (;;) rankcast::all_reduce(world, data);
      });
    }
    std::this_thread::sleep_for(40ms);
    for (int k = 0; k < 3; ++k) ranks[static_cast<std::size_t>((i + k) % 3)].kill();
    for (auto& r : ranks) {
      const ending e = r.wait();  // one may have seen the other's end before its own
      EXPECT_TRUE(e.kind == "killed" || e.kind == "peer_lost_error" || e.kind == "revoked_error")
          << e.kind << ": " << e.text;
    }
  }
  std::vector<child> last;
  for (int r = 0; r < 3; ++r) {
    last.emplace_back([&] { use_everything(join(name, r, 3, {.default_timeout = 20s})); });
  }
  for (auto& r : last) {
    const ending e = r.wait();
    EXPECT_EQ(e.kind, "ok") << e.text;
  }
  EXPECT_FALSE(support::has_children());
  EXPECT_FALSE(support::has_file("memfd:rankcast"));
}

struct open_file {
  std::string target;
  mode_t mode = 0;
  uid_t owner = 0;
};

// Files of a process that live in memory.
std::vector<open_file> memory_files(const std::string& process) {
  std::vector<open_file> files;
  const std::filesystem::path folder = "/proc/" + process + "/fd";
  for (const auto& name : support::entries_of(folder)) {
    std::error_code failed;
    const auto target = std::filesystem::read_symlink(folder / name, failed).string();
    struct stat s {};
    if (failed || !contains(target, "memfd:") || stat((folder / name).c_str(), &s) != 0) continue;
    files.push_back({target, s.st_mode & 07777, s.st_uid});
  }
  return files;
}

TEST_F(cases, C67_nobody_else_can_open_the_memory) {
  const std::size_t own = memory_files("self").size();
  for (const mode_t mask : {mode_t{0}, mode_t{022}}) {
    const mode_t usual = umask(mask);
    fork_ranks(2, [&](communicator& world) {
      use_everything(world);
      REQUIRE_HERE(!support::has_file("/dev/shm/"));
      const auto files = memory_files("self");
      REQUIRE_HERE(files.size() > own);
      for (const auto& f : files) {
        if (!contains(f.target, "memfd:rankcast")) continue;
        REQUIRE_HERE(contains(f.target, "(deleted)"));  // it has no name
        REQUIRE_HERE((f.mode & ~mode_t{0600}) == 0);
        REQUIRE_HERE(f.owner == geteuid());
      }
      rankcast::barrier(world);
    });
    umask(usual);
  }
  EXPECT_EQ(memory_files("self").size(), own);
}

TEST_F(cases, C67_another_user_cannot_open_it_by_the_process) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  fork_ranks(2, [](communicator& world) {
    const std::string process = std::to_string(getpid());
    if (world.rank() == 0) {
      child stranger([&] {
        REQUIRE_HERE(setresgid(65'123, 65'123, 65'123) == 0);
        REQUIRE_HERE(setresuid(65'123, 65'123, 65'123) == 0);
        for (int fd = 0; fd < 64; ++fd) {
          const std::string link = "/proc/" + process + "/fd/" + std::to_string(fd);
          REQUIRE_HERE(::open(link.c_str(), O_RDONLY | O_CLOEXEC) < 0);
        }
      });
      const ending e = stranger.wait();
      if (e.kind != "ok") throw std::runtime_error(e.text);
    }
    rankcast::barrier(world);
  });
}

// Programs that a rank starts do not get it.
TEST_F(cases, C67_it_is_not_inherited_by_other_programs) {
  const std::string name = job_name("exec");
  fork_ranks(2, [&](communicator& world) {
    const auto joined = join(name, world.rank(), 2, {.default_timeout = 20s});
    use_everything(joined);
    int ends[2];
    REQUIRE_HERE(pipe2(ends, O_CLOEXEC) == 0);
    std::fflush(nullptr);
    const pid_t lister = fork();
    if (lister == 0) {
      dup2(ends[1], 1);
      execlp("ls", "ls", "-l", "/proc/self/fd", static_cast<char*>(nullptr));
      _exit(127);
    }
    ::close(ends[1]);
    std::string listed;
    char part[1024];
    for (ssize_t n = 0; (n = ::read(ends[0], part, sizeof part)) > 0;) {
      listed.append(part, static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    int status = 0;
    REQUIRE_HERE(waitpid(lister, &status, 0) == lister && status == 0);
    REQUIRE_HERE(contains(listed, "pipe:"));
    REQUIRE_HERE(!contains(listed, "rankcast"));
    REQUIRE_HERE(!contains(listed, "socket:"));
    REQUIRE_HERE(!contains(listed, "pidfd"));
    rankcast::barrier(world);
  });
}

}  // namespace
