// Wrong calls of one rank or of all, encoders and decoders that throw, two threads on one handle,
// calls from inside a callback: each rank gets its error, and the group goes on.
#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using namespace std::chrono_literals;
using rankcast::communicator;
using rankcast::completion;
using support::error_of;
using support::run_ranks;

const rankcast::call_options everyone{.completion = completion::everyone};

void goes_on(const communicator& world) {
  int sum = 1;
  rankcast::all_reduce(world, sum, rankcast::sum, everyone);
  EXPECT_EQ(sum, world.size());
}

// The rank `wrong` gets usage_error, all others a remote_error that names it and says what it did.
template <class F>
void one_is_wrong(const char* part, F&& call) {
  for (const int wrong : {0, 1, 3}) {
    run_ranks(4, [&](communicator& world) {
      for (int i = 0; i < 3; ++i) {
        if (world.rank() == wrong) {
          const auto e = error_of<rankcast::usage_error>([&] { call(world, true); });
          if (e) {
            EXPECT_CONTAINS(e->what(), part);
          }
        } else {
          const auto e = error_of<rankcast::remote_error>([&] { call(world, false); });
          if (e) {
            EXPECT_EQ(e->rank(), wrong);
            EXPECT_CONTAINS(e->what(), part);
          }
        }
        goes_on(world);
      }
    });
  }
}

TEST(usage, one_rank_gives_a_wrong_root) {
  one_is_wrong("root 9 is outside of a group of 4", [](const communicator& world, bool wrong) {
    int x = 0;
    rankcast::broadcast(world, x, {.root = wrong ? 9 : 2, .completion = completion::everyone});
  });
}

TEST(usage, one_rank_gives_wrong_sizes) {
  for (const std::size_t n : {std::size_t{4}, std::size_t{400}}) {
    one_is_wrong("elements but receives", [&](const communicator& world, bool wrong) {
      const std::vector<int> send(n);
      std::vector<int> receive(wrong ? n + 1 : n);
      rankcast::all_reduce(world, send, receive, rankcast::sum, everyone);
    });
    one_is_wrong("wanted 4 times the", [&](const communicator& world, bool wrong) {
      const std::vector<int> send(n);
      std::vector<int> receive(wrong ? 1 : 4 * n);
      rankcast::all_gather(world, send, receive);  // all read from all: local tells too
    });
  }
}

TEST(usage, one_rank_gives_what_cannot_be_folded) {
  one_is_wrong("cannot fold elements of", [](const communicator& world, bool wrong) {
    rankcast::tensor t(wrong ? rankcast::dtype::bytes : rankcast::dtype::int8, {4});
    if (!wrong) std::memset(t.view().address(), 0, t.bytes());
    rankcast::all_reduce(world, t, rankcast::sum, everyone);
  });
}

TEST(usage, one_rank_gives_overlapping_buffers) {
  one_is_wrong("overlap in part", [](const communicator& world, bool wrong) {
    std::vector<int> v(20);
    const std::span<int> all(v);
    rankcast::all_reduce(world, all.first(8), all.subspan(wrong ? 4 : 10, 8), rankcast::sum,
                         everyone);
  });
}

TEST(usage, root_refuses_an_uneven_call_whose_shares_differ) {
  run_ranks(3, [](communicator& world) {
    const std::vector<std::int64_t> counts{1, 2, 4};
    std::vector<int> mine(static_cast<std::size_t>(world.rank() + 1));
    std::vector<int> all(6);
    if (world.rank() == 0) {
      std::this_thread::sleep_for(20ms);
      (void)error_of<rankcast::usage_error>([&] {
        rankcast::gather(world, mine, all, {.counts = counts, .completion = completion::everyone});
      });
    } else {
      (void)error_of<rankcast::remote_error>([&] {
        rankcast::gather(world, mine, rankcast::nothing, {.completion = completion::everyone});
      });
    }
    goes_on(world);
  });
}

TEST(usage, all_ranks_wrong) {
  run_ranks(4, [](communicator& world) {
    for (int i = 0; i < 80; ++i) {  // more often than there are slots
      int x = 0;
      (void)error_of<rankcast::usage_error>([&] { rankcast::broadcast(world, x, {.root = -1}); });
    }
    goes_on(world);
    int x = 0;
    (void)error_of<rankcast::usage_error>([&] { rankcast::send(world, x, 4); });
    (void)error_of<rankcast::usage_error>([&] { rankcast::receive(world, x, 0, {.tag = -1}); });
    goes_on(world);
  });
}

// Ends of a message that fail on demand.
struct picky final : rankcast::message_source, rankcast::message_sink {
  enum class where { never, encode, begin, read_short, finish, not_std } fail = where::never;
  std::vector<std::byte> data;

  void encode(int, rankcast::message& to) override {
    if (fail == where::encode) throw std::runtime_error("no encoder for field f");
    if (fail == where::not_std) throw 42;
    to.header.resize(3);
    to.segments.push_back(data);
  }
  void decode(int, std::span<const std::byte> header, rankcast::segment_reader& in) override {
    EXPECT_EQ(header.size(), 3u);
    if (fail == where::begin) throw rankcast::decode_error("field f is too short");
    if (fail == where::not_std) throw 42;
    data.resize(static_cast<std::size_t>(in.sizes()[0]));
    in.read(std::span(data).first(fail == where::read_short ? data.size() - 1 : data.size()));
    if (fail == where::finish) throw std::runtime_error("checksum of field f");
  }
};

void exchange(const communicator& world, picky& p, int root) {
  rankcast::operation op;
  op.code = rankcast::opcode::broadcast;
  op.root = root;
  if (world.rank() == root) op.source = &p;
  else op.sink = &p;
  world.run(op, everyone);
}

TEST(usage, an_encoder_that_throws) {
  for (const std::size_t n : {std::size_t{10}, std::size_t{5000}}) {
    run_ranks(3, [&](communicator& world) {
      for (const auto fail : {picky::where::encode, picky::where::not_std}) {
        picky p;
        p.data.resize(world.rank() == 1 ? n : 0);
        if (world.rank() == 1) {
          p.fail = fail;
          if (fail == picky::where::encode) {
            const auto e = error_of<std::runtime_error>([&] { exchange(world, p, 1); });
            if (e) {
              EXPECT_STREQ(e->what(), "no encoder for field f");  // its own exception
            }
          } else {
            EXPECT_THROW(exchange(world, p, 1), int);
          }
        } else {
          const auto e = error_of<rankcast::remote_error>([&] { exchange(world, p, 1); });
          if (e) {
            EXPECT_EQ(e->rank(), 1);
            EXPECT_CONTAINS(e->what(), "rank 1 could not encode");
            EXPECT_CONTAINS(e->what(), "broadcast");
          }
        }
        goes_on(world);
      }
      picky p;
      p.data.assign(world.rank() == 1 ? n : 0, std::byte{7});
      exchange(world, p, 1);
      EXPECT_EQ(p.data, std::vector<std::byte>(n, std::byte{7}));
    });
  }
}

TEST(usage, a_decoder_that_throws) {
  for (const std::size_t n : {std::size_t{10}, std::size_t{5000}}) {
    for (const auto fail : {picky::where::begin, picky::where::finish, picky::where::read_short}) {
      run_ranks(3, [&](communicator& world) {
        picky p;
        p.data.resize(world.rank() == 0 ? n : 0);
        if (world.rank() == 2) {
          p.fail = fail;
          (void)error_of<std::runtime_error>([&] { exchange(world, p, 0); });
        } else {
          const auto e = error_of<rankcast::remote_error>([&] { exchange(world, p, 0); });
          if (e) {
            EXPECT_EQ(e->rank(), 2);
            EXPECT_CONTAINS(e->what(), "rank 2 failed: ");
          }
        }
        goes_on(world);
      });
    }
  }
}

TEST(usage, a_decoder_that_throws_what_is_no_exception) {
  run_ranks(2, [](communicator& world) {
    picky p;
    p.data.resize(4);
    if (world.rank() == 1) {
      p.fail = picky::where::not_std;
      EXPECT_THROW(exchange(world, p, 0), int);
    } else {
      (void)error_of<rankcast::remote_error>([&] { exchange(world, p, 0); });
    }
    goes_on(world);
  });
}

TEST(usage, a_reduction_that_throws) {
  for (const std::size_t n : {std::size_t{4}, std::size_t{400}}) {
    run_ranks(3, [&](communicator& world) {
      const bool bad = world.rank() == 1;
      const auto f = [bad](int a, int b) {
        if (bad) throw std::range_error("cannot add");
        return a + b;
      };
      std::vector<int> v(n, 1);
      if (bad) {
        (void)error_of<std::range_error>([&] { rankcast::all_reduce(world, v, f, everyone); });
      } else {
        const auto e =
            error_of<rankcast::remote_error>([&] { rankcast::all_reduce(world, v, f, everyone); });
        if (e) {
          EXPECT_EQ(e->rank(), 1);
          EXPECT_CONTAINS(e->what(), "cannot add");
        }
      }
      goes_on(world);
    });
  }
}

TEST(usage, a_call_from_inside_a_reduction) {
  run_ranks(2, [](communicator& world) {
    std::atomic<int> refused{0};
    const auto f = [&](int a, int b) {
      try {
        rankcast::barrier(world);
      } catch (const rankcast::usage_error& e) {
        EXPECT_CONTAINS(e.what(), "called from inside a reduction");
        refused.fetch_add(1);
      }
      return a + b;
    };
    std::vector<int> v(2, 1);
    rankcast::all_reduce(world, v, f);
    EXPECT_EQ(v, std::vector<int>(2, 2));
    EXPECT_EQ(refused.load(), 2);
    goes_on(world);
  });
}

TEST(usage, two_threads_on_one_handle) {
  run_ranks(2, [](communicator& world) {
    if (world.rank() == 1) {
      int go = 0;
      rankcast::receive(world, go, 0);  // the other rank's threads are done
      rankcast::barrier(world);
      return;
    }
    std::atomic<bool> inside{false};
    int never = 0;
    auto pending_message = rankcast::start_receive(world, never, 1, {.tag = 77, .timeout = 300ms});
    std::thread second([&] {
      while (!inside.load()) std::this_thread::yield();
      std::this_thread::sleep_for(50ms);  // the first is inside its wait now
      const auto e = error_of<rankcast::usage_error>([&] { rankcast::barrier(world); });
      if (e) {
        EXPECT_CONTAINS(e->what(), "another thread is inside");
        EXPECT_CONTAINS(e->what(), "duplicate()");
      }
    });
    inside = true;
    (void)error_of<rankcast::timeout_error>([&] { pending_message.wait(); });
    second.join();
    rankcast::send(world, 1, 1);
    rankcast::barrier(world);
  });
}

}  // namespace
