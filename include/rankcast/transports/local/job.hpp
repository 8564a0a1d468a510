/// The processes of one host that make up a job: what they share, who they are, and the groups that
/// they found. Page 0 of the shared file says how the rest is laid out.
#pragma once

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/communicator.hpp"
#include "rankcast/transports/frames/transport.hpp"
#include "rankcast/transports/local/group.hpp"
#include "rankcast/transports/local/pipes.hpp"
#include "rankcast/transports/local/revoke.hpp"
#include "rankcast/transports/local/shared_file.hpp"
#include "rankcast/transports/local/slots.hpp"
#include "rankcast/transports/local/transport.hpp"

namespace rankcast::inline v0::local {

/// One process of a job, as the others see it.
struct process_line {
  alignas(apart) doorbell bell;
  alignas(apart) std::atomic<std::int64_t> process;  // its number; 0: it has not come yet
  std::atomic<std::uint64_t> space;                  // of process numbers
  // Groups that this process has founded for others to find: those of which it is the first rank.
  struct birth {
    std::atomic<std::uint64_t> number;  // of the birth, plus one; 0 while it is written
    std::atomic<std::uint64_t> key;
    std::atomic<std::uint64_t> offset;  // of the board; 0: it could not be made, for `text`
    std::atomic<int> awaited;           // ranks that have not found it yet
    settings sizes;                     // its first rank's hold for all
    char text[512];
  };
  static constexpr std::uint64_t most_births = 8;
  std::atomic<std::uint64_t> born;
  birth births[most_births];
};

struct job_header {
  static constexpr std::uint64_t right_magic = 0x72616e6b6a6f6221u;

  std::uint64_t magic;
  std::uint64_t layout_hash;
  std::uint64_t identity;  // of no other job
  std::int32_t ranks;
  std::int32_t spins;
  settings sizes;
  std::uint64_t pipes_offset;
  std::uint64_t slots_offset;
  std::uint64_t world_offset;
  alignas(apart) std::atomic<std::uint64_t> end;  // where the next group's board begins
  alignas(apart) std::atomic<int> here;           // processes that have joined
};

/// The slots of a job: a part of its file.
class slot_part final : public slot_memory {
 public:
  slot_part(std::shared_ptr<const shared_file> file, std::size_t offset, std::size_t bytes)
      : file_(std::move(file)), offset_(offset), memory_(file_->map(offset, bytes)) {}

  [[nodiscard]] std::byte* address() const noexcept override { return memory_.address(); }
  void reserve(std::size_t offset, std::size_t bytes) override {
    file_->reserve(offset_ + offset, bytes);
  }

 private:
  std::shared_ptr<const shared_file> file_;
  std::size_t offset_;
  mapping memory_;
};

class job final : private wakeups, public std::enable_shared_from_this<job> {
 public:
  /// Beyond this no host has the memory, and sizes no room in their numbers.
  static constexpr int most_ranks = 1 << 16;

  /// Lays out a new file for `ranks` processes. Throws transport_error without memory.
  [[nodiscard]] static shared_file lay_out(int ranks, settings sizes) {
    if (ranks > most_ranks) {
      throw transport_error("shared memory: " + std::to_string(ranks) + " ranks of one host are " +
                                "too many, " + std::to_string(most_ranks) + " are possible",
                            E2BIG);
    }
    sizes = sound(sizes, ranks);
    shared_file file = shared_file::make();
    const std::size_t control = control_bytes(ranks);
    const std::size_t pipe_part = board::page_up(pipes::bytes_needed(ranks, sizes.pipe_bytes));
    const std::size_t world = board::bytes_needed(ranks, sizes, true);
    const slots::form chunk_slots = slot_form(ranks, sizes);
    const std::size_t lines = chunk_slots.line_bytes();
    file.require(0, control + pipe_part + lines + board(nullptr, ranks, sizes).fixed_bytes());
    file.reserve(0, control);
    const mapping memory = file.map(0, control);
    auto& h = *reinterpret_cast<job_header*>(memory.address());
    h.layout_hash = layout_hash();
    std::random_device random;
    h.identity = (std::uint64_t{random()} << 32) | random() | 1;
    h.ranks = ranks;
    h.spins = spins_for(ranks, usable_cpus());
    h.sizes = sizes;
    h.pipes_offset = control;
    h.slots_offset = control + pipe_part;
    h.world_offset = h.slots_offset + chunk_slots.all_bytes();
    h.end.store(h.world_offset + world);
    h.magic = job_header::right_magic;
    file.reserve(h.pipes_offset, pipe_part + lines);
    return file;
  }

  /// This process takes its place. Throws transport_error when the file is of another build.
  job(shared_file file, int rank)
      : file_(std::make_shared<const shared_file>(std::move(file))),
        rank_(rank),
        control_(file_->map(0, board::page_up(1))) {
    const job_header& first = header();
    if (first.magic != job_header::right_magic || first.layout_hash != layout_hash()) {
      throw transport_error(
          "rank " + std::to_string(rank) + ": the job was begun by another build of rankcast", 0);
    }
    const int ranks = first.ranks;
    control_ = file_->map(0, control_bytes(ranks));
    watched_.resize(static_cast<std::size_t>(ranks));
    if (const auto n = pipes::bytes_needed(ranks, sizes().pipe_bytes); n != 0) {
      pipe_memory_ = file_->map(header().pipes_offset, board::page_up(n));
    }
    const slots::form chunk_slots = slot_form(ranks, sizes());
    slots_ = std::make_shared<slots>(
        std::make_shared<slot_part>(file_, header().slots_offset, chunk_slots.all_bytes()), rank,
        chunk_slots);
    link_ = std::make_unique<pipes>(pipe_memory_.address(), rank, ranks, sizes().pipe_bytes,
                                    static_cast<wakeups&>(*this), slots_);
    expect(rank, getpid());
  }

  /// The process of a rank is known, perhaps before it has taken its place: should it end, the
  /// others need not wait for it.
  void expect(int r, pid_t process) noexcept {
    process_line& l = line(r);
    l.space.store(own_space());
    l.process.store(process);
  }

  /// What was sent and has not left: a moment for it.
  ~job() {
    const auto end = steady_clock::now() + std::chrono::seconds(2);
    for (int i = 0; !link_->all_sent() && steady_clock::now() < end; ++i) {
      link_->progress();
      if (anybody_dead()) break;
      pause(i, std::chrono::milliseconds(1));
    }
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return header().ranks; }
  [[nodiscard]] std::uint64_t identity() const noexcept { return header().identity; }
  [[nodiscard]] const settings& sizes() const noexcept { return header().sizes; }
  [[nodiscard]] const shared_file& file() const noexcept { return *file_; }
  /// Of large chunks that several of its processes read.
  [[nodiscard]] slots& chunk_slots() const noexcept { return *slots_; }
  [[nodiscard]] job_header& header() const noexcept {
    return *reinterpret_cast<job_header*>(control_.address());
  }
  [[nodiscard]] process_line& line(int r) const noexcept {
    return *reinterpret_cast<process_line*>(control_.address() + lines_at +
                                            static_cast<std::size_t>(r) * sizeof(process_line));
  }

  /// True when the process of a rank has ended, and this can be seen from here. Any thread may ask.
  [[nodiscard]] bool dead(int r) noexcept {
    const std::lock_guard lock(watched_mutex_);
    watched& w = watched_[static_cast<std::size_t>(r)];
    if (r == rank_ || w.dead) return w.dead;
    if (!w.handle.valid() && !w.hidden) {
      const process_line& l = line(r);
      const auto number = l.process.load();
      if (number == 0) return false;
      w.hidden = l.space.load() != own_space();
      if (w.hidden) return false;
      w.handle =
          descriptor(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(number), 0)));
      w.dead = !w.handle.valid() && errno == ESRCH;
      w.hidden = !w.handle.valid() && !w.dead;
    }
    if (w.handle.valid()) {
      pollfd p{w.handle.get(), POLLIN, 0};
      w.dead = poll(&p, 1, 0) == 1;
    }
    return w.dead;
  }

  /// The group of all processes, at the place that was made for it.
  [[nodiscard]] communicator world(const std::string& name, timeout limit, completion c);

  /// A group of some processes, `members`, each of them calling with the same key; the caller is
  /// the one at `rank`. The first makes the board and says where it is, the others wait for that.
  /// `may_wait` is asked meanwhile, and throws when there is nothing more to wait for.
  template <class MayWait>
  [[nodiscard]] std::shared_ptr<group> found(std::uint64_t key, const std::vector<int>& members,
                                             int rank, const settings& sizes,
                                             const std::string& name, MayWait&& may_wait);

  [[nodiscard]] std::shared_ptr<frames::link> link() { return {shared_from_this(), link_.get()}; }

  /// Holds something as long as the job lives.
  void keep(descriptor d) noexcept { kept_ = std::move(d); }

  /// True when a process, by the number it has here, would call itself by the same one.
  [[nodiscard]] static bool lives_in_own_space(pid_t process) noexcept {
    char link[48];
    std::snprintf(link, sizeof link, "/proc/%d/ns/pid", static_cast<int>(process));
    return own_space() != 0 && space_of(link) == own_space();
  }

  [[nodiscard]] static std::uint64_t layout_hash() noexcept {
    return board::layout_hash() ^ (sizeof(process_line) * 0x9e3779b97f4a7c15u) ^
           (slots::form{}.all_bytes() * 0xff51afd7ed558ccdu);
  }

 private:
  struct watched {
    descriptor handle;
    bool hidden = false;
    bool dead = false;
  };

  static constexpr std::size_t lines_at = 1024;
  static_assert(sizeof(job_header) <= lines_at);

  [[nodiscard]] static std::size_t control_bytes(int ranks) noexcept {
    return board::page_up(lines_at + static_cast<std::size_t>(ranks) * sizeof(process_line));
  }

  // Chunks of `frames` are as large by themselves; small ones go faster through a pipe.
  [[nodiscard]] static slots::form slot_form(int ranks, const settings& s) noexcept {
    slots::form f;
    f.ranks = ranks;
    f.most_bytes = std::min(s.chunk_bytes, f.most_bytes);
    f.least_bytes = std::min(s.eager_bytes, f.most_bytes / 4);
    return f;
  }

  // The space of process numbers that a process lives in; other containers have their own.
  [[nodiscard]] static std::uint64_t space_of(const char* link) noexcept {
    struct stat s {};
    return ::stat(link, &s) == 0 ? static_cast<std::uint64_t>(s.st_ino) : 0;
  }
  [[nodiscard]] static std::uint64_t own_space() noexcept { return space_of("/proc/self/ns/pid"); }

  [[nodiscard]] bool anybody_dead() noexcept {
    for (int r = 0; r < size(); ++r) {
      if (dead(r)) return true;
    }
    return false;
  }

  // Waits within the library's limit. `over` is asked again and again until it says yes, which it
  // may do only once: a group found is taken.
  template <class Over, class MayWait>
  void wait_until(const char* what, Over&& over, MayWait&& may_wait) {
    const auto begin = steady_clock::now();
    const auto until = deadline::after(library_timeout(), begin);
    bool done = false;
    const auto look = [&] { return done = done || over(); };
    for (int attempt = 0; !look(); ++attempt) {
      may_wait();
      if (attempt >= 50 && until.expired()) {
        const auto waited = steady_clock::now() - begin;
        throw timeout_error(
            "a new group of processes: timed out after " + seconds_text(waited) + "; " + what, {},
            waited);
      }
      if (attempt < 50) sched_yield();
      else line(rank_).bell.sleep(std::chrono::milliseconds(5), true, look);
    }
  }
  // A place whose group all have found; or one that a dead process will never find.
  [[nodiscard]] bool free_place(std::size_t& place) {
    for (const bool by_death : {false, true}) {
      for (place = 0; place < process_line::most_births; ++place) {
        const std::vector<int>& members = born_for_[place];
        if (by_death ? std::any_of(members.begin(), members.end(), [&](int r) { return dead(r); })
                     : line(rank_).births[place].awaited.load() == 0) {
          return true;
        }
      }
    }
    return false;
  }
  template <class MayWait>
  [[nodiscard]] std::size_t give_birth(std::uint64_t key, const std::vector<int>& members,
                                       const settings& sizes, MayWait&& may_wait);
  template <class MayWait>
  [[nodiscard]] std::size_t find_birth(std::uint64_t key, int first, settings& sizes,
                                       MayWait&& may_wait);

  void wake(int r) noexcept override { line(r).bell.ring(true); }
  void pause(int attempt, std::chrono::nanoseconds limit) override {
    if (attempt < header().spins) {
      relax_cpu();
    } else if (attempt < header().spins + 50) {
      sched_yield();
    } else {
      line(rank_).bell.sleep(limit, true, [&] { return !link_->quiet(); });
    }
  }

  std::shared_ptr<const shared_file> file_;
  int rank_;
  mapping control_;
  mapping pipe_memory_;
  std::shared_ptr<slots> slots_;
  std::vector<watched> watched_;
  std::unique_ptr<pipes> link_;
  std::mutex watched_mutex_;
  std::mutex births_mutex_;                               // one thread founds at a time
  std::vector<int> born_for_[process_line::most_births];  // by whom each of them is to be found
  descriptor kept_;
};

/// A group of some processes of a job: a board in the job's file.
class job_premises final : public premises {
 public:
  /// `ranks`: the job's numbers of the group's ranks.
  job_premises(std::shared_ptr<job> j, std::vector<int> ranks, std::size_t offset,
               const settings& sizes)
      : job_(std::move(j)),
        ranks_(std::move(ranks)),
        sizes_(sizes),
        offset_(offset),
        bytes_(board::bytes_needed(static_cast<int>(ranks_.size()), sizes, true)),
        memory_(job_->file().map(offset, bytes_)) {}

  // The last one to leave gives the memory back.
  ~job_premises() override {
    const board lines(memory_.address(), static_cast<int>(ranks_.size()), sizes_);
    if (lines.header().departed.fetch_add(1) + 1 == static_cast<int>(ranks_.size())) {
      job_->file().release(offset_, bytes_);
    }
  }
  job_premises(const job_premises&) = delete;
  job_premises& operator=(const job_premises&) = delete;

  [[nodiscard]] std::byte* address() const noexcept override { return memory_.address(); }
  [[nodiscard]] bool across_processes() const noexcept override { return true; }
  void reserve(std::size_t offset, std::size_t bytes) override {
    job_->file().reserve(offset_ + offset, board::page_up(bytes));
  }
  [[nodiscard]] doorbell* bell(int r) noexcept override { return &job_->line(of(r)).bell; }
  [[nodiscard]] bool dead(int r) noexcept override { return job_->dead(of(r)); }

  [[nodiscard]] std::unique_ptr<transport> letters(group& g, int rank) override {
    frames::settings s;
    s.eager_bytes = std::min(g.sizes.eager_bytes, s.eager_bytes);
    s.chunk_bytes = std::min(g.sizes.chunk_bytes, s.chunk_bytes);
    const std::uint64_t parts[] = {offset_, 1};
    return std::make_unique<frames::frames_transport>(
        job_->link(), frames::frames_transport::mix(parts), rank, ranks_, g.name, s);
  }

  [[nodiscard]] std::shared_ptr<group> found(group& parent, int, std::span<const int> ranks,
                                             int rank, std::uint64_t key,
                                             const std::string& name) override {
    std::vector<int> members;
    for (const int r : ranks) members.push_back(of(r));
    const int first = ranks.front();
    // Groups of different parents may come with the same key.
    const std::uint64_t parts[] = {offset_, key};
    const std::uint64_t own = frames::frames_transport::mix(parts);
    return job_->found(own, members, rank, parent.sizes, name, [&] {
      if (revoked(parent)) std::rethrow_exception(later_error(parent));
      if (rank != 0 && parent.gone(first)) {
        throw peer_lost_error(parent.name + ": rank " + std::to_string(first) +
                                  " left before it had made a new group",
                              first);
      }
    });
  }

 private:
  [[nodiscard]] int of(int r) const noexcept { return ranks_[static_cast<std::size_t>(r)]; }

  std::shared_ptr<job> job_;
  std::vector<int> ranks_;
  settings sizes_;
  std::size_t offset_;
  std::size_t bytes_;
  mapping memory_;
};

inline communicator job::world(const std::string& name, timeout limit, completion c) {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) ranks.push_back(r);
  // Each rank makes sure of it: who finds no memory says so itself.
  file_->reserve(static_cast<std::size_t>(header().world_offset),
                 board(nullptr, size(), sizes()).fixed_bytes());
  auto g = std::make_shared<group>(
      std::make_unique<job_premises>(shared_from_this(), ranks,
                                     static_cast<std::size_t>(header().world_offset), sizes()),
      size(), "group '" + name + "' of " + std::to_string(size()), sizes(), header().spins);
  return {std::make_shared<local_transport>(std::move(g), rank_), name, ranks, rank_, limit, c};
}

template <class MayWait>
std::shared_ptr<group> job::found(std::uint64_t key, const std::vector<int>& members, int rank,
                                  const settings& sizes, const std::string& name,
                                  MayWait&& may_wait) {
  const int n = static_cast<int>(members.size());
  settings common = sizes;
  const std::size_t offset = rank == 0 ? give_birth(key, members, sizes, may_wait)
                                       : find_birth(key, members.front(), common, may_wait);
  return std::make_shared<group>(
      std::make_unique<job_premises>(shared_from_this(), members, offset, common), n, name, common,
      header().spins);
}

template <class MayWait>
std::size_t job::give_birth(std::uint64_t key, const std::vector<int>& members,
                            const settings& sizes, MayWait&& may_wait) {
  const int ranks = static_cast<int>(members.size());
  const std::lock_guard lock(births_mutex_);
  std::size_t place = 0;
  wait_until(
      "other ranks have not found groups made before", [&] { return free_place(place); }, may_wait);
  process_line::birth& b = line(rank_).births[place];
  born_for_[place] = members;
  const std::uint64_t number = line(rank_).born.fetch_add(1);
  b.number.store(0);
  b.key.store(key);
  std::exception_ptr why;
  std::size_t offset = 0;
  try {
    const std::size_t begin = header().end.fetch_add(board::bytes_needed(ranks, sizes, true));
    file_->reserve(begin, board(nullptr, ranks, sizes).fixed_bytes());
    offset = begin;
  } catch (const transport_error& e) {
    put_text(b.text, e.what());
    why = std::current_exception();
  }
  b.sizes = sizes;
  b.offset.store(offset);
  b.awaited.store(ranks - 1);
  b.number.store(number + 1);
  for (int r = 0; r < size(); ++r) line(r).bell.ring(true);
  if (why != nullptr) std::rethrow_exception(why);
  return offset;
}

template <class MayWait>
std::size_t job::find_birth(std::uint64_t key, int first, settings& sizes, MayWait&& may_wait) {
  std::size_t offset = 0;
  const auto found_it = [&] {
    for (auto& b : line(first).births) {
      const std::uint64_t number = b.number.load();
      if (number == 0 || b.key.load() != key || b.awaited.load() == 0) continue;
      offset = static_cast<std::size_t>(b.offset.load());
      const std::string text = offset == 0 ? get_text(b.text) : std::string();
      sizes = b.sizes;
      if (b.number.load() != number) continue;  // overwritten meanwhile
      b.awaited.fetch_sub(1);
      if (offset == 0) throw transport_error(text, ENOMEM);
      return true;
    }
    return false;
  };
  wait_until("its first rank has not made it", found_it, [&] {
    may_wait();
    if (dead(first)) {
      throw peer_lost_error("the process that was to make a new group has ended (process " +
                                std::to_string(first) + " of this host)",
                            first);
    }
  });
  return offset;
}

}  // namespace rankcast::inline v0::local
