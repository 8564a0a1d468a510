/// Frames between the processes of an MPI communicator, on a private duplicate of it: only
/// non-blocking point-to-point calls, only in buffers of the library's own. Native collectives are
/// not used: when ranks disagree they are undefined before any check can speak, and they can be
/// neither timed nor cancelled.
#pragma once

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rankcast/transports/frames/link.hpp"
#include "rankcast/transports/mpi/native.hpp"

namespace rankcast::inline v0::mpi {

class mpi_link final : public frames::link {
 public:
  /// Collective over `lent`, within `limit`. The lent communicator and its error handler are left
  /// as they are.
  mpi_link(MPI_Comm lent, deadline limit) {
    any_thread_ = any_thread_may_call();
    auto first = std::make_unique<handshake>();
    check(MPI_Comm_idup(lent, &first->comm, &first->request), "MPI_Comm_idup");
    complete(first, limit, "MPI_Comm_idup");
    comm_ = first->comm;
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    spins_ = spins_of_this_host(size_);
    ended_.resize(static_cast<std::size_t>(size_));
    heads_.resize(static_cast<std::size_t>(size_));
    require_same_build(limit);
  }
  mpi_link(const mpi_link&) = delete;
  mpi_link& operator=(const mpi_link&) = delete;

  /// Some numbers of each process to all, while the link is made: those of rank 0, of rank 1, ...
  [[nodiscard]] std::vector<std::uint64_t> exchange(std::span<const std::uint64_t> mine,
                                                    deadline limit) {
    auto h = std::make_unique<handshake>();
    h->mine.assign(mine.begin(), mine.end());
    h->all.resize(mine.size() * static_cast<std::size_t>(size_));
    const int n = static_cast<int>(mine.size());
    check(MPI_Iallgather(h->mine.data(), n, MPI_UINT64_T, h->all.data(), n, MPI_UINT64_T, comm_,
                         &h->request),
          "MPI_Iallgather");
    complete(h, limit, "MPI_Iallgather");
    return std::move(h->all);
  }

  /// Whether MPI takes calls of all threads. Throws usage_error when it does not, and this is not
  /// the thread that initialised it.
  [[nodiscard]] static bool any_thread_may_call() {
    int level = MPI_THREAD_SINGLE;
    int is_main = 0;
    check(MPI_Query_thread(&level), "MPI_Query_thread");
    if (level == MPI_THREAD_MULTIPLE) return true;
    check(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main");
    if (is_main == 0) throw usage_error(wrong_thread());
    return false;
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }

  void post(int to, frames::frame f, frames::unsent_count unsent) override {
    if (to == rank_) {
      deliver(std::move(f));
      return;
    }
    const std::lock_guard lock(mutex_);
    if (over_) return;
    bytes_sent_ += f.size() + f.shared.size();
    if (unsent != nullptr) unsent->fetch_add(1, std::memory_order_relaxed);
    if (!f.shared.empty()) {  // a message of its own behind the header
      frames::frame body;
      body.shared = std::move(f.shared);
      waiting_.push_back({to, std::move(f), nullptr});
      f = std::move(body);
    }
    waiting_.push_back({to, std::move(f), std::move(unsent)});
    if (may_call()) send_waiting();
  }

  bool progress() override {
    if (!may_call()) return false;
    const std::lock_guard lock(mutex_);
    if (over_) return false;
    send_waiting();
    const bool sent = finish_sends();
    return receive() || sent;
  }

  void pause(int attempt, std::chrono::nanoseconds limit) override {
    constexpr int yields = 200;
    if (attempt < spins_) {
      relax();
      return;
    }
    if (attempt < spins_ + yields) {
      sched_yield();
      return;
    }
    // MPI has no sleep that a message ends, so this is a poll whose period grows with the wait.
    const auto period =
        std::chrono::microseconds(std::clamp((attempt - spins_ - yields) / 4, 20, 1000));
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(limit, period));
  }

  void require_thread() const override {
    if (!may_call()) throw usage_error(wrong_thread());
  }

  /// Counts the groups made on this link.
  [[nodiscard]] std::uint64_t next_adoption() {
    const std::lock_guard lock(mutex_);
    return adoptions_++;
  }

  /// Of frames for other processes, since the link was made.
  [[nodiscard]] std::uint64_t bytes_sent() {
    const std::lock_guard lock(mutex_);
    return bytes_sent_;
  }

  /// The goodbye of all processes: returns when nothing is on its way any more, or after `limit`.
  /// MPI's communicator is given back only in the first case.
  void shut_down(std::chrono::nanoseconds limit) noexcept {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    try {
      const auto until = steady_clock::now() + limit;
      for (int r = 0; r < size_; ++r) {
        if (r != rank_) waiting_.push_back({r, {}, nullptr});  // an empty message is a goodbye
      }
      ended_[static_cast<std::size_t>(rank_)] = true;
      const auto all_over = [&] {
        return sends_.empty() && receives_.empty() &&
               std::all_of(ended_.begin(), ended_.end(), [](bool e) { return e; });
      };
      for (int attempt = 0; !all_over() && steady_clock::now() < until; ++attempt) {
        send_waiting();
        const bool moved = finish_sends();
        if (receive() || moved) attempt = 0;
        else pause(attempt, std::chrono::milliseconds(1));
      }
      if (all_over()) MPI_Comm_free(&comm_);
    } catch (...) {  // MPI itself fails: nothing more can be done for this communicator
    }
    over_ = true;
    bury();
  }
  ~mpi_link() override { bury(); }

 private:
  static constexpr int tag = 0x5243;
  static constexpr int payload_tag = tag + 1;
  static constexpr std::size_t most_receives = 64;

  // What MPI writes while the link is made.
  struct handshake {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    std::vector<std::uint64_t> mine;
    std::vector<std::uint64_t> all;
  };
  struct outgoing {
    int to = 0;
    frames::frame data;
    frames::unsent_count unsent;
  };
  struct incoming {
    int from = 0;
    frames::frame data;
    frames::room body;  // instead: a payload
    MPI_Request request = MPI_REQUEST_NULL;
  };

  [[nodiscard]] static std::string wrong_thread() {
    return "MPI was initialised without MPI_THREAD_MULTIPLE: calls on its groups are for the "
           "thread "
           "that initialised it (mpi::environment asks for MPI_THREAD_MULTIPLE)";
  }

  [[nodiscard]] bool may_call() const noexcept {
    return any_thread_ || std::this_thread::get_id() == owner_;
  }

  static void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }

  // With fewer cores than processes a spinning one keeps the one it waits for from running.
  [[nodiscard]] static int spins_of_this_host(int processes) {
    for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
      if (const char* value = std::getenv(name)) processes = std::atoi(value);
    }
    return processes <= sysconf(_SC_NPROCESSORS_ONLN) ? 2000 : 0;
  }

  void complete(std::unique_ptr<handshake>& h, deadline limit, const char* call) {
    const auto begin = steady_clock::now();
    for (int attempt = 0;; ++attempt) {
      int done = 0;
      check(MPI_Test(&h->request, &done, MPI_STATUS_IGNORE), call);
      if (done != 0) return;
      if (limit.expired()) {
        (void)h.release();  // MPI writes there when the others come late: never given back
        const auto waited = steady_clock::now() - begin;
        throw timeout_error(std::string(call) + ": timed out after " + seconds_text(waited) +
                                "; not all processes of the communicator have called it",
                            {}, waited);
      }
      pause(attempt, std::chrono::milliseconds(1));
    }
  }

  // All processes speak the same frames, in the same byte order.
  void require_same_build(deadline limit) {
    const std::uint64_t mine[] = {
        std::uint64_t{RANKCAST_VERSION_MAJOR} << 48 | std::uint64_t{RANKCAST_VERSION_MINOR} << 40 |
        std::uint64_t{sizeof(frames::frame_header)} << 32 | frames::frame_header{}.magic};
    const std::vector<std::uint64_t> all = exchange(mine, limit);
    std::vector<int> others;
    for (int r = 0; r < size_; ++r) {
      if (all[static_cast<std::size_t>(r)] != mine[0]) others.push_back(r);
    }
    if (!others.empty()) {
      throw mismatch_error(
          "mpi: the processes run different builds of rankcast: " + rank_list(others) +
              " another one than rank " + std::to_string(rank_),
          "build", others);
    }
  }

  // What MPI may still read or write outlives this object, to the end of the process.
  void bury() noexcept {
    try {
      if (!sends_.empty()) (void)new std::vector<outgoing>(std::move(sends_));
      if (!receives_.empty()) (void)new std::deque<incoming>(std::move(receives_));
    } catch (...) {  // no memory
    }
    sends_.clear();
    requests_.clear();
    receives_.clear();
  }

  void send_waiting() {
    while (!waiting_.empty()) {
      outgoing s = std::move(waiting_.front());
      waiting_.pop_front();
      const bool is_payload = !s.data.shared.empty();
      const std::span<const std::byte> bytes =
          is_payload ? s.data.shared.bytes() : std::span(s.data);
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, s.to,
                      is_payload ? payload_tag : tag, comm_, &request),
            "MPI_Isend");
      sends_.push_back(std::move(s));
      requests_.push_back(request);
    }
  }

  bool finish_sends() {
    if (sends_.empty()) return false;
    int count = 0;
    finished_.resize(sends_.size());
    check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                       finished_.data(), MPI_STATUSES_IGNORE),
          "MPI_Testsome");
    if (count <= 0) return false;
    for (int i = 0; i < count; ++i) {
      outgoing& s = sends_[static_cast<std::size_t>(finished_[static_cast<std::size_t>(i)])];
      if (s.unsent != nullptr) s.unsent->fetch_sub(1, std::memory_order_relaxed);
      recycle(std::move(s.data));
      s.to = -1;
    }
    std::erase_if(sends_, [](const outgoing& s) { return s.to < 0; });
    std::erase(requests_, MPI_REQUEST_NULL);
    return true;
  }

  bool receive() {
    bool moved = false;
    while (receives_.size() < most_receives) {
      int there = 0;
      MPI_Status status;
      check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &there, &status), "MPI_Iprobe");
      if (there == 0) break;
      int bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      const auto n = static_cast<std::size_t>(bytes);
      incoming r;
      r.from = status.MPI_SOURCE;
      if (status.MPI_TAG == payload_tag) r.body = room_to_receive(n);
      else (r.data = buffer()).resize(n);
      // The probed message itself: nobody else receives here, and messages do not overtake.
      check(MPI_Irecv(r.body ? r.body.data : r.data.data(), bytes, MPI_BYTE, r.from, status.MPI_TAG,
                      comm_, &r.request),
            "MPI_Irecv");
      receives_.push_back(std::move(r));
      moved = true;
    }
    // In the order of arrival, so that the frames of a sender stay in theirs.
    while (!receives_.empty()) {
      incoming& r = receives_.front();
      int done = 0;
      check(MPI_Test(&r.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done == 0) break;
      sort(r);
      receives_.pop_front();
      moved = true;
    }
    return moved;
  }

  // A frame, the payload of the last one, or a goodbye.
  void sort(incoming& r) {
    const auto from = static_cast<std::size_t>(r.from);
    if (r.body) {
      heads_[from].shared = std::move(r.body.whole);
      deliver(std::exchange(heads_[from], {}));
    } else if (r.data.empty()) {
      ended_[from] = true;
    } else if (r.data.size() == sizeof(frames::frame_header) &&
               frames::header_of(r.data).what == frames::kind::chunk) {
      heads_[from] = std::move(r.data);
    } else {
      deliver(std::move(r.data));
    }
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  bool any_thread_ = false;
  std::thread::id owner_ = std::this_thread::get_id();
  int spins_ = 0;

  std::mutex mutex_;  // of everything below
  bool over_ = false;
  std::uint64_t adoptions_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::deque<outgoing> waiting_;  // posted by a thread that must not call MPI
  std::vector<outgoing> sends_;
  std::vector<MPI_Request> requests_;  // of sends_
  std::vector<int> finished_;
  std::deque<incoming> receives_;
  std::vector<frames::frame> heads_;  // by process: of a chunk whose payload comes next
  std::vector<bool> ended_;           // processes that said goodbye
};

}  // namespace rankcast::inline v0::mpi
