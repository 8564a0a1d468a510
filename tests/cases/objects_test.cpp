// Cases from public reports about objects, and about ranks that have nothing to give.
#include <list>
#include <numeric>

#include "rankcast/object.hpp"
#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using rankcast::completion;
using rankcast::expect;
using support::error_of;
using support::run_ranks;
using support::oracle::index;
using texts = std::vector<std::string>;

// Calls f on a world of three, and on three of a world of four whose numbers differ from it.
template <class F>
void on_three(F&& f, const support::world_options& options = {}) {
  run_ranks(
      3, [&](communicator& world) { f(world); }, options);
  run_ranks(
      4,
      [&](communicator& world) {
        const auto group = world.subgroup(std::vector<int>{3, 1, 2}, {.name = "odd"});
        if (group.is_member()) f(group);
      },
      options);
}

void goes_on(const communicator& c) {
  int sum = c.rank() + 1;
  rankcast::all_reduce(c, sum, rankcast::sum, {.completion = completion::everyone});
  EXPECT_EQ(sum, c.size() * (c.size() + 1) / 2);
  const auto all = rankcast::all_gather_object(c, std::to_string(c.rank()));
  ASSERT_EQ(all.size(), index(c.size()));
  for (int r = 0; r < c.size(); ++r) EXPECT_EQ(all[index(r)], std::to_string(r));
}

// --- C04: beyond one chunk; large_objects_test.cpp has the 2 GiB
// ----------------------------------

std::vector<std::uint8_t> bytes_mod_251(std::size_t n) {
  std::vector<std::uint8_t> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::uint8_t>(i % 251);
  return bytes;
}

TEST(cases, C04_byte_vectors_of_many_chunks) {
  for (const std::size_t chunk : {std::size_t{64}, std::size_t{4096}}) {
    support::world_options sizes;
    sizes.eager_bytes = 32;
    sizes.chunk_bytes = chunk;
    run_ranks(
        2,
        [&](communicator& world) {
          for (const std::size_t n :
               {chunk - 1, chunk, chunk + 1, 3 * chunk + 5, rankcast::out_of_band_bytes - 1,
                rankcast::out_of_band_bytes, 17 * rankcast::out_of_band_bytes / 16 + 5}) {
            std::vector<std::uint8_t> bytes(index(world.rank()), 7);
            if (world.rank() == 1) bytes = bytes_mod_251(n);
            rankcast::broadcast_object(world, bytes, {.root = 1});
            EXPECT_EQ(bytes, bytes_mod_251(n));
            // The same bytes again, whose place is there already.
            bytes.assign(n, 7);
            if (world.rank() == 1) bytes = bytes_mod_251(n);
            rankcast::broadcast_object(world, bytes, {.root = 1});
            EXPECT_EQ(bytes, bytes_mod_251(n));
          }
        },
        sizes);
  }
}

// --- C05: element 0 of an empty vector was read
// -----------------------------------------------------

std::vector<int> share_of(int rank) {
  const std::vector<std::vector<int>> shares{{1, 2, 3}, {}, {4, 5}};
  return shares[index(rank)];
}
const std::vector<int> all_values{1, 2, 3, 4, 5};
const std::vector<std::int64_t> counts{3, 0, 2};

TEST(cases, C05_all_gather_with_an_empty_share) {
  on_three([](const communicator& c) {
    const std::vector<int> mine = share_of(c.rank());
    std::vector<int> all(5, -1);
    rankcast::all_gather(c, mine, all, {.counts = counts});
    EXPECT_EQ(all, all_values);
    const auto objects = rankcast::all_gather_object(c, mine);  // the boundaries are kept
    ASSERT_EQ(objects.size(), 3u);
    for (int r = 0; r < 3; ++r) EXPECT_EQ(objects[index(r)], share_of(r));
  });
}

TEST(cases, C05_the_root_is_the_empty_one) {
  on_three([](const communicator& c) {
    const std::vector<int> mine = share_of(c.rank());
    std::vector<int> all(c.rank() == 1 ? 5 : 0, -1);
    rankcast::gather(c, mine, all, {.root = 1, .counts = counts});
    if (c.rank() == 1) {
      EXPECT_EQ(all, all_values);
    }
    std::vector<int> back(mine.size(), -1);
    rankcast::scatter(c, all, back, {.root = 1, .counts = counts});
    EXPECT_EQ(back, mine);

    const auto objects = rankcast::gather_object(c, mine, {.root = 1});
    ASSERT_EQ(objects.size(), c.rank() == 1 ? 3u : 0u);
    for (std::size_t r = 0; r < objects.size(); ++r)
      EXPECT_EQ(objects[r], share_of(static_cast<int>(r)));
    EXPECT_EQ(rankcast::scatter_object(c, objects, expect<std::vector<int>>, {.root = 1}), mine);
    std::vector<int> from_the_empty_one = mine;
    rankcast::broadcast_object(c, from_the_empty_one, {.root = 1});
    EXPECT_TRUE(from_the_empty_one.empty());
  });
}

TEST(cases, C05_a_group_of_one_with_nothing) {
  run_ranks(2, [](communicator& world) {
    const auto alone = world.split(world.rank());
    const std::vector<std::int64_t> none{0};
    const std::vector<int> mine;
    std::vector<int> all;
    rankcast::all_gather(alone, mine, all);
    rankcast::all_gather(alone, mine, all, {.counts = none});
    rankcast::gather(alone, mine, all, {.counts = none});
    rankcast::scatter(alone, mine, all, {.counts = none});
    EXPECT_TRUE(all.empty());
    const std::vector<std::vector<int>> one_empty(1);
    EXPECT_EQ(rankcast::all_gather_object(alone, mine), one_empty);
    EXPECT_EQ(rankcast::gather_object(alone, mine), one_empty);
    EXPECT_TRUE(rankcast::scatter_object(alone, one_empty, expect<std::vector<int>>).empty());
  });
}

// --- C07: ranks that give nothing to scatter
// --------------------------------------------------------

const texts three{"a", "", "ccc"};

TEST(cases, C07_only_the_root_gives_something) {
  on_three([](const communicator& c) {
    const rankcast::rooted_options options{.root = 1};
    const std::string mine = three[index(c.rank())];
    // The others pass nothing, an empty range, one that does not fit, one of another kind.
    if (c.rank() == 1) {
      const std::list<std::string> list(three.begin(), three.end());
      EXPECT_EQ(rankcast::scatter_object(c, three, expect<std::string>, options), mine);
      EXPECT_EQ(rankcast::scatter_object(c, three, expect<std::string>, options), mine);
      EXPECT_EQ(rankcast::scatter_object(c, list, expect<std::string>, options), mine);
      EXPECT_EQ(rankcast::scatter_object(c, list, expect<std::string>, options), mine);
    } else {
      const std::array<std::string, 4> ignored{"not", "to", "be", "read"};
      EXPECT_EQ(rankcast::scatter_object(c, rankcast::nothing, expect<std::string>, options), mine);
      EXPECT_EQ(rankcast::scatter_object(c, texts(), expect<std::string>, options), mine);
      EXPECT_EQ(rankcast::scatter_object(c, texts(7, "x"), expect<std::string>, options), mine);
      EXPECT_EQ(rankcast::scatter_object(c, ignored, expect<std::string>, options), mine);
    }
  });
}

void scatter_a_wrong_number(const communicator& c, std::size_t given, completion when) {
  std::string mine = "as before";
  const rankcast::rooted_options options{.root = 1, .completion = when};
  const std::string part = "gave " + std::to_string(given) + " objects for a group of 3";
  const auto begin = rankcast::steady_clock::now();
  std::string said;
  if (c.rank() == 1) {
    const auto e = error_of<rankcast::usage_error>(
        [&] { rankcast::scatter_object(c, texts(given, "x"), mine, options); });
    if (e) said = e->what();
  } else {
    const auto e = error_of<rankcast::remote_error>([&] {
      if (c.rank() == 0) rankcast::scatter_object(c, rankcast::nothing, mine, options);
      else rankcast::scatter_object(c, texts(3, "y"), mine, options);
    });
    if (e) {
      EXPECT_EQ(e->rank(), 1);
      said = e->what();
    }
  }
  EXPECT_CONTAINS(said, part);
  EXPECT_CONTAINS(said, "rank 1");
  EXPECT_CONTAINS(said, "scatter");
  EXPECT_EQ(mine, "as before");
  EXPECT_LT(support::seconds_since(begin), 5);
}

TEST(cases, C07_a_wrong_number_of_objects) {
  on_three([](const communicator& c) {
    for (const completion when : {completion::local, completion::everyone}) {
      for (const std::size_t given : {2u, 4u, 0u}) {
        scatter_a_wrong_number(c, given, when);
        EXPECT_EQ(rankcast::scatter_object(c, three, expect<std::string>, {.root = 1}),
                  three[index(c.rank())]);
        goes_on(c);
      }
    }
  });
}

// --- C08: an encoder or a decoder that throws
// -------------------------------------------------------

// What the encoders and decoders of this rank do.
enum class fault { none, encode, decode };
thread_local fault fault_here = fault::none;

// Throws when almost all of it has been written, or read.
struct fragile {
  std::string text;
  std::vector<std::uint16_t> bulk;

  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& text& bulk;
    if (Archive::is_saving::value && fault_here == fault::encode)
      throw std::domain_error("no encoder for field f");
    if (!Archive::is_saving::value && fault_here == fault::decode)
      throw std::domain_error("no decoder for field f");
  }
};

fragile fragile_of(int rank, std::size_t bulk) {
  return {"of rank " + std::to_string(rank),
          std::vector<std::uint16_t>(bulk, static_cast<std::uint16_t>(rank))};
}

// In one frame; of several chunks; out of band, in more chunks than are granted at once.
constexpr std::size_t bulks[] = {1, 400, 70'000};
constexpr double soon = 10;  // seconds; the limit of the group is 30

// Rank `at` fails with what it threw itself, all others with a remote_error that names it, the call
// and the text. Afterwards the same call succeeds.
template <class F>
void one_fails(const communicator& c, int at, fault what, const char* name, F&& call) {
  const std::string text =
      what == fault::encode ? "no encoder for field f" : "no decoder for field f";
  const auto begin = rankcast::steady_clock::now();
  if (c.rank() == at) {
    fault_here = what;
    const auto e = error_of<std::domain_error>(call);
    fault_here = fault::none;
    if (e) {
      EXPECT_EQ(e->what(), text);
    }
  } else {
    const auto e = error_of<rankcast::remote_error>(call);
    if (e) {
      EXPECT_EQ(e->rank(), at);
      EXPECT_CONTAINS(e->what(), "rank " + std::to_string(at) + " ");
      EXPECT_CONTAINS(e->what(), name);
      EXPECT_CONTAINS(e->what(), text);
    }
  }
  EXPECT_LT(support::seconds_since(begin), soon) << name;
  goes_on(c);
  call();
}

const rankcast::rooted_options all_at_1{.root = 1, .completion = completion::everyone};
const rankcast::rooted_options all_at_0{.root = 0, .completion = completion::everyone};

TEST(cases, C08_gather) {
  on_three([](const communicator& c) {
    for (const std::size_t bulk : bulks) {
      const fragile mine = fragile_of(c.rank(), bulk + index(c.rank()));
      std::vector<fragile> all;
      const auto gather = [&](const rankcast::rooted_options& options) {
        return [&c, &mine, &all, options] { rankcast::gather_object(c, mine, all, options); };
      };
      one_fails(c, 1, fault::encode, "gather", gather(all_at_0));
      one_fails(c, 1, fault::encode, "gather", gather(all_at_1));  // the root's own
      one_fails(c, 0, fault::decode, "gather", gather(all_at_0));
      ASSERT_EQ(all.size(), c.rank() == 0 ? 3u : 0u);
      for (std::size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r].bulk.size(), bulk + r);
    }
  });
}

TEST(cases, C08_all_gather) {
  on_three([](const communicator& c) {
    for (const std::size_t bulk : bulks) {
      const fragile mine = fragile_of(c.rank(), bulk);
      std::vector<fragile> all;
      const auto call = [&] {
        rankcast::all_gather_object(c, mine, all, {.completion = completion::everyone});
      };
      for (const int at : {1, 2}) {
        one_fails(c, at, fault::encode, "all_gather", call);
        one_fails(c, at, fault::decode, "all_gather", call);
      }
      ASSERT_EQ(all.size(), 3u);
      for (std::size_t r = 0; r < 3; ++r)
        EXPECT_EQ(all[r].text, fragile_of(static_cast<int>(r), 0).text);
    }
  });
}

TEST(cases, C08_broadcast) {
  on_three([](const communicator& c) {
    for (const std::size_t bulk : bulks) {
      fragile mine = fragile_of(c.rank(), c.rank() == 1 ? bulk : 3);
      const auto call = [&] { rankcast::broadcast_object(c, mine, all_at_1); };
      one_fails(c, 1, fault::encode, "broadcast", call);
      one_fails(c, 0, fault::decode, "broadcast", call);
      one_fails(c, 2, fault::decode, "broadcast", call);
      EXPECT_EQ(mine.bulk, fragile_of(1, bulk).bulk);
    }
  });
}

TEST(cases, C08_scatter) {
  on_three([](const communicator& c) {
    for (const std::size_t bulk : bulks) {
      std::vector<fragile> items;
      for (int r = 0; r < 3 && c.rank() == 1; ++r)
        items.push_back(fragile_of(r, bulk + 1000 * index(r)));
      fragile mine;
      const auto call = [&] { rankcast::scatter_object(c, items, mine, all_at_1); };
      one_fails(c, 1, fault::encode, "scatter", call);
      for (const int at : {0, 1, 2}) one_fails(c, at, fault::decode, "scatter", call);
      EXPECT_EQ(mine.bulk, fragile_of(c.rank(), bulk + 1000 * index(c.rank())).bulk);
    }
  });
}

// With local completion a rank that waits for the object learns of it, and nobody else.
TEST(cases, C08_gather_that_only_the_root_waits_for) {
  on_three([](const communicator& c) {
    for (const std::size_t bulk : bulks) {
      const fragile mine = fragile_of(c.rank(), bulk);
      std::vector<fragile> all;
      const auto call = [&] { rankcast::gather_object(c, mine, all); };
      const auto begin = rankcast::steady_clock::now();
      fault_here = c.rank() == 1 ? fault::encode : fault::none;
      if (c.rank() == 1) {
        (void)error_of<std::domain_error>(call);
      } else if (c.rank() == 0) {
        const auto e = error_of<rankcast::remote_error>(call);
        if (e) {
          EXPECT_EQ(e->rank(), 1);
          EXPECT_CONTAINS(e->what(), "no encoder for field f");
        }
      } else {
        call();
      }
      fault_here = fault::none;
      EXPECT_LT(support::seconds_since(begin), soon);
      goes_on(c);
    }
  });
}

TEST(cases, C08_send_and_receive) {
  on_three([](const communicator& c) {
    for (const std::size_t bulk : bulks) {
      fragile object = fragile_of(c.rank(), bulk);
      const auto call = [&] {
        if (c.rank() == 1) rankcast::send_object(c, object, 2, {.tag = 3});
        if (c.rank() == 2) rankcast::receive_object(c, object, 1, {.tag = 3});
      };
      const auto fails_at = [&](int at, fault what, bool other_waits) {
        const auto begin = rankcast::steady_clock::now();
        fault_here = c.rank() == at ? what : fault::none;
        if (c.rank() == at) {
          (void)error_of<std::domain_error>(call);
        } else if (c.rank() != 0 && other_waits) {
          const auto e = error_of<rankcast::remote_error>(call);
          if (e) {
            EXPECT_EQ(e->rank(), at);
            EXPECT_CONTAINS(e->what(), "rank " + std::to_string(at) + " ");
            EXPECT_CONTAINS(e->what(), what == fault::encode ? "no encoder" : "no decoder");
          }
        } else {
          call();
        }
        fault_here = fault::none;
        EXPECT_LT(support::seconds_since(begin), soon);
        goes_on(c);
      };
      fails_at(1, fault::encode, true);
      fails_at(2, fault::decode, bulk > 100);  // a sender does not wait for little
      call();
      if (c.rank() == 2) {
        EXPECT_EQ(object.text, "of rank 1");
        EXPECT_EQ(object.bulk, fragile_of(1, bulk).bulk);
      }
    }
  });
}

// A started call, among others that go on.
TEST(cases, C08_started) {
  on_three([](const communicator& c) {
    const fragile mine = fragile_of(c.rank(), 70'000);
    std::vector<fragile> all;
    std::vector<std::string> names;
    int sum = c.rank();
    fault_here = c.rank() == 1 ? fault::encode : fault::none;
    auto failing = rankcast::start_gather_object(c, mine, all, all_at_0);
    auto summing = rankcast::start_all_reduce(c, sum);
    auto naming = rankcast::start_all_gather_object(c, "rank " + std::to_string(c.rank()), names);
    const auto wait = [&] { failing.wait(); };
    if (c.rank() == 1) (void)error_of<std::domain_error>(wait);
    else (void)error_of<rankcast::remote_error>(wait);
    fault_here = fault::none;
    summing.wait();
    naming.wait();
    EXPECT_EQ(sum, 3);
    EXPECT_EQ(names, (texts{"rank 0", "rank 1", "rank 2"}));
  });
}

}  // namespace
