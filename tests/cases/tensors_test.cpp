// Cases from public reports about tensors. Each test says what was reported; the names are those of
// the list in docs.
#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using rankcast::completion;
using rankcast::dtype;
using rankcast::tensor;
using support::error_of;
using support::run_ranks;

const rankcast::call_options everyone{.completion = completion::everyone};

// Calls f(group, world rank) on worlds of 1 to 4 ranks, and on a group whose numbers differ from
// the world's: {3, 1, 2} of 4.
template <class F>
void on_groups(F&& f, int smallest = 1) {
  for (int ranks = smallest; ranks <= 4; ++ranks) {
    run_ranks(ranks, [&](communicator& world) { f(world, world.rank()); });
  }
  run_ranks(4, [&](communicator& world) {
    const auto group = world.subgroup(std::vector<int>{3, 1, 2}, {.name = "odd"});
    if (group.is_member()) f(group, world.rank());
  });
}

void expect_empty(const tensor& t, std::initializer_list<std::int64_t> shape) {
  EXPECT_EQ(t.dtype(), dtype::float32);
  EXPECT_EQ(std::vector<std::int64_t>(t.shape().begin(), t.shape().end()),
            std::vector<std::int64_t>(shape));
}

// A zero dimension led to a division by the tensor's size.
TEST(cases, C10_zero_dimension_in_every_call) {
  on_groups([](const communicator& c, int) {
    const std::int64_t n = c.size();
    for (int root = 0; root < c.size(); ++root) {
      tensor one(dtype::float32, {1, 0, 2});
      tensor all(dtype::float32, {n, 0, 2});
      rankcast::broadcast(c, one, {.root = root});
      rankcast::broadcast_tensor(c, one, {.root = root});
      rankcast::scatter(c, all, one, {.root = root});
      rankcast::gather(c, one, all, {.root = root});
      rankcast::all_gather(c, one, all);
      rankcast::reduce(c, one, one, rankcast::sum, {.root = root});
      rankcast::all_reduce(c, one);
      rankcast::reduce_scatter(c, all, one);
      rankcast::all_to_all(c, all, all);
      expect_empty(one, {1, 0, 2});
      expect_empty(all, {n, 0, 2});
    }
  });
}

TEST(cases, C10_one_rank_without_elements_in_the_uneven_forms) {
  on_groups([](const communicator& c, int) {
    for (int empty = 0; empty < c.size(); ++empty) {
      std::vector<std::int64_t> counts;
      std::vector<float> wanted;
      for (int r = 0; r < c.size(); ++r) {
        counts.push_back(r == empty ? 0 : r + 1);
        wanted.insert(wanted.end(), static_cast<std::size_t>(counts.back()), static_cast<float>(r));
      }
      const auto mine = static_cast<std::size_t>(counts[static_cast<std::size_t>(c.rank())]);
      const std::vector<float> send(mine, static_cast<float>(c.rank()));
      std::vector<float> all(wanted.size(), -1.0f);
      rankcast::all_gather(c, send, all, {.counts = counts});
      EXPECT_EQ(all, wanted);
      std::vector<float> share(mine, -1.0f);
      rankcast::scatter(c, all, share, {.root = empty, .counts = counts});
      EXPECT_EQ(share, send);
      std::fill(all.begin(), all.end(), -1.0f);
      rankcast::gather(c, send, all, {.root = empty, .counts = counts});
      EXPECT_EQ(all, c.rank() == empty ? wanted : std::vector<float>(wanted.size(), -1.0f));
    }
  });
}

TEST(cases, C10_an_empty_call_still_waits_for_everyone) {
  std::atomic<int> told{0};
  run_ranks(4, [&](communicator& world) {
    const tensor one(dtype::float32, {1, 0, 2});
    tensor all(dtype::float32, {4, 0, 2});
    if (world.rank() == 2) {
      while (told.load() < 3) std::this_thread::sleep_for(1ms);
      return;
    }
    const auto e = error_of<rankcast::timeout_error>([&] {
      rankcast::all_gather(world, one, all, {.timeout = 100ms, .completion = completion::everyone});
    });
    if (e) {
      EXPECT_EQ(e->missing(), std::vector<int>{2});
    }
    told.fetch_add(1);
  });
}

// Strided inputs gave wrong results without a word. One rule here: any strides in any call.
struct matrix {
  explicit matrix(int r) : cells{10 * r + 1, 10 * r + 2, 10 * r + 3, 10 * r + 4} {}
  [[nodiscard]] rankcast::tensor_view column(std::int64_t j) {
    return rankcast::tensor_view(std::span<int>(cells), {2, 2}).slice(1, j, 1);
  }
  std::array<int, 4> cells;
};

TEST(cases, C11_a_column_in_every_call) {
  on_groups([](const communicator& c, int) {
    const int n = c.size();
    const int me = c.rank();
    const int second = 10 * me + 2;
    const int fourth = 10 * me + 4;
    for (int root = 0; root < n; ++root) {
      matrix m(me);
      rankcast::broadcast(c, m.column(0), {.root = root});
      EXPECT_EQ(m.cells, (std::array<int, 4>{10 * root + 1, second, 10 * root + 3, fourth}));

      m = matrix(me);
      rankcast::reduce(c, m.column(0), m.column(1), rankcast::maximum, {.root = root});
      EXPECT_EQ(m.cells,
                me == root ? (std::array<int, 4>{10 * me + 1, 10 * n - 9, 10 * me + 3, 10 * n - 7})
                           : matrix(me).cells);

      // Gather columns into a column, and scatter them back into another.
      std::vector<int> field(static_cast<std::size_t>(2 * n) * 3, -1);
      const auto middle = rankcast::tensor_view(std::span<int>(field), {2 * n, 3}).slice(1, 1, 1);
      m = matrix(me);
      rankcast::gather(c, m.column(0), middle, {.root = root});
      for (int r = 0; r < 2 * n; ++r) {
        const auto at = static_cast<std::size_t>(3 * r);
        EXPECT_EQ(field[at], -1);
        EXPECT_EQ(field[at + 1], me == root ? 10 * (r / 2) + 1 + 2 * (r % 2) : -1);
        EXPECT_EQ(field[at + 2], -1);
      }
      rankcast::scatter(c, middle, m.column(1), {.root = root});
      EXPECT_EQ(m.cells, (std::array<int, 4>{10 * me + 1, 10 * me + 1, 10 * me + 3, 10 * me + 3}));
    }

    matrix m(me);
    rankcast::all_reduce(c, m.column(1), rankcast::maximum);
    EXPECT_EQ(m.cells, (std::array<int, 4>{10 * me + 1, 10 * n - 8, 10 * me + 3, 10 * n - 6}));
    std::vector<int> all(static_cast<std::size_t>(2 * n));
    m = matrix(me);
    rankcast::all_gather(c, m.column(0), all);
    for (int i = 0; i < 2 * n; ++i) {
      EXPECT_EQ(all[static_cast<std::size_t>(i)], 10 * (i / 2) + 1 + 2 * (i % 2));
    }
    rankcast::reduce_scatter(c, all, m.column(1));
    EXPECT_EQ(m.cells,
              (std::array<int, 4>{10 * me + 1, n * (10 * me + 1), 10 * me + 3, n * (10 * me + 3)}));
    m = matrix(me);
    const int peer = (me + 1) % n;
    auto sent = rankcast::start_send(c, m.column(0), peer);
    rankcast::receive(c, m.column(1), (me + n - 1) % n);
    sent.wait();
    const int from = (me + n - 1) % n;
    EXPECT_EQ(m.cells,
              (std::array<int, 4>{10 * me + 1, 10 * from + 1, 10 * me + 3, 10 * from + 3}));
  });
}

// all_reduce of differing shapes hung when small and gave wrong tails when large.
TEST(cases, C13_differing_element_counts) {
  const auto differ = [](std::int64_t rows, std::int64_t columns) {
    on_groups(
        [&](const communicator& c, int) {
          for (const auto mode : {completion::local, completion::everyone}) {
            const auto group = c.duplicate({.name = "differ"});
            const std::int64_t mine = group.rank() == 0 ? rows / 2 : rows;
            tensor t(dtype::float32, {mine, columns});
            for (float& v : t.values<float>()) v = 1;
            const auto begin = rankcast::steady_clock::now();
            const auto e = error_of<rankcast::mismatch_error>(
                [&] { rankcast::all_reduce(group, t, rankcast::sum, {.completion = mode}); });
            EXPECT_LT(support::seconds_since(begin), 5);
            if (e) {
              const auto shape = [&](std::int64_t r) {
                return "(" + std::to_string(r) + "," + std::to_string(columns) + ")";
              };
              EXPECT_EQ(e->argument(), "elements");
              EXPECT_CONTAINS(e->what(), "all_reduce");
              EXPECT_CONTAINS(e->what(), "float32 " + shape(rows / 2));
              EXPECT_CONTAINS(e->what(), "float32 " + shape(rows));
              if (group.size() > 2) {
                EXPECT_EQ(e->odd_ranks(), std::vector<int>{0});
                EXPECT_CONTAINS(e->what(), "odd: rank 0");
              } else {  // nobody is odd among two
                EXPECT_EQ(e->odd_ranks(), (std::vector<int>{0, 1}));
              }
            }
            EXPECT_EQ((t.at<float>(0, 0)), 1.0f);  // nothing was written
            (void)error_of<rankcast::revoked_error>([&] { rankcast::barrier(group); });
          }
          rankcast::barrier(c);  // the other groups do not mind
        },
        2);
  };
  differ(2, 8);
  differ(200, 2560);
}

// The rule for another shape of as many elements: it is the same call.
TEST(cases, C13_same_count_of_another_shape) {
  on_groups([](const communicator& c, int) {
    tensor t(dtype::float32, c.rank() == 0 ? std::initializer_list<std::int64_t>{2, 6}
                                           : std::initializer_list<std::int64_t>{3, 4});
    for (float& v : t.values<float>()) v = 2;
    rankcast::all_reduce(c, t);
    for (const float v : t.values<float>()) EXPECT_EQ(v, 2.0f * static_cast<float>(c.size()));
  });
}

// Ranks that disagree on the dtype had their bytes reinterpreted.
TEST(cases, C14_differing_dtypes_of_equal_bytes) {
  struct given {
    dtype type;
    std::int64_t elements;
  };
  const std::pair<given, given> pairs[] = {{{dtype::float32, 4}, {dtype::bfloat16, 8}},
                                           {{dtype::int32, 4}, {dtype::float32, 4}},
                                           {{dtype::uint8, 4}, {dtype::boolean, 4}}};
  for (const auto& [first, other] : pairs) {
    on_groups(
        [&, &mine_first = first, &mine_other = other](const communicator& c, int) {
          for (const bool reduced : {true, false}) {
            const auto group = c.duplicate();
            const given& mine = group.rank() == 0 ? mine_first : mine_other;
            tensor t = support::tensor_of(
                mine.type, std::vector<std::int64_t>(support::oracle::index(mine.elements), 1));
            const auto before = t.clone();
            const auto e = error_of<rankcast::mismatch_error>([&] {
              if (reduced) rankcast::all_reduce(group, t, rankcast::maximum, everyone);
              else {
                rankcast::broadcast(group, t,
                                    {.root = group.size() - 1, .completion = completion::everyone});
              }
            });
            if (e) {
              for (const given& g : {mine_first, mine_other}) {
                EXPECT_CONTAINS(e->what(), std::string(rankcast::name(g.type)) + " (" +
                                               std::to_string(g.elements) + " elements)");
              }
              EXPECT_EQ(e->odd_ranks().front(), 0);
            }
            EXPECT_EQ(std::memcmp(t.view().address(), before.view().address(), t.bytes()), 0);
          }
        },
        2);
  }
}

// Ranks outside of a group got their own value back from a broadcast on it.
TEST(cases, C16_calls_by_non_members) {
  run_ranks(4, [](communicator& world) {
    const auto group = world.subgroup(std::vector<int>{2, 3});
    int x = world.rank();
    if (world.rank() < 2) {
      const auto begin = rankcast::steady_clock::now();
      const auto e = error_of<rankcast::usage_error>([&] { rankcast::broadcast(group, x); });
      EXPECT_LT(support::seconds_since(begin), 1);
      EXPECT_EQ(x, world.rank());
      if (e) {
        EXPECT_CONTAINS(e->what(), "broadcast");
        EXPECT_CONTAINS(e->what(),
                        "world rank " + std::to_string(world.rank()) + " is not a member");
        EXPECT_CONTAINS(e->what(), "[2,3]");
      }
    } else {
      rankcast::broadcast(group, x);
      EXPECT_EQ(x, 2);
    }
    rankcast::barrier(world);
  });
}

TEST(cases, C16_a_member_alone_times_out) {
  run_ranks(4, [](communicator& world) {
    const auto group = world.subgroup(std::vector<int>{2, 3});
    int x = 0;
    if (world.rank() == 2) {
      const auto e = error_of<rankcast::timeout_error>([&] {
        rankcast::broadcast(group, x, {.timeout = 100ms, .completion = completion::everyone});
      });
      if (e) {  // ranks are the group's: its rank 1 is rank 3 of the world
        ASSERT_EQ(e->missing(), std::vector<int>{1});
        EXPECT_EQ(group.members()[1], 3);
        EXPECT_CONTAINS(e->what(), "[2,3]");
        EXPECT_CONTAINS(e->what(), "rank 1 has not arrived");
      }
    }
    rankcast::barrier(world);
  });
}

// The root was read as a world number on some paths and as a group number on others.
TEST(cases, C17_roots_are_numbered_in_the_group) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{1000}}) {
    run_ranks(4, [&](communicator& world) {
      const auto group = world.subgroup(std::vector<int>{2, 3});
      if (group.is_member()) {
        std::vector<int> x(n, 10 * world.rank());
        rankcast::broadcast(group, x, {.root = 0});
        EXPECT_EQ(x, std::vector<int>(n, 20));
        std::vector<int> y(n, 10 * world.rank());
        rankcast::broadcast(group, y, {.root = 1});
        EXPECT_EQ(y, std::vector<int>(n, 30));
        for (const int root : {2, -1}) {
          const auto e = error_of<rankcast::usage_error>([&] {
            rankcast::broadcast(group, x, {.root = root, .completion = completion::everyone});
          });
          if (e) {
            EXPECT_CONTAINS(e->what(), "broadcast");
            EXPECT_CONTAINS(e->what(),
                            "root " + std::to_string(root) + " is outside of a group of 2");
            EXPECT_CONTAINS(e->what(), "[2,3]");
          }
        }
        rankcast::broadcast(group, x, {.root = 0});  // the group goes on
        EXPECT_EQ(x, std::vector<int>(n, 20));
      }
      const auto alone = world.split(world.rank());
      std::vector<int> z(n, 5);
      const auto e =
          error_of<rankcast::usage_error>([&] { rankcast::broadcast(alone, z, {.root = 1}); });
      if (e) {
        EXPECT_CONTAINS(e->what(), "root 1 is outside of a group of 1");
      }
      // The world's numbers, where they are the group's own.
      std::vector<int> w(n, 10 * world.rank());
      rankcast::broadcast(world, w, {.root = 2});
      EXPECT_EQ(w, std::vector<int>(n, 20));
    });
  }
}

}  // namespace
