/// Processes of this host that were started by somebody else become the ranks of a job: they agree
/// on a name, meet at rank 0, and get the job's memory from it. A launcher is not needed.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "rankcast/core/revocation.hpp"
#include "rankcast/transports/local/job.hpp"
#include "rankcast/transports/local/threads.hpp"

namespace rankcast::inline v0 {

namespace local {

// What a process says when it comes, and what it is told.
struct hello {
  static constexpr std::uint64_t right_magic = 0x72616e6b68656c6fu;
  std::uint64_t magic = right_magic;
  std::uint64_t layout_hash = job::layout_hash();
  std::int32_t rank = 0;
  std::int32_t size = 0;
  cpu_set_t cpus = own_cpus();  // launchers bind each rank to CPUs of its own
};
struct welcome {
  std::int32_t refused = 0;
  char text[1020] = {};
};

/// True when the other end of a connection, or who waits for it, is of this user.
[[nodiscard]] inline bool same_user(const descriptor& s) {
  ucred peer{};
  socklen_t n = sizeof peer;
  return getsockopt(s.get(), SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.uid == getuid();
}

/// Abstract sockets: names that live in the kernel as long as somebody holds them, apart for each
/// user. Two for a job: one that rank 0 holds while the job lives, one where the others meet it.
class meeting_place {
 public:
  meeting_place(std::string_view job_name, int rank)
      : who_("join: job '" + std::string(job_name) + "', rank " + std::to_string(rank)) {
    std::string id(job_name.substr(0, 48));
    if (id.size() < job_name.size()) {
      id += "#" + std::to_string(detail::hash_text(job_name));
    }
    stem_ = "rankcast/" + std::to_string(getuid()) + "/" + id;
  }

  [[nodiscard]] const std::string& who() const noexcept { return who_; }

  [[nodiscard]] descriptor hold() const {
    descriptor s = open(SOCK_DGRAM);
    const auto [address, length] = address_of("");
    if (bind(s.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      if (errno == EADDRINUSE) {
        throw transport_error(who_ + ": a job of this name is running; give this one another name",
                              EADDRINUSE);
      }
      throw_system_error(who_ + ": cannot take the job's name", errno);
    }
    return s;
  }
  [[nodiscard]] descriptor listen_for(int others) const {
    descriptor s = open(SOCK_STREAM | SOCK_NONBLOCK);
    const auto [address, length] = address_of("/meet");
    if (bind(s.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(s.get(), std::max(others, 16)) != 0) {
      throw_system_error(who_ + ": cannot wait for the other ranks", errno);
    }
    return s;
  }
  /// A connection to rank 0; none as long as it is not there.
  [[nodiscard]] std::optional<descriptor> try_connect() const {
    descriptor s = open(SOCK_STREAM);
    if (connect_to(s, "/meet")) {
      if (same_user(s)) return s;
      throw transport_error(who_ + ": another user has taken the name of the job", EPERM);
    }
    if (errno == ECONNREFUSED || errno == EAGAIN || errno == ENOENT) return std::nullopt;
    throw_system_error(who_ + ": cannot reach rank 0", errno);
  }
  /// True when rank 0 of a job of this name lives.
  [[nodiscard]] bool held() const {
    const descriptor s = open(SOCK_DGRAM);
    return connect_to(s, "");
  }

 private:
  [[nodiscard]] descriptor open(int type) const {
    descriptor s(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    if (!s.valid()) throw_system_error(who_ + ": cannot make a socket", errno);
    return s;
  }
  [[nodiscard]] std::pair<sockaddr_un, socklen_t> address_of(const char* end) const {
    sockaddr_un a{};
    a.sun_family = AF_UNIX;
    const std::string name = stem_ + end;
    std::memcpy(a.sun_path + 1, name.data(), name.size());  // begins with a zero byte
    return {a, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
  }
  [[nodiscard]] bool connect_to(const descriptor& s, const char* end) const {
    const auto [address, length] = address_of(end);
    return connect(s.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0;
  }

  std::string who_;
  std::string stem_;
};

/// Waits until something can be read. False at the deadline.
[[nodiscard]] inline bool readable(const descriptor& s, const deadline& until) {
  for (;;) {
    const timeout left = until.remaining();
    const auto slice = std::chrono::milliseconds(100);
    const auto wait =
        left.is_none()
            ? slice
            : std::min(slice, std::chrono::ceil<std::chrono::milliseconds>(left.limit()));
    pollfd p{s.get(), POLLIN, 0};
    if (poll(&p, 1, static_cast<int>(wait.count())) > 0) return true;
    if (until.expired()) return false;
  }
}

/// Sends the answer, with the job's memory when there is one.
inline void answer(const descriptor& s, const welcome& w, int file) noexcept {
  iovec part{const_cast<welcome*>(&w), sizeof w};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  if (file >= 0) {
    m.msg_control = space.data();
    m.msg_controllen = space.size();
    cmsghdr* const c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &file, sizeof(int));
  }
  (void)sendmsg(s.get(), &m, MSG_NOSIGNAL);  // who has gone meanwhile will be missed later
}
inline void refuse(const descriptor& s, const std::string& why) noexcept {
  welcome w;
  w.refused = 1;
  put_text(w.text, why);
  answer(s, w, -1);
}
/// The answer and the memory that came with it. False when the connection has ended.
[[nodiscard]] inline bool hear(const descriptor& s, welcome& w, descriptor& file) {
  iovec part{&w, sizeof w};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  m.msg_control = space.data();
  m.msg_controllen = space.size();
  if (recvmsg(s.get(), &m, MSG_CMSG_CLOEXEC | MSG_WAITALL) != static_cast<ssize_t>(sizeof w)) {
    return false;
  }
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    file = descriptor(fd);
  }
  return true;
}

/// What a guest says, within a moment. False when it says too little.
[[nodiscard]] inline bool hear_hello(const descriptor& guest, hello& h, const deadline& until) {
  const auto moment = std::min(deadline::after(std::chrono::seconds(1)).at(), until.at());
  std::size_t n = 0;
  while (n < sizeof h) {
    const auto left = std::max(moment - steady_clock::now(), steady_clock::duration::zero());
    if (!readable(guest, deadline::after(left))) return false;
    const ssize_t got = recv(guest.get(), reinterpret_cast<char*>(&h) + n, sizeof h - n, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    n += static_cast<std::size_t>(got);
  }
  return true;
}

/// True when the other end of a connection has gone.
[[nodiscard]] inline bool hung_up(const descriptor& s) noexcept {
  pollfd p{s.get(), POLLRDHUP, 0};
  return poll(&p, 1, 0) == 1;
}

/// Those who have come to rank 0.
class guest_list {
 public:
  guest_list(const meeting_place& place, int size)
      : place_(place), size_(size), come_(static_cast<std::size_t>(size)) {}

  /// A process is at the door: it gets its place, or is told why not.
  void receive(descriptor guest, const deadline& until) {
    hello h;
    if (!same_user(guest) || !hear_hello(guest, h, until)) return;
    const std::string wrong = refusal(h);
    if (wrong.empty()) {
      come_[static_cast<std::size_t>(h.rank)] = std::move(guest);
      CPU_OR(&cpus_, &cpus_, &h.cpus);
      return;
    }
    const std::string who = "a process that came as rank " + std::to_string(h.rank);
    notes_ += "; " + who + " was turned away: " + wrong;
    refuse(guest, place_.who() + " turned " + who + " away: " + wrong);
  }

  /// Who is missing; the places of those who have died meanwhile are free again.
  [[nodiscard]] std::vector<int> absent() {
    std::vector<int> ranks;
    for (int r = 1; r < size_; ++r) {
      descriptor& d = come_[static_cast<std::size_t>(r)];
      if (d.valid() && hung_up(d)) descriptor().swap(d);
      if (!d.valid()) ranks.push_back(r);
    }
    return ranks;
  }
  [[nodiscard]] const std::string& notes() const noexcept { return notes_; }

  /// CPUs that they and this process may run on, all together.
  [[nodiscard]] int cpus() const noexcept { return CPU_COUNT(&cpus_); }

  void refuse_all(const std::string& why) const noexcept {
    for (const descriptor& d : come_) {
      if (d.valid()) refuse(d, why);
    }
  }
  /// Hands the memory to all, who are known as processes of the job from now on.
  void welcome_all(job& j) const noexcept {
    for (int r = 1; r < size_; ++r) {
      const descriptor& d = come_[static_cast<std::size_t>(r)];
      ucred peer{};
      socklen_t n = sizeof peer;
      if (getsockopt(d.get(), SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
          job::lives_in_own_space(peer.pid)) {
        j.expect(r, peer.pid);
      }
    }
    for (const descriptor& d : come_) {
      if (d.valid()) answer(d, {}, j.file().get());
    }
  }

 private:
  [[nodiscard]] std::string refusal(const hello& h) const {
    if (h.magic != hello::right_magic || h.layout_hash != job::layout_hash()) {
      return "it runs another build of rankcast";
    }
    if (h.size != size_) {
      return "it wants a job of " + std::to_string(h.size) + " ranks, rank 0 one of " +
             std::to_string(size_);
    }
    if (h.rank < 1 || h.rank >= size_) {
      return "there is no rank " + std::to_string(h.rank) + " in a job of " +
             std::to_string(size_) + " but rank 0";
    }
    const descriptor& d = come_[static_cast<std::size_t>(h.rank)];
    if (d.valid() && !hung_up(d)) return "rank " + std::to_string(h.rank) + " is there already";
    return {};
  }

  const meeting_place& place_;
  int size_;
  std::vector<descriptor> come_;  // by rank
  cpu_set_t cpus_ = own_cpus();
  std::string notes_;
};

/// Rank 0: waits for all others and hands the memory to them, to all or to none.
[[nodiscard]] inline std::shared_ptr<job> receive_ranks(const meeting_place& place, int size,
                                                        const settings& sizes,
                                                        const deadline& until,
                                                        steady_clock::time_point begin) {
  descriptor name = place.hold();
  const descriptor door = place.listen_for(size);
  guest_list guests(place, size);
  for (auto absent = guests.absent(); !absent.empty(); absent = guests.absent()) {
    const auto slice = deadline::after(std::chrono::milliseconds(100));
    if (readable(door, until.at() < slice.at() ? until : slice)) {
      descriptor guest(accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (guest.valid()) guests.receive(std::move(guest), until);
      else std::this_thread::sleep_for(std::chrono::milliseconds(5));  // no descriptor is free
    }
    if (!until.expired()) continue;
    absent = guests.absent();
    if (absent.empty()) break;
    const std::string text =
        place.who() + ": timed out; " + rank_list(absent) + " did not come" + guests.notes();
    guests.refuse_all(text);
    throw timeout_error(text, absent, steady_clock::now() - begin);
  }
  try {
    auto j = std::make_shared<job>(job::lay_out(size, sizes), 0);
    j->keep(std::move(name));
    j->header().spins = spins_for(size, guests.cpus());
    guests.welcome_all(*j);
    return j;
  } catch (const error& e) {  // without memory for all of them
    guests.refuse_all(place.who() + ": " + e.what());
    throw;
  }
}

/// Any other rank: goes to rank 0.
[[nodiscard]] inline std::shared_ptr<job> go_to_rank_0(const meeting_place& place, int rank,
                                                       int size, const deadline& until,
                                                       steady_clock::time_point begin) {
  std::optional<descriptor> s;
  int refusals = 0;
  while (!(s = place.try_connect())) {
    // Its rank 0 lives but receives nobody: they are complete.
    refusals = place.held() ? refusals + 1 : 0;
    if (refusals > 200) {
      throw transport_error(
          place.who() + ": a job of this name is running and complete; give this one another name",
          EADDRINUSE);
    }
    if (until.expired()) {
      throw timeout_error(place.who() + ": timed out; rank 0 did not come", {0},
                          steady_clock::now() - begin);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  hello h;
  h.rank = rank;
  h.size = size;
  welcome w;
  descriptor file;
  (void)send(s->get(), &h, sizeof h, MSG_NOSIGNAL);
  if (!readable(*s, until)) {
    throw timeout_error(place.who() + ": timed out; other ranks did not come", {},
                        steady_clock::now() - begin);
  }
  if (!hear(*s, w, file)) {
    throw peer_lost_error(place.who() + ": rank 0 went away while the ranks were coming", 0);
  }
  if (w.refused != 0) throw transport_error(get_text(w.text), EPROTO);
  if (!file.valid()) throw transport_error(place.who() + ": no memory came from rank 0", EPROTO);
  return std::make_shared<job>(shared_file(std::move(file)), rank);
}

}  // namespace local

/// This process becomes rank `rank` of a job of `size` processes of this host that all call it with
/// the same name; returns when all have. The name is free again when rank 0 has ended.
///
/// Errors   usage_error (rank, size, name); timeout_error when not all come within the default
///          limit, naming those who did not; transport_error when a job of this name is running,
///          when rank 0 turns this process away (another size, another build, a rank that is there
///          already), when another user has the name, or on all ranks without memory, with bytes
///          needed and available; peer_lost_error when rank 0 ends meanwhile.
/// Cost     a connection to rank 0; shared memory as `fork_ranks`, which has no name that other
///          programs could open.
[[nodiscard]] inline communicator join(std::string_view name, int rank, int size,
                                       const run_options& options = {}) {
  if (name.empty()) throw usage_error("join: the job needs a name");
  if (size < 1 || rank < 0 || rank >= size) {
    throw usage_error("join: rank " + std::to_string(rank) + " of " + std::to_string(size) +
                      ": ranks are 0 to size - 1");
  }
  const local::meeting_place place(name, rank);
  const auto begin = steady_clock::now();
  const deadline until = deadline::after(options.default_timeout.or_else(library_timeout()), begin);
  const auto j = rank == 0 ? local::receive_ranks(place, size, options.sizes, until, begin)
                           : local::go_to_rank_0(place, rank, size, until, begin);
  return j->world(options.name, options.default_timeout, options.completion);
}

/// The same, with what a launcher has left in the environment: RANKCAST_JOB, RANKCAST_RANK and
/// RANKCAST_SIZE; or what torchrun sets (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and
/// LOCAL_WORLD_SIZE, which must be all of them: several hosts need rankcast::mpi).
///
/// Errors   as above; usage_error that names a variable which is missing or no number.
[[nodiscard]] inline communicator join(const run_options& options = {}) {
  const auto text = [](const char* variable) -> std::string {
    const char* value = std::getenv(variable);
    return value == nullptr ? "" : value;
  };
  const auto number = [&](const char* variable) {
    const std::string value = text(variable);
    int n = -1;
    const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (value.empty() || failed != std::errc() || end != value.data() + value.size()) {
      throw usage_error(std::string("join: ") + variable +
                        (value.empty() ? " is not set" : " is '" + value + "', not a number"));
    }
    return n;
  };
  if (!text("RANKCAST_JOB").empty()) {
    return join(text("RANKCAST_JOB"), number("RANKCAST_RANK"), number("RANKCAST_SIZE"), options);
  }
  if (text("MASTER_ADDR").empty()) {
    throw usage_error(
        "join: the environment names no job: set RANKCAST_JOB, RANKCAST_RANK and RANKCAST_SIZE, "
        "or start with torchrun");
  }
  const int size = number("WORLD_SIZE");
  if (!text("LOCAL_WORLD_SIZE").empty() && number("LOCAL_WORLD_SIZE") != size) {
    throw usage_error("join: " + text("LOCAL_WORLD_SIZE") + " of " + std::to_string(size) +
                      " ranks are on this host; ranks on several hosts need rankcast::mpi");
  }
  return join(text("TORCHELASTIC_RUN_ID") + "@" + text("MASTER_ADDR") + ":" +
                  std::to_string(number("MASTER_PORT")),
              number("RANK"), size, options);
}

}  // namespace rankcast::inline v0
