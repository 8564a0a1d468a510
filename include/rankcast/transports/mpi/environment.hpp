/// Begin and end of MPI, and the links of this process, which have to end before MPI does.
#pragma once

#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "rankcast/transports/mpi/host.hpp"

namespace rankcast::inline v0::mpi {

/// Processes that a launcher (mpirun, mpiexec) says it started; 0 when there was none. Needs no MPI
/// to be initialised.
[[nodiscard]] inline int launched_processes() noexcept {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

namespace detail {

// All links of this process. They live until MPI ends: a communicator can only be given back by all
// its processes together.
struct link_list {
  std::mutex mutex;
  std::vector<std::shared_ptr<host_link>> links;
  bool ends_with_mpi = false;
};
RANKCAST_API inline link_list& links() {
  // Never destroyed: MPI may end after the static objects of this program.
  static link_list& list = *new link_list;
  return list;
}

inline void shut_links_down() noexcept {
  using namespace std::chrono_literals;
  const std::lock_guard lock(links().mutex);
  for (const auto& l : links().links) l->shut_down(2s);
  links().links.clear();
}

// MPI_Finalize deletes the attributes of MPI_COMM_SELF before anything else.
inline int on_finalize(MPI_Comm, int, void*, void*) {
  shut_links_down();
  return MPI_SUCCESS;
}

// The link of a communicator is kept with it, so that it is made once.
inline int on_communicator_freed(MPI_Comm, int, void* kept, void*) {
  delete static_cast<std::shared_ptr<host_link>*>(kept);
  return MPI_SUCCESS;
}

[[nodiscard]] inline std::shared_ptr<host_link> link_of(MPI_Comm lent, const local::settings& sizes,
                                                        deadline limit) {
  static const int key = [] {
    int k = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_communicator_freed, &k, nullptr),
          "MPI_Comm_create_keyval");
    return k;
  }();
  void* kept = nullptr;
  int there = 0;
  check(MPI_Comm_get_attr(lent, key, &kept, &there), "MPI_Comm_get_attr");
  if (there != 0) return *static_cast<std::shared_ptr<host_link>*>(kept);
  const auto far = std::make_shared<mpi_link>(lent, limit);
  auto hosts = std::make_shared<host>(*far, sizes, limit);
  auto link = std::make_shared<host_link>(far, std::move(hosts));
  check(MPI_Comm_set_attr(lent, key, new std::shared_ptr<host_link>(link)), "MPI_Comm_set_attr");
  const std::lock_guard lock(links().mutex);
  links().links.push_back(link);
  if (!links().ends_with_mpi) {
    int at_end = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &at_end, nullptr),
          "MPI_Comm_create_keyval");
    check(MPI_Comm_set_attr(MPI_COMM_SELF, at_end, nullptr), "MPI_Comm_set_attr");
    links().ends_with_mpi = true;
  }
  return link;
}

}  // namespace detail

/// MPI for as long as it lives: initialises it, with MPI_THREAD_MULTIPLE, unless the program has
/// done so, and finalises only what it initialised. Make it in main, before the first group, and
/// let it outlive them. What is on its way when it ends is waited for, 2 s at most.
class environment {
 public:
  /// Throws transport_error when MPI cannot be initialised, usage_error when it has ended already.
  environment() { begin(nullptr, nullptr); }
  environment(int& argc, char**& argv) { begin(&argc, &argv); }
  ~environment() {
    if (owner_) MPI_Finalize();  // shuts the links down
  }
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;

  /// True when this object initialised MPI and will finalise it.
  [[nodiscard]] bool owner() const noexcept { return owner_; }
  /// The level MPI gives; below MPI_THREAD_MULTIPLE all calls on groups of MPI processes stay on
  /// the thread that initialised it.
  [[nodiscard]] int thread_level() const noexcept { return level_; }

 private:
  void begin(int* argc, char*** argv) {
    int ended = 0;
    int begun = 0;
    check(MPI_Finalized(&ended), "MPI_Finalized");
    if (ended != 0) throw usage_error("mpi::environment: MPI has been finalised in this process");
    check(MPI_Initialized(&begun), "MPI_Initialized");
    if (begun != 0) {
      check(MPI_Query_thread(&level_), "MPI_Query_thread");
      return;
    }
    check(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level_), "MPI_Init_thread");
    owner_ = true;
  }

  bool owner_ = false;
  int level_ = MPI_THREAD_SINGLE;
};

}  // namespace rankcast::inline v0::mpi
