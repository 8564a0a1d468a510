/// SmolLM2-135M, the real one, against the numbers of an independent implementation on the same
/// weights. Skipped where `tools/get-model smollm2-135m` has not been run.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rankcast/collectives/barrier.hpp"
#include "rankcast/parallel/logits.hpp"
#include "rankcast/parallel/mesh.hpp"
#include "rankcast/transports/local/threads.hpp"
#include "support/reference_models.hpp"
#include "transformer/checkpoint/config.hpp"
#include "transformer/checkpoint/folder.hpp"
#include "transformer/math/threads.hpp"
#include "transformer/model/model.hpp"
#include "transformer/tokenizer/tokenizer.hpp"

namespace rankcast::transformer {
namespace {

constexpr float logit_tolerance = 1e-3F;  // promised, in float32
constexpr float tie_margin = 1e-3F;

class smollm2 : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test::model_folder("smollm2-135m");
    if (!std::filesystem::exists(folder_ / "model.safetensors")) {
      GTEST_SKIP() << "no " << folder_ << ": run tools/get-model smollm2-135m";
    }
    reference_ = test::read_reference("smollm2_135m.json");
    config_ = read_config(folder_);
  }

  std::filesystem::path folder_;
  nlohmann::json reference_;
  model_config config_;
};

// The last position's logits, and the likeliest id of every position.
void check_prompt(model& m, const sharded_vocabulary& vocabulary, const nlohmann::json& prompt,
                  bool speaks) {
  const auto ids = prompt.at("ids").get<std::vector<std::int32_t>>();
  const auto rows = static_cast<std::int64_t>(ids.size());
  const std::int64_t width = vocabulary.size();
  kv_cache cache = m.make_cache(rows);
  const const_tensor_view mine = m.forward(ids, cache, rows);
  const top_tokens best = top_k(vocabulary, mine, 1);
  std::vector<float> last(static_cast<std::size_t>(width));
  all_gather_logits(vocabulary, mine.slice(0, rows - 1, 1),
                    tensor_view(std::span(last), {1, width}));
  if (!speaks) return;
  const auto& top1 = prompt.at("top1");
  for (std::size_t r = 0; r < ids.size(); ++r) {
    EXPECT_EQ(best.id[r], top1[r].at(0).get<std::int64_t>()) << "position " << r;
    EXPECT_NEAR(best.logit[r], top1[r].at(1).get<float>(), logit_tolerance) << "position " << r;
  }
  const auto sampled = prompt.at("last_logits").get<std::vector<float>>();
  for (std::size_t i = 0; i < sampled.size(); ++i) {
    EXPECT_NEAR(last[i * 97], sampled[i], logit_tolerance) << "id " << i * 97;
  }
  for (const auto& top : prompt.at("last_top10")) {
    EXPECT_NEAR(last[top.at(0).get<std::size_t>()], top.at(1).get<float>(), logit_tolerance);
  }
}

// 64 greedy tokens; where the reference's two best are a tie, either is right.
void check_greedy(model& m, const sharded_vocabulary& vocabulary, const nlohmann::json& prompt,
                  bool speaks) {
  const auto expected = prompt.at("greedy").get<std::vector<std::int32_t>>();
  const auto margins = prompt.at("greedy_margins").get<std::vector<float>>();
  auto input = prompt.at("ids").get<std::vector<std::int32_t>>();
  kv_cache cache = m.make_cache(static_cast<std::int64_t>(input.size() + expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::int64_t token = argmax(vocabulary, m.forward(input, cache, 1)).front();
    if (speaks && margins[i] >= tie_margin) {
      EXPECT_EQ(token, expected[i]) << "step " << i;
    }
    input = {expected[i]};
  }
}

class smollm2_on_ranks : public smollm2, public testing::WithParamInterface<int> {};

TEST_P(smollm2_on_ranks, logits_and_greedy_tokens_are_the_reference) {
  const int ranks = GetParam();
  run(ranks, [&](communicator& world) {
    const scoped_threads threads(compute_threads(ranks));
    checkpoint files(folder_);
    model m(files, config_, world);
    const sharded_vocabulary vocabulary(world, config_.vocab_size);
    const bool speaks = world.rank() == 0;
    for (const auto& prompt : reference_.at("prompts")) {
      check_prompt(m, vocabulary, prompt, speaks);
      if (prompt.contains("greedy")) check_greedy(m, vocabulary, prompt, speaks);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(ranks, smollm2_on_ranks, testing::Values(1, 2, 3, 4));

TEST_F(smollm2, two_groups_of_two_ranks_generate_their_own_prompts) {
  run(4, [&](communicator& world) {
    const mesh grid(world, {.data = 2, .tensor = 2});
    checkpoint files(folder_);
    model m(files, config_, grid.tensor());
    barrier(world, {.timeout = std::chrono::minutes(5)});
    const sharded_vocabulary vocabulary(grid.tensor(), config_.vocab_size);
    const auto mine = static_cast<std::size_t>(grid.coordinates().data);
    check_greedy(m, vocabulary, reference_.at("prompts").at(mine), grid.tensor().rank() == 0);
    barrier(world, {.timeout = std::chrono::minutes(5)});
  });
}

TEST_F(smollm2, weights_are_shared_out) {
  run(2, [&](communicator& world) {
    checkpoint files(folder_);
    const model m(files, config_, world);
    // Rank 0 has 5 query and 2 KV heads, rank 1 has 4 and 2; the KV head between them is on both.
    const std::int64_t hidden = 576;
    const std::int64_t heads = world.rank() == 0 ? 5 : 4;
    const std::int64_t layer = hidden * (2 * heads * 64 + 2 * 2 * 64 + 3 * 768 + 2);
    const std::int64_t expected = 4 * (30 * layer + hidden + 24576 * hidden);
    EXPECT_EQ(m.weight_bytes(), static_cast<std::size_t>(expected));
  });
}

TEST_F(smollm2, prompts_have_the_ids_of_the_reference) {
  const tokenizer text = tokenizer::from_folder(folder_);
  for (const auto& prompt : reference_.at("prompts")) {
    EXPECT_EQ(text.encode(prompt.at("text").get<std::string>()),
              prompt.at("ids").get<std::vector<int>>());
  }
}

}  // namespace
}  // namespace rankcast::transformer
