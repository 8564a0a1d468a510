// Long sequences of mixed calls from fixed seeds: random calls, sizes, roots, forms and groups,
// against the oracle at every step.
#include <deque>
#include <random>

#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using rankcast::communicator;
using rankcast::completion;
using support::run_ranks;
using support::oracle::by_rank;
using support::oracle::counts;
using support::oracle::index;

using numbers = std::vector<std::int64_t>;

// What every rank of a group draws alike. The same seed gives every rank the same sequence, also on
// groups that do not know of each other.
class script {
 public:
  explicit script(unsigned seed) : random_(seed) {}
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  // Mostly small, at times above the chunk and the eager limit.
  std::int64_t size() { return below(4) == 0 ? below(120) : below(9); }

 private:
  std::mt19937_64 random_;
};

// A started call with its buffers and what it must give.
struct started {
  numbers send;
  numbers receive;
  numbers wanted;
  rankcast::work work;
};

class player {
 public:
  player(const communicator& group, script& s, int salt) : group_(group), script_(s), salt_(salt) {}

  // One random call, blocking or started.
  void step() {
    const int n = group_.size();
    const auto me = index(group_.rank());
    const int root = static_cast<int>(script_.below(n));
    const std::int64_t size = script_.size();
    const auto mode = script_.below(3) == 0 ? completion::everyone : completion::local;
    const bool blocking = script_.below(3) == 0;
    const auto kind = script_.below(9);
    ++salt_;
    flights_.emplace_back();
    started& f = flights_.back();
    counts shares;
    for (int r = 0; r < n; ++r) shares.push_back(script_.below(3) == 0 ? 0 : script_.size());
    switch (kind) {
      case 0: {
        const auto in = inputs(size);
        f.receive = in[me];
        f.wanted = in[index(root)];
        f.work = rankcast::start_broadcast(group_, f.receive, {.root = root, .completion = mode});
        break;
      }
      case 1: {
        const auto in = inputs(size * n);
        f.send = in[me];
        f.receive.resize(index(size));
        f.wanted = support::oracle::scatter(in[index(root)], counts(index(n), size))[me];
        f.work =
            rankcast::start_scatter(group_, f.send, f.receive, {.root = root, .completion = mode});
        break;
      }
      case 2: {
        const auto in = inputs(shares);
        f.send = in[me];
        const auto joined = support::oracle::gather(in);
        if (group_.rank() == root) {
          f.receive.resize(joined.size());
          f.wanted = joined;
        }
        f.work = rankcast::start_gather(group_, f.send, f.receive,
                                        {.root = root, .counts = shares, .completion = mode});
        break;
      }
      case 3: {
        const auto in = inputs(shares);
        f.send = in[me];
        f.wanted = support::oracle::gather(in);
        f.receive.resize(f.wanted.size());
        f.work = rankcast::start_all_gather(group_, f.send, f.receive,
                                            {.counts = shares, .completion = mode});
        break;
      }
      case 4: {
        const auto in = inputs(size);
        f.receive = in[me];
        f.wanted = support::oracle::reduce(in, rankcast::sum);
        f.work = rankcast::start_all_reduce(group_, f.receive, rankcast::sum, {.completion = mode});
        break;
      }
      case 5: {
        const auto in = inputs(size);
        f.send = in[me];
        f.receive.resize(index(size));
        f.wanted = group_.rank() == root ? support::oracle::reduce(in, rankcast::maximum)
                                         : numbers(index(size));
        f.work = rankcast::start_reduce(group_, f.send, f.receive, rankcast::maximum,
                                        {.root = root, .completion = mode});
        break;
      }
      case 6: {
        std::int64_t total = 0;
        for (const auto c : shares) total += c;
        const auto in = inputs(total);
        f.send = in[me];
        f.receive.resize(index(shares[me]));
        f.wanted = support::oracle::reduce_scatter(in, shares, rankcast::sum)[me];
        f.work = rankcast::start_reduce_scatter(group_, f.send, f.receive, rankcast::sum,
                                                {.counts = shares, .completion = mode});
        break;
      }
      case 7: {
        const auto in = inputs(size * n);
        f.receive = in[me];
        const std::vector<counts> table(index(n), counts(index(n), size));
        f.wanted = support::oracle::all_to_all(in, table)[me];
        f.work = rankcast::start_all_to_all(group_, f.receive, f.receive, {.completion = mode});
        break;
      }
      default: {  // around the ring
        const int next = (group_.rank() + 1) % n;
        const int previous = (group_.rank() + n - 1) % n;
        const auto in = inputs(size);
        f.receive.resize(index(size));
        f.wanted = in[index(previous)];
        const int tag = static_cast<int>(script_.below(3));
        f.work = rankcast::start_receive(group_, f.receive, previous, {.tag = tag});
        flights_.emplace_back();
        started& sent = flights_.back();
        sent.send = in[me];
        sent.work = rankcast::start_send(group_, sent.send, next, {.tag = tag});
        break;
      }
    }
    if (blocking) finish();
  }

  void finish() {
    while (!flights_.empty()) {
      started& f = flights_.front();
      f.work.wait();
      EXPECT_EQ(f.receive, f.wanted)
          << "call " << salt_ << " on " << group_.text() << ", rank " << group_.rank();
      flights_.pop_front();
    }
  }
  [[nodiscard]] std::size_t in_flight() const { return flights_.size(); }

 private:
  by_rank<std::int64_t> inputs(std::int64_t size) {
    return inputs(counts(index(group_.size()), size));
  }
  by_rank<std::int64_t> inputs(const counts& sizes) {  // by the members' world ranks
    by_rank<std::int64_t> in;
    for (int r = 0; r < group_.size(); ++r) {
      in.push_back(support::pattern_values(group_.members()[index(r)], sizes[index(r)], salt_));
    }
    return in;
  }

  const communicator& group_;
  script& script_;
  int salt_;
  std::deque<started> flights_;  // buffers stay where they are
};

// More calls of little data than anything that a transport counts or keeps.
TEST(sequences, of_many_small_calls) {
  for (const std::size_t elements : {1u, 20u, 60u}) {
    run_ranks(2, [&](communicator& world) {
      support::step("small calls");
      std::vector<int> all(2 * elements);
      std::vector<int> own(elements);
      for (int i = 0; i < 500; ++i) {
        std::fill(all.begin(), all.end(), i + world.rank());
        rankcast::scatter(world, all, own);
        ASSERT_EQ(own, std::vector<int>(elements, i));
        rankcast::all_gather(world, own, all);
        ASSERT_EQ(all, std::vector<int>(2 * elements, i));
      }
    });
  }
}

TEST(sequences, on_one_group) {
  for (const int ranks : support::rank_counts()) {
    for (const unsigned seed : {1u, 2u}) {
      run_ranks(ranks, [&](communicator& world) {
        support::step("sequence");
        script s(seed);
        player p(world, s, 0);
        for (int i = 0; i < 300; ++i) p.step();
        p.finish();
      });
    }
  }
}

// The world, halves of it that renumber their ranks, and groups of those, all in flight together;
// they are waited for in an order that differs by rank.
TEST(sequences, on_groups_of_groups) {
  for (const int ranks : {2, 3, 4, 7, 8}) {
    for (const unsigned seed : {3u, 4u}) {
      run_ranks(ranks, [&](communicator& world) {
        support::step("groups of groups");
        const int me = world.rank();
        const auto odd = world.split(me % 2, -me);
        const auto twin = world.duplicate();
        const auto inner = odd.split(odd.rank() % 2, odd.rank());
        script scripts[] = {script(seed), script(seed + 10), script(seed + 20), script(seed + 30)};
        player players[] = {player(world, scripts[0], 0), player(odd, scripts[1], 1000),
                            player(inner, scripts[2], 2000), player(twin, scripts[3], 3000)};
        for (int i = 0; i < 150; ++i) {
          for (auto& p : players) p.step();
          if (i % 20 != 19) continue;
          for (int k = 0; k < 4; ++k) players[(k + me) % 4].finish();
        }
        for (int k = 0; k < 4; ++k) players[(k + me) % 4].finish();
      });
    }
  }
}

}  // namespace
