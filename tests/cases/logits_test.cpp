// Cases C31 (the head and the pick), C32, C37 and C38: scores and picks from a vocabulary that is
// cut over ranks. This file replaces operator new, to measure memory: it is a program of its own.
#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/collectives/barrier.hpp"
#include "rankcast/parallel/logits.hpp"
#include "rankcast/transports/local/threads.hpp"

namespace {

std::atomic<std::int64_t> bytes_held{0};
std::atomic<std::int64_t> most_bytes_held{0};

void* counted(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  const auto size = static_cast<std::int64_t>(malloc_usable_size(p));
  const std::int64_t now = bytes_held.fetch_add(size) + size;
  std::int64_t most = most_bytes_held.load();
  while (now > most && !most_bytes_held.compare_exchange_weak(most, now)) {
  }
  return p;
}
void give_back(void* p) noexcept {
  if (p == nullptr) return;
  bytes_held.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(p)));
  std::free(p);
}

}  // namespace

void* operator new(std::size_t n) {
  return counted(std::malloc(n));
}
void* operator new(std::size_t n, std::align_val_t a) {
  const auto align = static_cast<std::size_t>(a);
  return counted(std::aligned_alloc(align, (n + align - 1) / align * align));
}
void operator delete(void* p) noexcept {
  give_back(p);
}
void operator delete(void* p, std::size_t) noexcept {
  give_back(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  give_back(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  give_back(p);
}

namespace {

using rankcast::communicator;
using rankcast::dtype;
using rankcast::nothing;
using rankcast::sharded_vocabulary;
using rankcast::tensor;
using rankcast::vocabulary_shard;

template <class F>
void fill(tensor& t, F&& value) {  // value(row, column) as float, rounded to the tensor's type
  for (std::int64_t row = 0; row < t.extent(0); ++row) {
    for (std::int64_t column = 0; column < t.extent(1); ++column) {
      const float v = value(row, column);
      if (t.dtype() == dtype::float16) t.at<rankcast::float16>(row, column) = rankcast::float16(v);
      else if (t.dtype() == dtype::bfloat16) {
        t.at<rankcast::bfloat16>(row, column) = rankcast::bfloat16(v);
      } else {
        t.at<float>(row, column) = v;
      }
    }
  }
}

// The case on its own group, and on a subgroup whose ranks are numbered otherwise than the world's.
template <class F>
void on_groups_of(int ranks, F&& f) {
  rankcast::run(ranks, f);
  rankcast::run(ranks + 1, [&](communicator& world) {
    std::vector<int> members;
    for (int r = ranks; r > 0; --r) members.push_back(r);
    communicator group = world.subgroup(members);
    if (group.is_member()) f(group);
    rankcast::barrier(world);
  });
}

TEST(cases, C31_every_id_of_an_uneven_vocabulary_has_a_head_row_and_can_be_picked) {
  for (const int ranks : {1, 2, 3, 4}) {
    on_groups_of(ranks, [&](communicator& group) {
      const sharded_vocabulary vocabulary(group, 10);
      if (ranks == 4) {
        constexpr std::array<std::int64_t, 4> near_even{3, 3, 2, 2};
        EXPECT_EQ(vocabulary.mine().count, near_even[static_cast<std::size_t>(group.rank())]);
      }
      // Head row i is [i, -i]. Hidden states [1, 0] and [-1, 0] give i and -i for id i; the third
      // gives every row's id twice over.
      const vocabulary_shard& mine = vocabulary.mine();
      constexpr float hidden[3][2] = {{1, 0}, {-1, 0}, {1, -1}};
      tensor logits(dtype::float32, {3, mine.width()});
      fill(logits, [&](std::int64_t row, std::int64_t column) {
        const auto i = static_cast<float>(mine.first + column);
        return hidden[row][0] * i + hidden[row][1] * -i;
      });
      EXPECT_EQ(rankcast::argmax(vocabulary, logits.view()), (std::vector<std::int64_t>{9, 0, 9}));
      tensor all(dtype::float32, {3, 10});
      rankcast::all_gather_logits(vocabulary, logits.view(), all);
      for (std::int64_t i = 0; i < 10; ++i) {
        EXPECT_EQ(all.at<float>(0, i), static_cast<float>(i));
        EXPECT_EQ(all.at<float>(1, i), -static_cast<float>(i));
        EXPECT_EQ(all.at<float>(2, i), 2 * static_cast<float>(i));
      }
      // Ids 0, 7, 8 and 9 win when their logit is the largest, whoever holds them.
      for (const std::int64_t wanted : {0, 7, 8, 9}) {
        fill(logits, [&](std::int64_t, std::int64_t column) {
          return mine.first + column == wanted ? 1.0f : -1.0f;
        });
        EXPECT_EQ(rankcast::argmax(vocabulary, logits.view()),
                  std::vector<std::int64_t>(3, wanted));
        EXPECT_LE(vocabulary.of(vocabulary.owner(wanted)).first, wanted);
        EXPECT_GT(vocabulary.of(vocabulary.owner(wanted)).end(), wanted);
      }
    });
  }
}

TEST(cases, C31_ids_outside_the_vocabulary_are_an_error_on_all_ranks) {
  for (const int ranks : {1, 2, 4}) {
    on_groups_of(ranks, [&](communicator& group) {
      const sharded_vocabulary vocabulary(group, 10);
      tensor logits(dtype::float32, {2, vocabulary.mine().width()});
      fill(logits, [](std::int64_t, std::int64_t) { return 0.0f; });
      for (const std::int64_t wrong : {10, -1}) {
        const std::vector<std::int64_t> targets{0, wrong};
        try {
          (void)rankcast::token_log_probabilities(vocabulary, logits.view(), targets);
          ADD_FAILURE() << "id " << wrong << " was scored";
        } catch (const rankcast::usage_error& e) {
          const std::string text = e.what();
          EXPECT_NE(text.find("target " + std::to_string(wrong)), std::string::npos) << text;
          EXPECT_NE(text.find("row 1"), std::string::npos) << text;
          EXPECT_NE(text.find("vocabulary of 10"), std::string::npos) << text;
        }
        EXPECT_THROW((void)vocabulary.owner(wrong), rankcast::usage_error);
      }
      const std::vector<std::int64_t> right{0, 9};  // and the group works afterwards
      const auto s = rankcast::token_log_probabilities(vocabulary, logits.view(), right);
      EXPECT_NEAR(s.log_probability[1], -2.302585f, 1e-5f);
    });
  }
}

TEST(cases, C32_padding_never_reaches_pick_normaliser_or_caller) {
  constexpr float padding_values[] = {0.0f, 1e30f, -1.0f};
  for (const int ranks : {1, 2, 3, 4}) {
    for (const float padding : padding_values) {
      on_groups_of(ranks, [&](communicator& group) {
        const sharded_vocabulary vocabulary(group,
                                            vocabulary_shard::padded_to(8, 5, ranks, group.rank()));
        const vocabulary_shard& mine = vocabulary.mine();
        tensor logits(dtype::float32, {5, mine.width()});
        fill(logits, [&](std::int64_t, std::int64_t column) {
          return column >= mine.count ? padding : mine.first + column == 3 ? -0.5f : -1.0f;
        });

        EXPECT_EQ(rankcast::argmax(vocabulary, logits.view()), std::vector<std::int64_t>(5, 3));
        const auto top = rankcast::top_k(vocabulary, logits.view(), 8);
        EXPECT_EQ(top.k, 5);
        EXPECT_EQ(std::vector<std::int64_t>(top.id.begin(), top.id.begin() + 5),
                  (std::vector<std::int64_t>{3, 0, 1, 2, 4}));
        for (std::uint64_t step = 0; step < 20; ++step) {
          for (const double top_p : {1.0, 0.95}) {
            for (const std::int64_t id :
                 rankcast::sample(vocabulary, logits.view(), {.top_p = top_p, .step = step})) {
              EXPECT_TRUE(id >= 0 && id < 5) << id;
            }
          }
        }

        const std::vector<std::int64_t> targets{0, 1, 2, 3, 4};
        const auto s = rankcast::token_log_probabilities(vocabulary, logits.view(), targets);
        double total = 0;
        for (std::size_t i = 0; i < 5; ++i) {
          total += std::exp(static_cast<double>(s.log_probability[i]));
          EXPECT_EQ(s.best_id[i], 3);
          EXPECT_EQ(s.is_greedy[i], i == 3 ? 1 : 0);
        }
        EXPECT_NEAR(total, 1.0, 1e-6);
        EXPECT_THROW((void)rankcast::token_log_probabilities(vocabulary, logits.view(),
                                                             std::vector<std::int64_t>(5, 5)),
                     rankcast::usage_error);

        for (int root = 0; root < ranks; ++root) {
          tensor all(dtype::float32, {5, 5});
          if (group.rank() == root) {
            rankcast::gather_logits(vocabulary, logits.view(), all, {.root = root});
            for (std::int64_t i = 0; i < 5; ++i) {
              EXPECT_EQ(all.at<float>(4, i), i == 3 ? -0.5f : -1.0f);
            }
          } else {
            rankcast::gather_logits(vocabulary, logits.view(), nothing, {.root = root});
          }
        }
        // A caller that asks for the padded width is told so.
        tensor wide(dtype::float32, {5, 8});
        EXPECT_THROW(rankcast::all_gather_logits(vocabulary, logits.view(), wide),
                     rankcast::usage_error);
      });
    }
  }
}

TEST(cases, C37_scores_of_given_tokens_by_hand) {
  on_groups_of(2, [](communicator& group) {
    const sharded_vocabulary vocabulary(group, 4);
    tensor logits(dtype::float32, {1, 2});
    fill(logits, [&](std::int64_t, std::int64_t column) {
      return std::log(static_cast<float>(1 + 2 * group.rank() + column));
    });
    for (const auto& [target, right] : {std::pair{2, -1.2039728f}, std::pair{3, -0.9162907f}}) {
      const std::vector<std::int32_t> targets{target};
      const auto s = rankcast::token_log_probabilities(vocabulary, logits.view(), targets);
      EXPECT_NEAR(s.log_probability[0], right, 1e-6f);
      EXPECT_EQ(s.best_id[0], 3);
      EXPECT_EQ(s.is_greedy[0], target == 3 ? 1 : 0);
    }
  });
}

// Most bytes that a group of 4 ranks held at once during f, above what it held before.
template <class F>
std::int64_t extra_bytes(communicator& group, F&& f) {
  static std::atomic<std::int64_t> before;
  rankcast::barrier(group);
  if (group.rank() == 0) {
    before = bytes_held.load();
    most_bytes_held = bytes_held.load();
  }
  rankcast::barrier(group, {.completion = rankcast::completion::everyone});
  f();
  rankcast::barrier(group, {.completion = rankcast::completion::everyone});
  const std::int64_t extra = most_bytes_held - before;
  rankcast::barrier(group, {.completion = rankcast::completion::everyone});
  return extra;
}

TEST(cases, C37_memory_and_bytes_sent_do_not_grow_with_the_vocabulary) {
  constexpr std::int64_t batch = 1;
  constexpr std::int64_t sequence = 512;
  std::vector<std::uint64_t> bytes_sent;
  for (const std::int64_t ids : {320, 32000}) {
    std::uint64_t sent = 0;
    rankcast::run(4, [&](communicator& group) {
      const sharded_vocabulary vocabulary(group, ids);
      tensor logits(dtype::float32, {batch * sequence, vocabulary.mine().width()});
      std::memset(logits.view().address(), 0, logits.bytes());
      const std::vector<std::int64_t> targets(batch * sequence, 3);

      const std::uint64_t sent_before = group.counters().bytes_sent;
      const std::int64_t extra = extra_bytes(group, [&] {
        const auto s = rankcast::token_log_probabilities(vocabulary, logits.view(), targets);
        EXPECT_NEAR(s.log_probability[511], -std::log(static_cast<float>(ids)), 1e-4f);
      });
      const std::uint64_t mine = group.counters().bytes_sent - sent_before;
      EXPECT_LE(mine, static_cast<std::uint64_t>(batch * sequence * 16 + 64));
      // All four ranks together, the transport's staging included; whole logits are 62 MiB a rank.
      EXPECT_LE(extra, 400 * 1024);
      if (group.rank() == 0) {
        sent = mine;
        ::testing::Test::RecordProperty("extra_bytes_" + std::to_string(ids),
                                        std::to_string(extra));
      }
    });
    bytes_sent.push_back(sent);
  }
  EXPECT_EQ(bytes_sent[0], bytes_sent[1]);
}

TEST(cases, C37_whole_logits_are_a_request_of_their_own_and_need_no_second_copy) {
  constexpr std::int64_t rows = 512;
  constexpr std::int64_t ids = 32000;
  rankcast::run(4, [&](communicator& group) {
    const sharded_vocabulary vocabulary(group, ids);
    const vocabulary_shard& mine = vocabulary.mine();
    tensor logits(dtype::bfloat16, {rows, mine.width()});
    fill(logits, [&](std::int64_t, std::int64_t column) {
      return static_cast<float>((mine.first + column) % 128);
    });
    tensor same;
    tensor wide;
    if (group.rank() == 2) {
      same = tensor(dtype::bfloat16, {rows, ids});
      wide = tensor(dtype::float32, {rows, ids});
    }
    const std::uint64_t sent_before = group.counters().bytes_sent;
    const std::int64_t extra = extra_bytes(group, [&] {
      if (group.rank() == 2) rankcast::gather_logits(vocabulary, logits.view(), same, {.root = 2});
      else rankcast::gather_logits(vocabulary, logits.view(), nothing, {.root = 2});
    });
    EXPECT_LE(extra, 64 * 1024);
    const std::uint64_t sent = group.counters().bytes_sent - sent_before;
    const std::uint64_t share =
        group.rank() == 2 ? 0u : 512u * 8000u * 2u;  // its own columns, once
    EXPECT_GE(sent, share);
    EXPECT_LE(sent, share + 256);

    const std::int64_t extra_wide = extra_bytes(group, [&] {
      if (group.rank() == 2) rankcast::gather_logits(vocabulary, logits.view(), wide, {.root = 2});
      else rankcast::gather_logits(vocabulary, logits.view(), nothing, {.root = 2});
    });
    EXPECT_LE(extra_wide, 1024 * 1024 + 64 * 1024);  // one block of rows, on its way to float32
    if (group.rank() == 2) {
      EXPECT_EQ(static_cast<float>(same.at<rankcast::bfloat16>(511, 31999)), 127.0f);
      EXPECT_EQ(wide.at<float>(511, 31999), 127.0f);
      ::testing::Test::RecordProperty("extra_bytes", std::to_string(extra));
      ::testing::Test::RecordProperty("extra_bytes_to_float32", std::to_string(extra_wide));
    }
  });
}

TEST(cases, C38_equal_logits_of_a_large_vocabulary_in_every_type) {
  for (const dtype type : {dtype::float16, dtype::bfloat16, dtype::float32}) {
    for (const int ranks : {1, 2, 3, 4}) {
      on_groups_of(ranks, [&](communicator& group) {
        const sharded_vocabulary vocabulary(group, 151936);
        tensor logits(type, {1, vocabulary.mine().width()});
        std::memset(logits.view().address(), 0, logits.bytes());
        for (const std::int64_t target : {0, 151935}) {
          const auto s = rankcast::token_log_probabilities(vocabulary, logits.view(),
                                                           std::vector<std::int64_t>{target});
          EXPECT_NEAR(s.log_probability[0], -11.931215f, 1e-4f) << rankcast::name(type);
          EXPECT_NEAR(s.log_normalizer[0], 11.931215f, 1e-4f);
          EXPECT_EQ(s.best_id[0], 0);
        }
      });
    }
  }
}

TEST(cases, C38_a_logit_near_the_end_of_float16_stays_finite) {
  for (const int ranks : {1, 2}) {
    on_groups_of(ranks, [&](communicator& group) {
      const sharded_vocabulary vocabulary(group, 2);
      const vocabulary_shard& mine = vocabulary.mine();
      tensor logits(dtype::float16, {2, mine.width()});
      fill(logits, [&](std::int64_t, std::int64_t column) {
        return mine.first + column == 0 ? 60000.0f : 0.0f;
      });
      const std::vector<std::int64_t> targets{0, 1};
      const auto s = rankcast::token_log_probabilities(vocabulary, logits.view(), targets);
      EXPECT_EQ(s.log_probability[0], 0.0f);
      EXPECT_EQ(s.log_probability[1], -60000.0f);
    });
  }
}

}  // namespace
