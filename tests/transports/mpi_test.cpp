// What rankcast does with communicators that a program lends, and with an MPI that others began.
//   mpiexec -n 3 transports_mpi_test
#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "rankcast/mpi.hpp"
#include "support/ranks.hpp"

namespace {

constexpr int never = 1 << 30;

// What the library asks of MPI while it adopts, and how many of its requests are let complete.
struct observation {
  MPI_Comm* duplicate = nullptr;
  std::uint64_t* gathered = nullptr;
  int complete_until = never;
  int completed = 0;
} observed;

}  // namespace

// MPI's own way to stand between a program and its calls.
extern "C" int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* to, MPI_Request* request) {
  observed.duplicate = to;
  return PMPI_Comm_idup(comm, to, request);
}
extern "C" int MPI_Iallgather(const void* from, int count, MPI_Datatype type, void* to,
                              int receive_count, MPI_Datatype receive_type, MPI_Comm comm,
                              MPI_Request* request) {
  observed.gathered = static_cast<std::uint64_t*>(to);
  return PMPI_Iallgather(from, count, type, to, receive_count, receive_type, comm, request);
}
extern "C" int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  *done = 0;
  if (observed.completed >= observed.complete_until) return MPI_SUCCESS;
  const int code = PMPI_Test(request, done, status);
  if (*done != 0 && observed.complete_until != never) ++observed.completed;
  return code;
}

namespace {

namespace mpi = rankcast::mpi;
using namespace std::chrono_literals;
using rankcast::communicator;

int world_rank() {
  int r = 0;
  mpi::check(MPI_Comm_rank(MPI_COMM_WORLD, &r), "MPI_Comm_rank");
  return r;
}
int world_size() {
  int n = 0;
  mpi::check(MPI_Comm_size(MPI_COMM_WORLD, &n), "MPI_Comm_size");
  return n;
}

// A communicator of the program's own, which it frees.
class lent {
 public:
  [[nodiscard]] static lent duplicate() {
    lent l;
    mpi::check(MPI_Comm_dup(MPI_COMM_WORLD, &l.comm_), "MPI_Comm_dup");
    return l;
  }
  // Without process 1, and in reverse order.
  [[nodiscard]] static lent backwards_without_1() {
    lent l;
    mpi::check(MPI_Comm_split(MPI_COMM_WORLD, world_rank() == 1 ? MPI_UNDEFINED : 7, -world_rank(),
                              &l.comm_),
               "MPI_Comm_split");
    return l;
  }
  lent(lent&& other) noexcept : comm_(other.comm_) { other.comm_ = MPI_COMM_NULL; }
  lent& operator=(lent&&) = delete;
  ~lent() { free(); }

  void free() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  [[nodiscard]] bool is_member() const { return comm_ != MPI_COMM_NULL; }
  [[nodiscard]] MPI_Comm get() const { return comm_; }

 private:
  lent() = default;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

mpi::group_options limited(const char* name) {
  mpi::group_options options;
  options.name = name;
  options.default_timeout = 20s;
  return options;
}

// The numbers in the world of the processes of a group, in its order.
std::vector<int> processes_of(const communicator& group) {
  std::vector<int> all(static_cast<std::size_t>(group.size()), -1);
  rankcast::all_gather(group, world_rank(), all);
  return all;
}

void moves_large_data(const communicator& group) {
  std::vector<double> values(100'000, group.rank() + 1.0);
  rankcast::all_reduce(group, values);
  const double n = group.size();
  EXPECT_EQ(values, std::vector<double>(values.size(), n * (n + 1) / 2));
}

TEST(lent_communicators, the_world) {
  const communicator world = mpi::world(limited("world"));
  EXPECT_EQ(world.rank(), world_rank());
  EXPECT_EQ(world.size(), world_size());
  std::vector<int> wanted(static_cast<std::size_t>(world_size()));
  std::iota(wanted.begin(), wanted.end(), 0);
  EXPECT_EQ(processes_of(world), wanted);
  moves_large_data(world);
}

TEST(lent_communicators, a_duplicate) {
  const lent theirs = lent::duplicate();
  const communicator group = mpi::adopt(theirs.get(), limited("duplicate"));
  EXPECT_EQ(group.rank(), world_rank());
  moves_large_data(group);
}

TEST(lent_communicators, a_split_one_in_another_order) {
  const lent theirs = lent::backwards_without_1();
  if (!theirs.is_member()) return;
  const communicator group = mpi::adopt(theirs.get(), limited("backwards"));
  std::vector<int> wanted;
  for (int r = world_size() - 1; r >= 0; --r) {
    if (r != 1) wanted.push_back(r);
  }
  EXPECT_EQ(processes_of(group), wanted);
  moves_large_data(group);
  const auto alone = group.split(group.rank());  // groups of it are rankcast's alone
  EXPECT_EQ(processes_of(alone), std::vector<int>{world_rank()});
}

// Two groups of one communicator: what is meant for one does not come to the other.
TEST(lent_communicators, adopted_twice) {
  const lent theirs = lent::duplicate();
  const communicator first = mpi::adopt(theirs.get(), limited("first"));
  const communicator second = mpi::adopt(theirs.get(), limited("second"));
  for (const std::size_t n : {std::size_t{1}, std::size_t{100'000}}) {
    const int next = (world_rank() + 1) % world_size();
    const int previous = (world_rank() + world_size() - 1) % world_size();
    const std::vector<int> to_first(n, 1);
    const std::vector<int> to_second(n, 2);
    std::vector<int> of_first(n);
    std::vector<int> of_second(n);
    // Sent in one order and received in the other, with the same tag.
    auto sending_first = rankcast::start_send(first, to_first, next);
    auto sending_second = rankcast::start_send(second, to_second, next);
    rankcast::receive(second, of_second, previous);
    rankcast::receive(first, of_first, previous);
    sending_first.wait();
    sending_second.wait();
    EXPECT_EQ(of_first, to_first);
    EXPECT_EQ(of_second, to_second);
    // Collectives, started in an order of each rank's own.
    std::vector<int> sums(n, 1);
    std::vector<int> products(n, 2);
    rankcast::work summing;
    if (world_rank() == 0) summing = rankcast::start_all_reduce(first, sums);
    auto multiplying = rankcast::start_all_reduce(second, products, rankcast::product);
    if (world_rank() != 0) summing = rankcast::start_all_reduce(first, sums);
    multiplying.wait();
    summing.wait();
    EXPECT_EQ(sums, std::vector<int>(n, world_size()));
    EXPECT_EQ(products, std::vector<int>(n, 1 << world_size()));
  }
  // The end of one is not the end of the other. It ends what is in flight, so nothing may be.
  rankcast::barrier(first, {.completion = rankcast::completion::everyone});
  if (world_rank() == 0) first.revoke("only the first");
  EXPECT_THROW(rankcast::barrier(first, {.completion = rankcast::completion::everyone}),
               rankcast::revoked_error);
  moves_large_data(second);
}

// The program goes on using what it has lent, with tags of any number.
// What one rank calls small another would look for elsewhere.
TEST(lent_communicators, of_ranks_with_settings_of_their_own) {
  const lent theirs = lent::duplicate();
  mpi::group_options options = limited("settings");
  const auto factor = static_cast<std::size_t>(world_rank() + 1);
  options.shared_sizes.eager_bytes *= factor;
  options.shared_sizes.stage_bytes *= factor;
  options.shared_sizes.ring_bytes *= factor;
  options.shared_sizes.slot_bytes /= factor;
  const communicator group = mpi::adopt(theirs.get(), options);
  for (const std::size_t n : {20U, 60U, 2'000U, 5'000U, 200'000U}) {
    for (int root = 0; root < group.size(); ++root) {
      std::vector<int> data(n, group.rank() == root ? root + 1 : 0);
      rankcast::broadcast(group, data, {.root = root});
      EXPECT_EQ(data, std::vector<int>(n, root + 1));
      rankcast::all_reduce(group, data);
      EXPECT_EQ(data, std::vector<int>(n, (root + 1) * group.size()));
    }
  }
}

TEST(lent_communicators, stay_in_use_by_the_program) {
  const lent theirs = lent::duplicate();
  const communicator group = mpi::adopt(theirs.get(), limited("shared"));
  const int next = (world_rank() + 1) % world_size();
  int got = -1;
  const int mine = world_rank();
  std::array<MPI_Request, 2> requests{};
  mpi::check(MPI_Irecv(&got, sizeof got, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, theirs.get(),
                       requests.data()),
             "MPI_Irecv");
  moves_large_data(group);  // nothing of it comes into the wildcard
  mpi::check(MPI_Isend(&mine, sizeof mine, MPI_BYTE, next, 0x5243, theirs.get(), &requests[1]),
             "MPI_Isend");
  moves_large_data(group);
  mpi::check(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  EXPECT_EQ(got, (world_rank() + world_size() - 1) % world_size());
}

int errors_seen = 0;
// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is MPI's
void count_error(MPI_Comm*, int*, ...) {
  ++errors_seen;
}

TEST(lent_communicators, keep_their_error_handler) {
  const lent theirs = lent::duplicate();
  MPI_Errhandler own = MPI_ERRHANDLER_NULL;
  mpi::check(MPI_Comm_create_errhandler(count_error, &own), "MPI_Comm_create_errhandler");
  mpi::check(MPI_Comm_set_errhandler(theirs.get(), own), "MPI_Comm_set_errhandler");
  const communicator group = mpi::adopt(theirs.get(), limited("handled"));
  moves_large_data(group);
  MPI_Errhandler now = MPI_ERRHANDLER_NULL;
  mpi::check(MPI_Comm_get_errhandler(theirs.get(), &now), "MPI_Comm_get_errhandler");
  EXPECT_TRUE(now == own);
  mpi::check(MPI_Errhandler_free(&now), "MPI_Errhandler_free");
  errors_seen = 0;
  const int x = 0;
  EXPECT_NE(MPI_Send(&x, sizeof x, MPI_BYTE, world_size() + 5, 0, theirs.get()), MPI_SUCCESS);
  EXPECT_EQ(errors_seen, 1);
  mpi::check(MPI_Errhandler_free(&own), "MPI_Errhandler_free");
  // That of the world, too, which this program has not touched.
  mpi::check(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &now), "MPI_Comm_get_errhandler");
  EXPECT_TRUE(now == MPI_ERRORS_ARE_FATAL);
  mpi::check(MPI_Errhandler_free(&now), "MPI_Errhandler_free");
}

// MPI may give the next communicator the number of the one that was freed.
TEST(lent_communicators, may_be_freed_after_they_were_adopted) {
  std::vector<communicator> groups;
  for (int i = 0; i < 5; ++i) {
    lent theirs = lent::duplicate();
    groups.push_back(mpi::adopt(theirs.get(), limited("freed")));
    theirs.free();
    EXPECT_EQ(groups.back().size(), world_size());
  }
  for (const communicator& group : groups) moves_large_data(group);
  const auto half = groups.front().split(world_rank() == 0 ? 0 : 1);
  moves_large_data(half);
  const lent other = lent::backwards_without_1();  // another size, perhaps with an old number
  if (!other.is_member()) return;
  const communicator group = mpi::adopt(other.get(), limited("after"));
  EXPECT_EQ(group.size(), world_size() - 1);
  moves_large_data(group);
}

// Whoever adopts alone is told, instead of waiting for ever.
TEST(lent_communicators, adopted_by_some_processes_only) {
  const lent theirs = lent::duplicate();
  if (world_rank() == 0) {
    mpi::group_options options;
    options.default_timeout = 300ms;
    const auto e = support::error_of<rankcast::timeout_error>(
        [&] { (void)mpi::adopt(theirs.get(), options); });
    if (e) {
      EXPECT_CONTAINS(e->what(), "not all processes");
    }
  } else {
    // Completes what the other has begun, or times out as well.
    std::this_thread::sleep_for(600ms);
    try {
      mpi::group_options options;
      options.default_timeout = 300ms;
      (void)mpi::adopt(theirs.get(), options);
    } catch (const rankcast::timeout_error&) {
    }
  }
  moves_large_data(mpi::world(limited("world")));
  // The duplicate that some have given up may be complete on others only: Open MPI 4.1 does not
  // survive the next one then. Groups within a host do not drive MPI, so that is done here.
  const auto until = rankcast::steady_clock::now() + 300ms;
  while (rankcast::steady_clock::now() < until) {
    int there = 0;
    mpi::check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE),
               "MPI_Iprobe");
  }
}

// MPI writes to where it was told to when the last process comes, be this one still waiting or not.
TEST(lent_communicators, leave_memory_to_mpi_when_adopting_times_out) {
  const lent theirs = lent::duplicate();
  mpi::group_options options;
  options.default_timeout = 200ms;
  for (const int completed : {0, 1}) {  // of its calls: none; the duplicate, and not what follows
    observed = {};
    observed.complete_until = completed;
    EXPECT_THROW((void)mpi::adopt(theirs.get(), options), rankcast::timeout_error);
    observed.complete_until = never;
    ASSERT_NE(observed.duplicate, nullptr);
    if (completed == 0) *observed.duplicate = MPI_COMM_NULL;  // for AddressSanitizer
    ASSERT_EQ(observed.gathered != nullptr, completed == 1);
    if (observed.gathered != nullptr) *observed.gathered = 7;
  }
  moves_large_data(mpi::world(limited("world")));
}

TEST(environment, a_second_one_does_not_own) {
  {
    const mpi::environment second;
    EXPECT_FALSE(second.owner());
    int level = 0;
    mpi::check(MPI_Query_thread(&level), "MPI_Query_thread");
    EXPECT_EQ(second.thread_level(), level);
  }
  int ended = 0;
  mpi::check(MPI_Finalized(&ended), "MPI_Finalized");
  EXPECT_EQ(ended, 0);
  moves_large_data(mpi::world(limited("world")));
}

TEST(environment, knows_how_many_processes_were_launched) {
  EXPECT_EQ(mpi::launched_processes(), world_size());
}

TEST(environment, errors_of_mpi_are_told_in_its_words) {
  const auto e = support::error_of<rankcast::transport_error>(
      [] { mpi::check(MPI_ERR_TRUNCATE, "MPI_Something"); });
  if (e) {
    EXPECT_EQ(e->code(), MPI_ERR_TRUNCATE);
    EXPECT_CONTAINS(e->what(), "MPI_Something: ");
    EXPECT_GT(std::string(e->what()).size(), std::string("MPI_Something: ").size());
  }
}

// C62: a Fortran type constant stood for C's int. rankcast needs two types, and their sizes agree.
TEST(cases, C62_sizes_of_the_types_that_travel) {
  int bytes = 0;
  mpi::check(MPI_Type_size(MPI_BYTE, &bytes), "MPI_Type_size");
  EXPECT_EQ(bytes, 1);
  mpi::check(MPI_Type_size(MPI_UINT64_T, &bytes), "MPI_Type_size");
  EXPECT_EQ(static_cast<std::size_t>(bytes), sizeof(std::uint64_t));
}

// Whatever MPI has types for, every dtype arrives: its elements are bytes on their way.
TEST(cases, C62_every_dtype_travels) {
  const communicator world = mpi::world(limited("world"));
  for (int t = 0; t < rankcast::dtype_count; ++t) {
    const auto type = static_cast<rankcast::dtype>(t);
    for (const std::int64_t n : {std::int64_t{3}, std::int64_t{50'000}}) {
      rankcast::tensor values(type, {n});
      std::memset(values.view().address(), world.rank() == 1 ? 1 : 0, values.bytes());
      rankcast::broadcast(world, values, {.root = 1});
      const std::byte* at = values.view().address();
      EXPECT_EQ(std::count(at, at + values.bytes(), std::byte{1}),
                static_cast<std::ptrdiff_t>(values.bytes()))
          << rankcast::name(type);
    }
  }
}

TEST(lent, what_is_no_group_of_processes_is_refused) {
  auto e = support::error_of<rankcast::usage_error>([] { (void)mpi::adopt(MPI_COMM_NULL); });
  if (e) {
    EXPECT_CONTAINS(e->what(), "MPI_COMM_NULL");
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : 1, 0, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 5, &between);
  e = support::error_of<rankcast::usage_error>([&] { (void)mpi::adopt(between); });
  if (e) {
    EXPECT_CONTAINS(e->what(), "intercommunicator");
  }
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
}

}  // namespace
