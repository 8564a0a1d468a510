/// Processes for tests that are no ranks of the test's own: each is a fork that runs a function and
/// reports how it ended. And what a process has of the system, to see that nothing of it is left.
#pragma once

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "rankcast/processes.hpp"

/// In a process whose failures GoogleTest does not see: throws with the place, so that they reach
/// the process that does.
#define REQUIRE_HERE(condition)                                                              \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      throw ::support::failed_check(std::string(__FILE__) + ":" + std::to_string(__LINE__) + \
                                    ": " #condition);                                        \
    }                                                                                        \
  } while (false)

namespace support {

class failed_check : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// The error of type E that `f` throws, where GoogleTest does not look.
template <class E, class F>
[[nodiscard]] E caught(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const E& e) {
    return e;
  } catch (const std::exception& e) {
    throw failed_check(std::string("another error was thrown: ") + e.what());
  }
  throw failed_check("nothing was thrown");
}

/// Which of rankcast's errors is being handled.
[[nodiscard]] inline std::string kind_of_current_exception() {
  try {
    throw;
  } catch (const rankcast::usage_error&) {
    return "usage_error";
  } catch (const rankcast::timeout_error&) {
    return "timeout_error";
  } catch (const rankcast::peer_lost_error&) {
    return "peer_lost_error";
  } catch (const rankcast::revoked_error&) {
    return "revoked_error";
  } catch (const rankcast::remote_error&) {
    return "remote_error";
  } catch (const rankcast::transport_error&) {
    return "transport_error";
  } catch (const failed_check&) {
    return "failed_check";
  } catch (...) {
    return "another error";
  }
}

/// How a child ended: "ok", the kind of error that it threw, "killed", or "hung".
struct ending {
  std::string kind;
  std::string text;
  double seconds = 0;  // since it was made
};

class child {
 public:
  template <class F>
  explicit child(F&& function) : begin_(rankcast::steady_clock::now()) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::fflush(nullptr);
    process_ = fork();
    if (process_ < 0) throw std::runtime_error("no process");
    if (process_ == 0) {
      ::close(ends[0]);
      std::string report = "ok\n";
      try {
        function();
      } catch (const std::exception& e) {
        report = kind_of_current_exception() + "\n" + e.what();
      }
      (void)!::write(ends[1], report.data(), report.size());
      _exit(0);
    }
    ::close(ends[1]);
    report_ = ends[0];
  }
  child(child&& other) noexcept
      : process_(std::exchange(other.process_, 0)),
        report_(std::exchange(other.report_, -1)),
        begin_(other.begin_) {}
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  ~child() {
    kill();
    reap();
    if (report_ >= 0) ::close(report_);
  }

  [[nodiscard]] pid_t process() const noexcept { return process_; }
  void kill(int signal = SIGKILL) const noexcept {
    if (process_ > 0) ::kill(process_, signal);
  }

  /// Kills it when it takes longer than `limit`.
  ending wait(std::chrono::milliseconds limit = std::chrono::seconds(60)) {
    const auto end = rankcast::steady_clock::now() + limit;
    std::string text;
    bool hung = false;
    for (;;) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(end - rankcast::steady_clock::now());
      pollfd p{report_, POLLIN, 0};
      if (left.count() <= 0 || poll(&p, 1, static_cast<int>(left.count())) == 0) {
        hung = true;
        kill();
        break;
      }
      char part[4096];
      const ssize_t n = ::read(report_, part, sizeof part);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      text.append(part, static_cast<std::size_t>(n));
    }
    reap();
    ending e;
    e.seconds = std::chrono::duration<double>(rankcast::steady_clock::now() - begin_).count();
    const auto line = text.find('\n');
    e.kind = hung ? "hung" : line == std::string::npos ? "killed" : text.substr(0, line);
    if (line != std::string::npos) e.text = text.substr(line + 1);
    return e;
  }

 private:
  void reap() noexcept {
    if (process_ <= 0) return;
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
    process_ = 0;
  }

  pid_t process_ = 0;
  int report_ = -1;
  rankcast::steady_clock::time_point begin_;
};

/// Threads that came with the program (a sanitizer's own) forbid forks.
[[nodiscard]] inline bool process_has_threads() {
  return rankcast::local::threads_of_this_process() > 1;
}

[[nodiscard]] inline std::set<std::string> entries_of(const std::filesystem::path& folder) {
  std::set<std::string> names;
  std::error_code failed;
  for (auto it = std::filesystem::directory_iterator(folder, failed);
       !failed && it != std::filesystem::directory_iterator(); it.increment(failed)) {
    names.insert(it->path().filename().string());
  }
  return names;
}

/// Open descriptors, the one that looks included.
[[nodiscard]] inline std::size_t open_descriptors() {
  return entries_of("/proc/self/fd").size();
}

/// True when this process has a file of a kind open or mapped: "/dev/shm/", "memfd:rankcast".
[[nodiscard]] inline bool has_file(const std::string& kind) {
  for (const auto& name : entries_of("/proc/self/fd")) {
    std::error_code failed;
    const auto target = std::filesystem::read_symlink("/proc/self/fd/" + name, failed).string();
    if (target.find(kind) != std::string::npos) return true;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(kind) != std::string::npos) return true;
  }
  return false;
}

/// A line of /proc/self/status, /proc/meminfo or the like, in bytes.
[[nodiscard]] inline long long kilobytes_line(const std::string& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    long long value = 0;
    if (word == key && in >> value) return value * 1024;
  }
  return -1;
}

/// True when this process has children, living or not yet waited for.
[[nodiscard]] inline bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

}  // namespace support
