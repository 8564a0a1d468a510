// When a call has thrown, nobody touches the caller's buffers any more: they are freed at once
// here, many times over, while peers are in the middle of large copies. For AddressSanitizer and
// ThreadSanitizer.
#include <array>
#include <memory>
#include <random>

#include "support/ranks.hpp"

namespace {

using namespace std::chrono_literals;
using support::run_ranks;

constexpr std::size_t large = 20'000;  // ints: over 1000 chunks

// A buffer that is gone once the scope ends; its content says so where memory is not checked.
struct owned {
  explicit owned(int value) : data(std::make_unique<std::vector<int>>(large, value)) {}
  ~owned() {
    if (data != nullptr) std::fill(data->begin(), data->end(), -1);
  }
  std::unique_ptr<std::vector<int>> data;
};

std::chrono::microseconds random_time(std::mt19937& random, int limit) {
  return std::chrono::microseconds(std::uniform_int_distribution<int>(0, limit)(random));
}

// Root 0 gives up after a short while; readers come early, late or in the middle.
TEST(buffers, are_free_after_a_timeout_in_broadcast) {
  std::mt19937 seeds(1);
  for (int i = 0; i < 60; ++i) {
    const auto seed = static_cast<unsigned>(seeds());
    run_ranks(3, [&](rankcast::communicator& world) {
      std::mt19937 random(seed + static_cast<unsigned>(world.rank()));
      support::step("broadcast");
      const auto patience = random_time(random, 400);
      if (world.rank() != 0) std::this_thread::sleep_for(random_time(random, 400));
      owned buffer(world.rank());
      try {
        rankcast::broadcast(world, *buffer.data,
                            {.timeout = world.rank() == 0 ? patience : 10s,
                             .completion = rankcast::completion::everyone});
        EXPECT_EQ(*buffer.data, std::vector<int>(large, 0));
      } catch (const rankcast::timeout_error&) {
      } catch (const rankcast::revoked_error&) {
      }
    });
  }
}

TEST(buffers, are_free_after_a_timeout_in_all_reduce) {
  std::mt19937 seeds(2);
  for (int i = 0; i < 60; ++i) {
    const auto seed = static_cast<unsigned>(seeds());
    run_ranks(3, [&](rankcast::communicator& world) {
      std::mt19937 random(seed + static_cast<unsigned>(world.rank()));
      support::step("all_reduce");
      const auto patience = random_time(random, 600);
      if (world.rank() != 0) std::this_thread::sleep_for(random_time(random, 400));
      owned buffer(world.rank() + 1);
      try {
        rankcast::all_reduce(world, *buffer.data, rankcast::sum,
                             {.timeout = world.rank() == 0 ? patience : 10s});
        EXPECT_EQ(*buffer.data, std::vector<int>(large, 6));
      } catch (const rankcast::timeout_error&) {
      } catch (const rankcast::revoked_error&) {
      }
    });
  }
}

TEST(buffers, are_free_after_work_is_dropped) {
  std::mt19937 seeds(3);
  for (int i = 0; i < 60; ++i) {
    const auto seed = static_cast<unsigned>(seeds());
    run_ranks(3, [&](rankcast::communicator& world) {
      std::mt19937 random(seed + static_cast<unsigned>(world.rank()));
      owned send(world.rank());
      std::vector<int> receive(3 * large);
      try {
        auto w = rankcast::start_all_gather(world, *send.data, receive);
        if (world.rank() == 1) {
          const auto until = rankcast::steady_clock::now() + random_time(random, 300);
          while (rankcast::steady_clock::now() < until && !w.test()) {
          }
        } else {
          w.wait();
        }
      } catch (const rankcast::revoked_error& e) {
        EXPECT_CONTAINS(e.what(), "dropped");
      }
    });
  }
}

// A send that times out is withdrawn; the group goes on. The message has come whole or not at all,
// and the sender knows which.
TEST(buffers, are_free_after_a_timeout_in_send) {
  std::atomic<int> delivered{0};
  std::atomic<int> withdrawn{0};
  run_ranks(2, [&](rankcast::communicator& world) {
    std::mt19937 random(static_cast<unsigned>(world.rank()) + 4);
    support::step("send");
    for (int i = 0; i < 120; ++i) {
      int sent = 0;
      if (world.rank() == 0) {
        owned buffer(i);
        try {
          rankcast::send(world, *buffer.data, 1, {.tag = i, .timeout = random_time(random, 200)});
          sent = 1;
        } catch (const rankcast::timeout_error& e) {
          EXPECT_EQ(e.missing(), std::vector<int>{1});
        } catch (const rankcast::remote_error&) {  // the receiver gave up in the middle
          EXPECT_FALSE(support::ranks_share_memory());
        }
        rankcast::broadcast(world, sent, {.completion = rankcast::completion::everyone});
      } else {
        std::this_thread::sleep_for(random_time(random, 250));
        std::vector<int> got(large, -7);
        int received = 0;
        try {
          rankcast::receive(world, got, 0, {.tag = i, .timeout = 5ms});
          received = 1;
          EXPECT_EQ(got, std::vector<int>(large, i));
        } catch (const rankcast::timeout_error&) {
          if (support::ranks_share_memory()) {
            EXPECT_EQ(got, std::vector<int>(large, -7));
          }
        } catch (const rankcast::remote_error&) {  // gave up in the middle
        }
        rankcast::broadcast(world, sent, {.completion = rankcast::completion::everyone});
        // Between processes a message may have been taken when its sender's time was up; what was
        // not sent in time may have come, what was sent has.
        if (support::ranks_share_memory()) {
          EXPECT_EQ(sent, received) << "message " << i;
        } else {
          EXPECT_LE(sent, received) << "message " << i;
        }
        (received != 0 ? delivered : withdrawn).fetch_add(1);
      }
    }
  });
  EXPECT_GT(delivered.load() + withdrawn.load(), 0);
}

// The deadline of a send passes while the receiver is in the middle of its only chunk: what is then
// delivered whole is no failure of the sender.
TEST(buffers, of_a_send_taken_at_the_last_moment_are_delivered) {
  constexpr std::size_t huge = 2'000'000;
  run_ranks(2,
            [](rankcast::communicator& world) {
              std::mt19937 random(6);
              std::vector<int> buffer(huge, world.rank());
              const auto all = rankcast::completion::everyone;
              for (int i = 0; i < 40; ++i) {
                const auto patience = random_time(random, 3000);
                rankcast::barrier(world, {.completion = all});
                int taken = 1;
                try {
                  if (world.rank() == 0) {
                    rankcast::send(world, buffer, 1, {.tag = i, .timeout = patience});
                  } else {
                    rankcast::receive(world, buffer, 0, {.tag = i, .timeout = 20ms});
                  }
                } catch (const rankcast::timeout_error&) {
                  taken = 0;
                } catch (const rankcast::remote_error&) {  // its sender gave up in the middle
                  taken = 0;
                }
                std::array<int, 2> both{};
                rankcast::all_gather(world, taken, both, {.completion = all});
                if (support::ranks_share_memory()) {
                  EXPECT_EQ(both[0], both[1]) << "message " << i;
                } else {
                  EXPECT_LE(both[0], both[1]) << "message " << i;
                }
              }
            },
            {.chunk_bytes = 1 << 30});
}

// A third rank revokes the group while a send is withdrawn in the middle of its chunk: all of the
// data here, so that the receiver is inside it for milliseconds.
TEST(buffers, are_free_when_a_withdrawn_send_meets_a_revoked_group) {
  constexpr std::size_t huge = 2'000'000;
  std::mt19937 seeds(5);
  for (int i = 0; i < 15; ++i) {
    const auto seed = static_cast<unsigned>(seeds());
    run_ranks(3,
              [&](rankcast::communicator& world) {
                std::mt19937 random(seed);
                const auto patience = random_time(random, 3000);
                const auto revoked_after = patience + random_time(random, 2000);
                support::step("withdraw");
                auto buffer = std::make_unique<std::vector<int>>(world.rank() == 0 ? huge : 0, i);
                std::vector<int> got(world.rank() == 1 ? huge : 0);
                try {
                  rankcast::barrier(world);
                  if (world.rank() == 0) {
                    rankcast::send(world, *buffer, 1, {.timeout = patience});
                  } else if (world.rank() == 1) {
                    rankcast::receive(world, got, 0, {.timeout = 20ms});
                  } else {
                    std::this_thread::sleep_for(revoked_after);
                    world.revoke("enough");
                  }
                } catch (const rankcast::error&) {
                  std::fill(buffer->begin(), buffer->end(), -1);
                  buffer.reset();
                }
              },
              {.chunk_bytes = 1 << 30});
  }
}

}  // namespace
