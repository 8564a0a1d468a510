/// The processes of an MPI communicator that share a host, and so memory: they form a job of their
/// own. Frames between them go through that memory, and groups within a host use all of it.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/transports/frames/near_far_link.hpp"
#include "rankcast/transports/local/join.hpp"
#include "rankcast/transports/mpi/link.hpp"

namespace rankcast::inline v0::mpi {

/// What this process knows of the hosts of a communicator.
class host {
 public:
  /// Collective over the link's processes. Ranks whose memory cannot be shared, for whatever
  /// reason, count as hosts of their own. No MPI communicator is made.
  host(mpi_link& link, const local::settings& sizes, deadline until) {
    const std::vector<std::uint64_t> secrets = find_neighbours(link, until);
    if (neighbours_.size() > 1) meet(link, secrets, sizes, until);
    agree(link, until);
  }

  /// True when this rank shares memory with another one.
  [[nodiscard]] bool shares_memory() const noexcept { return job_ != nullptr; }
  [[nodiscard]] local::job& job() const noexcept { return *job_; }
  /// The number in the job of a rank of the link, -1 for one of another host.
  [[nodiscard]] int local_rank(int link_rank) const noexcept {
    return local_ranks_[static_cast<std::size_t>(link_rank)];
  }
  /// The numbers in the job of all these ranks, empty when one of them is on another host.
  [[nodiscard]] std::vector<int> local_ranks(std::span<const int> link_ranks) const {
    std::vector<int> ranks;
    for (const int r : link_ranks) {
      if (local_rank(r) < 0) return {};
      ranks.push_back(local_rank(r));
    }
    return ranks;
  }
  /// By rank of the link: the number in the job, -1 for one of another host.
  [[nodiscard]] const std::vector<int>& local_ranks() const noexcept { return local_ranks_; }
  /// By rank of the link: the first rank of its host.
  [[nodiscard]] const std::vector<int>& places() const noexcept { return places_; }

 private:
  // The kernel that runs this process, its network (whose sockets ranks meet by) and its user.
  [[nodiscard]] static std::uint64_t place_of_this_process() {
    std::ifstream in("/proc/sys/kernel/random/boot_id");
    std::string kernel;
    in >> kernel;
    struct stat network {};
    (void)::stat("/proc/self/ns/net", &network);
    const std::uint64_t parts[] = {rankcast::detail::hash_text(kernel),
                                   static_cast<std::uint64_t>(network.st_ino), getuid()};
    return frames::frames_transport::mix(parts);
  }

  // Who says that it is in the same place; and two numbers of each rank that nobody can guess.
  [[nodiscard]] std::vector<std::uint64_t> find_neighbours(mpi_link& link, deadline until) {
    std::random_device random;
    std::uint64_t mine[3] = {place_of_this_process()};
    for (int i = 1; i < 3; ++i) mine[i] = (std::uint64_t{random()} << 32) | random();
    std::vector<std::uint64_t> all = link.exchange(mine, until);
    for (int r = 0; r < link.size(); ++r) {
      if (all[3 * static_cast<std::size_t>(r)] == mine[0]) neighbours_.push_back(r);
    }
    return all;
  }

  // At a place named by the secret of the first of them, which is used for this moment only.
  void meet(const mpi_link& link, const std::vector<std::uint64_t>& secrets,
            const local::settings& sizes, deadline until) {
    const auto first = 3 * static_cast<std::size_t>(neighbours_.front());
    const std::string name =
        "mpi " + std::to_string(secrets[first + 1]) + " " + std::to_string(secrets[first + 2]);
    const auto own = std::find(neighbours_.begin(), neighbours_.end(), link.rank());
    const int rank = static_cast<int>(own - neighbours_.begin());
    const int size = static_cast<int>(neighbours_.size());
    const local::meeting_place place(name, rank);
    const auto begin = steady_clock::now();
    try {
      job_ = rank == 0 ? local::receive_ranks(place, size, sizes, until, begin)
                       : local::go_to_rank_0(place, rank, size, until, begin);
    } catch (const error&) {  // no memory, or sockets that do not meet: frames over MPI will do
    }
  }

  // Everybody learns who is where; a host on which somebody failed is none, for all ranks.
  void agree(mpi_link& link, deadline until) {
    constexpr std::size_t numbers = 3;
    const std::uint64_t mine[numbers] = {
        job_ == nullptr ? 0 : job_->identity(),
        job_ == nullptr ? 0 : static_cast<std::uint64_t>(job_->rank()),
        job_ == nullptr ? 0 : static_cast<std::uint64_t>(job_->size())};
    const std::vector<std::uint64_t> all = link.exchange(mine, until);
    std::map<std::uint64_t, std::vector<int>> jobs;  // by identity: their ranks
    for (int r = 0; r < link.size(); ++r) {
      places_.push_back(r);
      local_ranks_.push_back(-1);
      if (const auto id = all[numbers * static_cast<std::size_t>(r)]; id != 0)
        jobs[id].push_back(r);
    }
    for (const auto& [id, ranks] : jobs) {
      if (all[numbers * static_cast<std::size_t>(ranks.front()) + 2] != ranks.size()) continue;
      for (const int r : ranks) {
        const auto at = static_cast<std::size_t>(r);
        places_[at] = ranks.front();
        if (id == mine[0]) local_ranks_[at] = static_cast<int>(all[numbers * at + 1]);
      }
    }
    if (local_rank(link.rank()) < 0) job_ = nullptr;
  }

  std::vector<int> neighbours_;
  std::shared_ptr<local::job> job_;
  std::vector<int> local_ranks_;  // by rank of the link
  std::vector<int> places_;       // likewise: the first rank there
};

/// Carries frames to ranks of this host through memory, to others through MPI. (MPI knows no sleep
/// that ends when something comes.)
class host_link final : public frames::near_far_link {
 public:
  host_link(const std::shared_ptr<mpi_link>& far, std::shared_ptr<host> h)
      : near_far_link(far, h->shares_memory() ? h->job().link() : nullptr, h->local_ranks(),
                      h->places()),
        far_(far),
        host_(std::move(h)) {}

  [[nodiscard]] std::uint64_t next_adoption() { return far_->next_adoption(); }
  void shut_down(std::chrono::nanoseconds limit) noexcept { far_->shut_down(limit); }
  [[nodiscard]] mpi::host& hosts() const noexcept { return *host_; }
  /// Of frames that this process has sent to other hosts.
  [[nodiscard]] std::uint64_t bytes_between_hosts() { return far_->bytes_sent(); }

 private:
  std::shared_ptr<mpi_link> far_;
  std::shared_ptr<host> host_;
};

/// Makes groups of the ranks of a link: within a host on its memory, else of frames.
class host_founder final : public frames::founder {
 public:
  host_founder(const std::shared_ptr<host_link>& link, const local::settings& sizes) noexcept
      : link_(link), sizes_(sizes) {}

  [[nodiscard]] std::shared_ptr<transport> found(transport& parent,
                                                 const std::vector<int>& link_ranks, int rank,
                                                 std::uint64_t id,
                                                 const std::string& name) override {
    return found(link_ranks, rank, id, name, [&] { parent.check(); });
  }

  /// Null when the ranks are not of one host. `may_wait` as for local::job::found.
  template <class MayWait>
  [[nodiscard]] std::shared_ptr<transport> found(const std::vector<int>& link_ranks, int rank,
                                                 std::uint64_t id, const std::string& name,
                                                 MayWait&& may_wait) {
    host& h = link_->hosts();
    if (!h.shares_memory()) return nullptr;
    const std::vector<int> members = h.local_ranks(link_ranks);
    if (members.empty()) return nullptr;
    return std::make_shared<local::local_transport>(
        h.job().found(id, members, rank, local::sound(sizes_, static_cast<int>(members.size())),
                      name, may_wait),
        rank);
  }

 private:
  std::shared_ptr<host_link> link_;
  local::settings sizes_;
};

}  // namespace rankcast::inline v0::mpi
