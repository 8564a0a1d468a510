// Whole rows from sharded logits, against the unsharded rows in float64.
#include "rankcast/parallel/logits.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "rankcast/transports/local/threads.hpp"
#include "sharded_logits.hpp"

namespace {

using namespace logits_for_tests;
using rankcast::communicator;
using rankcast::nothing;
using rankcast::sharded_vocabulary;
using rankcast::tensor;

// An output with columns of its own between the rows, filled with a mark.
struct marked_output {
  static constexpr double mark = 77;
  tensor storage;
  rankcast::tensor_view view;

  marked_output(dtype type, std::int64_t rows, std::int64_t ids)
      : storage(type, {rows + 2, ids + 5}),
        view(rankcast::tensor_view(storage).slice(0, 1, rows).slice(1, 2, ids)) {
    for (std::int64_t r = 0; r < rows + 2; ++r) {
      for (std::int64_t c = 0; c < ids + 5; ++c) store(storage, r, c, mark);
    }
  }
  void expect(const full_logits& full) const {
    for (std::int64_t r = 0; r < storage.extent(0); ++r) {
      for (std::int64_t c = 0; c < storage.extent(1); ++c) {
        const bool inside = r >= 1 && r <= full.rows && c >= 2 && c < full.vocabulary + 2;
        ASSERT_EQ(load(storage.view(), r, c), inside ? full.at(r - 1, c - 2) : mark)
            << "row " << r << " column " << c;
      }
    }
  }
};

TEST(gathering, to_one_rank_writes_the_vocabulary_and_nothing_else) {
  each_layout(4, 131, 0, [](const auto& vocabulary, const auto& mine, const auto& full) {
    const int rank = vocabulary.comm().rank();
    for (int root = 0; root < vocabulary.comm().size(); ++root) {
      for (const dtype type : {full.type, dtype::float32}) {
        marked_output out(type, full.rows, full.vocabulary);
        if (rank == root) rankcast::gather_logits(vocabulary, mine, out.view, {.root = root});
        else rankcast::gather_logits(vocabulary, mine, nothing, {.root = root});
        if (rank == root) out.expect(full);
      }
    }
  });
}

TEST(gathering, to_all_writes_the_vocabulary_and_nothing_else) {
  each_layout(4, 131, 0, [](const auto& vocabulary, const auto& mine, const auto& full) {
    const bool wide = vocabulary.comm().rank() % 2 == 1;  // each rank's own choice
    marked_output out(wide ? dtype::float32 : full.type, full.rows, full.vocabulary);
    rankcast::all_gather_logits(vocabulary, mine, out.view);
    out.expect(full);
  });
}

TEST(gathering, takes_logits_that_were_computed_in_place) {
  const auto full = full_logits::random(6, 20, dtype::float32, 2u);
  rankcast::run(3, [&](communicator& world) {
    const sharded_vocabulary vocabulary(world, 20);
    const rankcast::vocabulary_shard& s = vocabulary.mine();
    marked_output out(dtype::float32, 6, 20);
    const rankcast::tensor_view own = out.view.slice(1, s.first, s.count);
    for (std::int64_t r = 0; r < 6; ++r) {
      for (std::int64_t c = 0; c < s.count; ++c) {
        own.at<float>(r, c) = static_cast<float>(full.at(r, s.first + c));
      }
    }
    rankcast::all_gather_logits(vocabulary, own, out.view);
    out.expect(full);
  });
}

TEST(gathering, moves_each_logit_once_in_its_own_type) {
  const full_logits full(200, 30000, dtype::bfloat16, 1.0);  // several blocks a shard
  rankcast::run(3, [&](communicator& world) {
    const sharded_vocabulary vocabulary(world, 30000);
    const shard_of mine(full, vocabulary.mine(), 0);
    tensor out(dtype::float32, {200, 30000});
    const auto before = world.counters();
    if (world.rank() == 1) rankcast::gather_logits(vocabulary, mine.view, out, {.root = 1});
    else rankcast::gather_logits(vocabulary, mine.view, nothing, {.root = 1});
    const auto after = world.counters();
    const std::uint64_t data = world.rank() == 1 ? 200u * 20000u * 2u : 0u;
    EXPECT_EQ(after.bytes_received - before.bytes_received, data + 2u * 40u);
    if (world.rank() == 1) {
      for (const float x : out.values<float>()) ASSERT_EQ(x, 1.0f);
    }
  });
}

TEST(gathering, that_cannot_be_is_refused_before_data_moves) {
  const auto ones = [](const sharded_vocabulary& v, dtype type) {
    return shard_of(full_logits(2, v.size(), type, 1.0), v.mine(), 0);
  };
  expect_refused<rankcast::usage_error>(
      3, 10, {"root 3", "group of 3"}, [&](const sharded_vocabulary& v) {
        rankcast::gather_logits(v, ones(v, dtype::float32).view, nothing, {.root = 3});
      });
  expect_refused<rankcast::usage_error>(
      3, 10, {"the output is missing"},
      [&](const sharded_vocabulary& v) {
        rankcast::gather_logits(v, ones(v, dtype::float32).view, nothing, {.root = 1});
      },
      1);
  expect_refused<rankcast::usage_error>(
      3, 10, {"wanted (2,10)"},
      [&](const sharded_vocabulary& v) {
        tensor out(dtype::float32, {2, v.comm().rank() == 2 ? 12 : 10});
        rankcast::all_gather_logits(v, ones(v, dtype::float32).view, out);
      },
      2);
  expect_refused<rankcast::usage_error>(
      2, 10, {"output of float16"}, [&](const sharded_vocabulary& v) {
        tensor out(dtype::float16, {2, 10});
        rankcast::all_gather_logits(v, ones(v, dtype::bfloat16).view, out);
      });
  expect_refused<rankcast::mismatch_error>(2, 10, {"root"}, [&](const sharded_vocabulary& v) {
    tensor out(dtype::float32, {2, 10});
    rankcast::gather_logits(v, ones(v, dtype::float32).view, out, {.root = v.comm().rank()});
  });
  expect_refused<rankcast::mismatch_error>(2, 10, {"dtype"}, [&](const sharded_vocabulary& v) {
    tensor out(dtype::float32, {2, 10});
    const dtype type = v.comm().rank() == 0 ? dtype::float16 : dtype::bfloat16;
    rankcast::all_gather_logits(v, ones(v, type).view, out);
  });
  expect_refused<rankcast::usage_error>(2, 10, {"overlap"}, [&](const sharded_vocabulary& v) {
    tensor out(dtype::float32, {2, 10});
    std::memset(rankcast::tensor_view(out).address(), 0, out.bytes());
    rankcast::all_gather_logits(v, out.view().slice(1, 2, 5), out);
  });
}

TEST(gathering, spends_one_budget) {
  using namespace std::chrono_literals;
  std::atomic<bool> over{false};
  rankcast::run(2, [&](communicator& world) {
    const sharded_vocabulary vocabulary(world, 10);
    tensor mine(dtype::float32, {2, vocabulary.mine().width()});
    for (float& x : mine.values<float>()) x = 1;
    tensor out(dtype::float32, {2, 10});
    const auto call = [&](rankcast::timeout limit) {
      rankcast::all_gather_logits(vocabulary, mine.view(), out, {.timeout = limit});
    };
    if (world.rank() == 1) {
      while (!over) std::this_thread::sleep_for(1ms);
      EXPECT_THROW(call(10s), rankcast::error);
      return;
    }
    const auto begin = rankcast::steady_clock::now();
    EXPECT_THROW(call(200ms), rankcast::timeout_error);
    const auto waited = rankcast::steady_clock::now() - begin;
    EXPECT_GE(waited, 200ms);
    EXPECT_LT(waited, 10s);
    over = true;
  });
}

}  // namespace
