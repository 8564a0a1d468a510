// Frames as no rank of the library sends them, and a link that fails: rank 0 of two, whose peer is
// the test.
#include <gtest/gtest.h>

#include <numeric>

#include "rankcast/rankcast.hpp"
#include "rankcast/transports/frames/transport.hpp"

namespace {

using namespace std::chrono_literals;
using namespace rankcast;
namespace fr = rankcast::frames;

class scripted_link final : public fr::link {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 2; }
  void post(int to, fr::frame f, fr::unsent_count) override {
    if (to == 0) deliver(std::move(f));
    else posted.push_back(std::move(f));
  }
  bool progress() override {
    if (failures > 0 && --failures == 0) throw transport_error("the link fails", 5);
    return false;
  }
  void pause(int, std::chrono::nanoseconds) override {}
  void bring(fr::frame f) { deliver(std::move(f)); }

  std::vector<fr::frame> posted;
  int failures = 0;  // the how manieth progress throws
};

struct world {
  std::shared_ptr<scripted_link> link = std::make_shared<scripted_link>();
  communicator comm{
      std::make_shared<fr::frames_transport>(link, 1, 0, std::vector<int>{0, 1},
                                             "group 'world' of 2", fr::settings{256, 64, 3}),
      "world",
      {0, 1},
      0,
      timeout(200ms)};

  static fr::frame head(fr::kind what, const operation& op, std::uint64_t sequence,
                        std::size_t bytes, std::uint8_t phase = 0, const std::string& refusal = {},
                        std::vector<std::int64_t> counts = {}) {
    fr::frame_header h;
    h.what = what;
    h.flags = fr::flag::complete;
    h.phase = phase;
    h.source = 1;
    h.group = 1;
    h.sequence = sequence;
    h.position = bytes;
    fr::frame f(sizeof h);
    std::memcpy(f.data(), &h, sizeof h);
    fr::write_offer(f, record_of(op, 2), counts, refusal);
    f.resize(f.size() + bytes, std::byte{1});
    return f;
  }
};

operation with(opcode code, int root, std::vector<int>& data) {
  operation op;
  op.code = code;
  op.root = root;
  op.send = read_buffer(data);
  op.type = op.send.type;
  op.message_type = {};
  return op;
}

// More bytes than its record says: not past the end of the caller's buffer.
TEST(hostile_frames, a_letter_that_is_longer_than_its_record) {
  world w;
  auto got = std::make_unique<std::vector<int>>(2, 7);
  w.link->bring(world::head(fr::kind::letter, with(opcode::send, 0, *got), 0, 200, 2));
  EXPECT_THROW(receive(w.comm, *got, 1), error);
}

TEST(hostile_frames, a_call_that_comes_twice) {
  world w;
  auto got = std::make_unique<std::vector<int>>(2, 7);
  auto op = with(opcode::broadcast, 1, *got);
  for (int i = 0; i < 4; ++i) w.link->bring(world::head(fr::kind::call, op, 0, 8));
  EXPECT_THROW(broadcast(w.comm, *got, {.root = 1}), error);
}

TEST(hostile_frames, a_letter_that_comes_twice) {
  world w;
  auto got = std::make_unique<std::vector<int>>(2, 7);
  for (int i = 0; i < 4; ++i) {
    w.link->bring(world::head(fr::kind::letter, with(opcode::send, 0, *got), 0, 8, 2));
  }
  EXPECT_THROW(receive(w.comm, *got, 1), error);
}

TEST(hostile_frames, a_root_that_is_none) {
  for (const int root : {-1, 2, 1'000'000}) {
    world w;
    std::vector<int> mine(1);
    std::vector<int> all(2);
    w.link->bring(world::head(fr::kind::call, with(opcode::gather, root, mine), 0, 4));
    EXPECT_THROW(gather(w.comm, mine, all), error);
  }
}

TEST(hostile_frames, too_few_counts) {
  world w;
  std::vector<int> mine(4);
  std::vector<int> all(4);
  auto op = with(opcode::all_to_all, -1, mine);
  const std::vector<std::int64_t> two{2, 2};
  op.counts = two;
  w.link->bring(world::head(fr::kind::call, op, 0, 8, 0, "", {std::int64_t{1} << 40}));
  EXPECT_THROW(
      {
        op.send = read_buffer(mine);
        op.receive = write_buffer(all);
        op.receive_counts = two;
        w.comm.run(op, {});
      },
      error);
}

TEST(hostile_frames, a_lost_peer_that_is_not_named) {
  world w;
  fr::frame_header h;
  h.what = fr::kind::revoke;
  h.source = 1;
  h.group = 1;
  fr::frame f(sizeof h);
  std::memcpy(f.data(), &h, sizeof h);
  revocation r;
  r.why = revocation::kind::peer_lost;
  r.sequence = 0;
  fr::write_revocation(f, r);
  auto barrier = start_barrier(w.comm);
  w.link->bring(std::move(f));
  EXPECT_THROW(barrier.wait(), error);
}

TEST(hostile_frames, calls_beyond_the_window) {
  world w;
  std::vector<int> data(2, 7);
  fr::frame f = world::head(fr::kind::slice, with(opcode::broadcast, 1, data), 64, 0, 1);
  f.resize(sizeof(fr::frame_header));
  f.resize(f.size() + 4, std::byte{});  // no note
  w.link->bring(std::move(f));
  EXPECT_THROW(
      {
        for (int i = 0; i < 3; ++i) w.comm.flush();
      },
      error);
}

// When the native library fails in the middle of a call, the call throws, and its buffers are the
// caller's again.
TEST(hostile_frames, a_link_that_fails_leaves_no_call_behind) {
  for (const int at : {1, 2, 3, 4, 5}) {
    world w;
    bool thrown = false;
    {
      auto data = std::make_unique<std::vector<int>>(5000, 1);
      w.link->failures = at;
      try {
        broadcast(w.comm, *data, {.timeout = 50ms});
      } catch (const error&) {
        thrown = true;
      }
    }
    ASSERT_TRUE(thrown);
    // The peer asks for what the call would have sent.
    fr::frame_header h;
    h.what = fr::kind::grant;
    h.source = 1;
    h.group = 1;
    h.position = 20'000;
    fr::frame f(sizeof h);
    std::memcpy(f.data(), &h, sizeof h);
    w.link->bring(std::move(f));
    w.link->failures = 0;
    try {
      w.comm.flush();
    } catch (const error&) {
    }
  }
}

}  // namespace
