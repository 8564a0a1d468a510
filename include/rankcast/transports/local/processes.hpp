/// Ranks as processes of this host that a program makes of itself: `fork_ranks`, the counterpart of
/// `run`. (Processes that are there already: join.hpp.)
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/transports/local/job.hpp"
#include "rankcast/transports/local/threads.hpp"

namespace rankcast::inline v0 {

namespace local {

/// How a rank's function ended, for the process that made it.
struct outcome {
  enum class kind : int { unknown, returned, cause, consequence };
  std::atomic<kind> how;
  std::atomic<std::int64_t> when;  // steady clock, ns
  char text[4096 - 64];
};

/// The first thing that went wrong on any rank: what went before what it caused.
struct first_failure {
  std::exception_ptr why;
  bool is_cause = false;
  std::int64_t when = 0;

  void note(std::exception_ptr e, bool cause, std::int64_t at) {
    if (why != nullptr && (is_cause > cause || (is_cause == cause && when <= at))) return;
    why = std::move(e);
    is_cause = cause;
    when = at;
  }
};

/// Threads of this process, as the kernel counts them.
[[nodiscard]] inline int threads_of_this_process() {
  int n = 0;
  std::error_code failed;
  for (auto it = std::filesystem::directory_iterator("/proc/self/task", failed);
       !failed && it != std::filesystem::directory_iterator(); it.increment(failed)) {
    ++n;
  }
  return n;
}

/// Calls the function as one rank. Returns how it ended; tells the other ranks if badly.
template <class F>
outcome::kind be_rank(F& function, communicator world, std::string& text,
                      std::exception_ptr& thrown) {
  const auto leave = [&](const char* what, outcome::kind how) {
    text = what;
    thrown = std::current_exception();
    world.revoke("rank " + std::to_string(world.rank()) + " threw: " + text);
    return how;
  };
  try {
    function(world);
    return outcome::kind::returned;
  } catch (const revoked_error& e) {
    return leave(e.what(), outcome::kind::consequence);
  } catch (const peer_lost_error& e) {
    return leave(e.what(), outcome::kind::consequence);
  } catch (const std::exception& e) {
    return leave(e.what(), outcome::kind::cause);
  } catch (...) {
    return leave("something that is not a std::exception", outcome::kind::cause);
  }
}

}  // namespace local

/// Runs `function(communicator&)` on `ranks` processes: this one as rank 0, the others are its
/// forks, which end with it. Returns when all have.
///
///   rankcast::fork_ranks(2, [](rankcast::communicator& world) { rankcast::barrier(world); });
///
/// Errors   usage_error (fewer than one rank; the process has threads, of which a fork would have
///          lost all but one: call it before OpenMP, MPI, CUDA or own threads have begun);
///          transport_error without memory or processes. What a rank throws ends the group. The
///          first cause is thrown here: rank 0's own exception as it is, another rank's as
///          remote_error with its text, peer_lost_error with the signal where its process was
///          killed.
/// Cost     the forks; shared memory, about 0.1 MiB per rank and 33 KiB per ordered pair of ranks;
///          for each rank that gives data in collectives up to 0.4 MiB more (4 MiB where ranks are
///          more than CPUs), for each that sends large messages up to 4 MiB.
template <class F>
  requires std::invocable<F&, communicator&>
void fork_ranks(int ranks, F&& function, const run_options& options = {}) {
  if (ranks < 1) throw usage_error("fork_ranks: " + std::to_string(ranks) + " ranks asked for");
  if (const int threads = local::threads_of_this_process(); threads > 1) {
    throw usage_error("fork_ranks: this process has " + std::to_string(threads) +
                      " threads already, of which a fork would have only one; call it before "
                      "other threads, MPI or CUDA have begun");
  }
  const local::shared_file file = local::job::lay_out(ranks, options.sizes);
  const local::shared_file report_file = local::shared_file::make();
  const std::size_t report_bytes =
      local::board::page_up(static_cast<std::size_t>(ranks) * sizeof(local::outcome));
  report_file.reserve(0, report_bytes);
  const local::mapping report = report_file.map(0, report_bytes);
  auto* const outcomes = reinterpret_cast<local::outcome*>(report.address());
  const auto take_place = [&](int rank) {
    const int fd = fcntl(file.get(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) local::throw_system_error("fork_ranks: no descriptor is free", errno);
    return std::make_shared<local::job>(local::shared_file(local::descriptor(fd)), rank);
  };
  const auto world = [&](local::job& j) {
    return j.world(options.name, options.default_timeout, options.completion);
  };
  const auto now = [] { return steady_clock::now().time_since_epoch().count(); };

  auto place = take_place(0);
  std::fflush(nullptr);  // what is in a buffer now would be written by every process
  std::vector<pid_t> processes{getpid()};
  std::exception_ptr no_process;
  for (int r = 1; r < ranks && no_process == nullptr; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      local::outcome& mine = outcomes[r];
      local::outcome::kind how = local::outcome::kind::cause;
      try {
        std::string text;
        std::exception_ptr thrown;
        how = local::be_rank(function, world(*take_place(r)), text, thrown);
        local::put_text(mine.text, text);
      } catch (const std::exception& e) {  // it could not become a rank
        local::put_text(mine.text, e.what());
      }
      mine.when.store(now());
      mine.how.store(how);
      std::fflush(nullptr);
      _exit(how == local::outcome::kind::returned ? 0 : 1);
    }
    if (child < 0) {
      no_process = std::make_exception_ptr(transport_error(
          "fork_ranks: rank " + std::to_string(r) + " could not be made: " + std::strerror(errno),
          errno));
      break;
    }
    processes.push_back(child);
    place->expect(r, child);
  }

  local::first_failure first;
  try {
    communicator mine = world(*std::exchange(place, nullptr));
    if (no_process != nullptr) {
      mine.revoke("a rank could not be made");
      first.note(no_process, true, 0);
    } else {
      std::string text;
      std::exception_ptr thrown;
      const auto how = local::be_rank(function, std::move(mine), text, thrown);
      if (thrown != nullptr) first.note(thrown, how == local::outcome::kind::cause, now());
    }
  } catch (...) {
    first.note(std::current_exception(), true, now());
  }
  for (std::size_t r = 1; r < processes.size(); ++r) {
    int status = 0;
    while (waitpid(processes[r], &status, 0) < 0 && errno == EINTR) {
    }
    const local::outcome& theirs = outcomes[r];
    const int rank = static_cast<int>(r);
    const std::string who = "fork_ranks: rank " + std::to_string(r);
    switch (theirs.how.load()) {
      case local::outcome::kind::returned: break;
      case local::outcome::kind::unknown: {
        const std::string how =
            WIFSIGNALED(status) ? "was killed by signal " + std::to_string(WTERMSIG(status)) +
                                      " (" + strsignal(WTERMSIG(status)) + ")"
                                : "ended with exit status " + std::to_string(WEXITSTATUS(status));
        first.note(std::make_exception_ptr(peer_lost_error(who + ": its process " + how, rank)),
                   true, 0);
        break;
      }
      default:
        first.note(std::make_exception_ptr(
                       remote_error(who + " threw: " + local::get_text(theirs.text), rank)),
                   theirs.how.load() == local::outcome::kind::cause, theirs.when.load());
    }
  }
  if (first.why != nullptr) std::rethrow_exception(first.why);
}

}  // namespace rankcast::inline v0
