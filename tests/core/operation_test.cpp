// What is wrong with a call as one rank made it: found without communication, told in a sentence.
#include "rankcast/core/operation.hpp"

#include <gtest/gtest.h>

#include <random>

#include "support/ranks.hpp"

namespace {

using rankcast::check_operation;
using rankcast::opcode;
using rankcast::operation;
using rankcast::read_buffer;
using rankcast::write_buffer;

operation make(opcode code, rankcast::buffer send, rankcast::buffer receive, int root = -1) {
  operation op;
  op.code = code;
  op.root = root;
  op.send = send;
  op.receive = receive;
  return op;
}

TEST(operations, sound_ones_pass) {
  std::vector<int> two(2);
  std::vector<int> six(6);
  EXPECT_EQ(check_operation(make(opcode::barrier, {}, {}), 0, 3), "");
  EXPECT_EQ(check_operation(make(opcode::broadcast, read_buffer(two), {}, 2), 2, 3), "");
  EXPECT_EQ(check_operation(make(opcode::scatter, read_buffer(six), write_buffer(two), 0), 0, 3),
            "");
  EXPECT_EQ(check_operation(make(opcode::scatter, {}, write_buffer(two), 0), 1, 3), "");
  EXPECT_EQ(check_operation(make(opcode::gather, read_buffer(two), {}, 0), 1, 3), "");
  EXPECT_EQ(check_operation(make(opcode::all_gather, read_buffer(two), write_buffer(six)), 0, 3),
            "");
  EXPECT_EQ(check_operation(make(opcode::all_to_all, read_buffer(six), write_buffer(six)), 0, 3),
            "");
  EXPECT_EQ(check_operation(make(opcode::all_reduce, read_buffer(six), write_buffer(six)), 0, 3),
            "");
  // In place: a rank's own block.
  const std::span own(six.data() + 2, 2);
  EXPECT_EQ(check_operation(make(opcode::all_gather, read_buffer(own), write_buffer(six)), 1, 3),
            "");
}

TEST(operations, wrong_ones_say_what) {
  std::vector<int> two(2);
  std::vector<int> five(5);
  std::vector<int> six(6);
  std::vector<float> reals(6);
  const auto wrong = [](const operation& op, const std::string& part, int rank = 0) {
    EXPECT_CONTAINS(check_operation(op, rank, 3), part);
  };
  wrong(make(opcode::broadcast, read_buffer(two), {}, 3), "root 3 is outside of a group of 3");
  wrong(make(opcode::gather, read_buffer(two), {}, -1), "root -1");
  wrong(make(opcode::send, read_buffer(two), {}, 4), "peer 4 is outside");
  auto tagged = make(opcode::send, read_buffer(two), {}, 1);
  tagged.tag = -2;
  wrong(tagged, "tag -2 is negative");
  wrong(make(opcode::all_reduce, read_buffer(six), write_buffer(reals)),
        "sends int32 but receives float32");
  wrong(make(opcode::scatter, {}, write_buffer(two), 0), "send buffer is missing");
  wrong(make(opcode::scatter, {}, {}, 0), "receive buffer is missing", 1);
  wrong(make(opcode::gather, {}, write_buffer(six), 0), "send buffer is missing");
  wrong(make(opcode::scatter, read_buffer(five), write_buffer(two), 0),
        "5 elements, wanted 3 times");
  wrong(make(opcode::scatter, read_buffer(five), {}, 0), "do not divide among 3");
  wrong(make(opcode::all_reduce, read_buffer(six), write_buffer(five)),
        "sends 6 elements but receives 5");
  wrong(make(opcode::all_to_all, read_buffer(five), write_buffer(five)), "same multiple of the 3");
  auto device = make(opcode::all_reduce, read_buffer(six), write_buffer(six));
  device.send.memory = rankcast::memory_kind::device;
  wrong(device, "device memory");

  auto counted = make(opcode::all_gather, read_buffer(two), write_buffer(six));
  const std::vector<std::int64_t> few{2, 4};
  counted.counts = few;
  wrong(counted, "2 counts given for a group of 3");
  const std::vector<std::int64_t> negative{2, -1, 5};
  counted.counts = negative;
  wrong(counted, "counts of rank 1 is -1");
  const std::vector<std::int64_t> overflowing{2, std::numeric_limits<std::int64_t>::max(), 2};
  counted.counts = overflowing;
  wrong(counted, "counts of rank 1");
  const std::vector<std::int64_t> more{2, 3, 2};
  counted.counts = more;
  wrong(counted, "6 elements, counts add up to 7");
  const std::vector<std::int64_t> other{3, 1, 2};
  counted.counts = other;
  wrong(counted, "send buffer has 2 elements, counts give this rank 3");
  auto half = make(opcode::all_to_all, read_buffer(six), write_buffer(six));
  half.counts = other;
  wrong(half, "given both or not at all");
}

TEST(operations, overlaps_are_refused) {
  std::vector<int> v(20);
  const auto part = [&](int first, int count) {
    return std::span(v.data() + first, static_cast<std::size_t>(count));
  };
  const auto check = [](opcode code, std::span<int> send, std::span<int> receive) {
    return check_operation(make(code, read_buffer(send), write_buffer(receive), 0), 0, 2);
  };
  EXPECT_EQ(check(opcode::all_reduce, part(0, 5), part(5, 5)), "");
  EXPECT_EQ(check(opcode::all_reduce, part(0, 5), part(0, 5)), "");
  EXPECT_CONTAINS(check(opcode::all_reduce, part(0, 5), part(4, 5)), "overlap in part");
  EXPECT_CONTAINS(check(opcode::all_gather, part(5, 5), part(0, 10)),
                  "overlap in part");  // not rank 0's
  EXPECT_EQ(check(opcode::all_gather, part(0, 5), part(0, 10)), "");
  EXPECT_CONTAINS(check(opcode::scatter, part(0, 10), part(5, 5)), "overlap in part");

  // Even and odd cells interleave without touching.
  rankcast::layout every_second = rankcast::layout::contiguous({5});
  every_second.strides[0] = 2;
  const rankcast::tensor_view even(v.data(), rankcast::dtype::int32, every_second);
  const rankcast::tensor_view odd(v.data() + 1, rankcast::dtype::int32, every_second);
  const rankcast::tensor_view shifted(v.data() + 2, rankcast::dtype::int32, every_second);
  const auto views = [](const auto& a, const auto& b) {
    return check_operation(make(opcode::all_reduce, read_buffer(a), write_buffer(b)), 0, 2);
  };
  EXPECT_EQ(views(even, odd), "");
  EXPECT_EQ(views(even, even), "");
  EXPECT_CONTAINS(views(even, shifted), "overlap in part");

  rankcast::layout repeated = rankcast::layout::contiguous({5});
  repeated.strides[0] = 0;
  const rankcast::tensor_view one_cell(v.data(), rankcast::dtype::int32, repeated);
  const auto far = part(10, 5);
  EXPECT_CONTAINS(
      check_operation(make(opcode::all_reduce, read_buffer(far), write_buffer(one_cell)), 0, 2),
      "visit an address twice");
  EXPECT_EQ(
      check_operation(make(opcode::all_reduce, read_buffer(one_cell), write_buffer(far)), 0, 2),
      "");
}

// `overlap` against brute force on the touched cells.
TEST(operations, overlap_is_exact) {
  std::mt19937 random(8);
  std::vector<int> v(200);
  int overlapping = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    std::vector<int> touched(200);
    std::array<rankcast::buffer, 2> buffers;
    bool both = false;
    for (auto& b : buffers) {
      rankcast::layout l = rankcast::layout::contiguous(
          {static_cast<std::int64_t>(random() % 4), static_cast<std::int64_t>(random() % 5)});
      l.strides = {static_cast<std::int64_t>(random() % 21) - 10,
                   static_cast<std::int64_t>(random() % 9) - 4};
      const auto first = static_cast<std::int64_t>(80 + random() % 25);
      std::vector<bool> mine(200);
      for (std::int64_t i = 0; i < l.extent(0); ++i) {
        for (std::int64_t j = 0; j < l.extent(1); ++j) {
          mine[static_cast<std::size_t>(first + i * l.stride(0) + j * l.stride(1))] = true;
        }
      }
      for (std::size_t i = 0; i < mine.size(); ++i) {
        if (mine[i] && ++touched[i] == 2) both = true;
      }
      b = rankcast::read_buffer(rankcast::tensor_view(v.data() + first, rankcast::dtype::int32, l));
    }
    ASSERT_EQ(rankcast::detail::overlap(buffers[0], buffers[1]), both);
    overlapping += both ? 1 : 0;
  }
  EXPECT_GT(overlapping, 500);
}

}  // namespace
