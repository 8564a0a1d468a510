/// The transformer against numbers that an independent implementation computed once
/// (tests/reference/make_reference.py), on any number of ranks.
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rankcast/parallel/logits.hpp"
#include "rankcast/transports/local/threads.hpp"
#include "support/reference_models.hpp"
#include "transformer/checkpoint/config.hpp"
#include "transformer/checkpoint/folder.hpp"
#include "transformer/math/threads.hpp"
#include "transformer/model/model.hpp"

namespace rankcast::transformer {
namespace {

using test::read_reference;
using test::scratch_folder;
using test::write_reference_model;

using logit_rows_list = std::vector<std::vector<float>>;

// Logits of every position, whole, on rank 0 of the group.
logit_rows_list all_logits(model& m, const sharded_vocabulary& vocabulary,
                           std::span<const std::int32_t> ids, kv_cache& cache) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  const const_tensor_view mine = m.forward(ids, cache, rows);
  const std::int64_t width = vocabulary.size();
  std::vector<float> whole(static_cast<std::size_t>(rows * width));
  gather_logits(vocabulary, mine, tensor_view(std::span(whole), {rows, width}));
  logit_rows_list result;
  for (std::int64_t r = 0; r < rows; ++r) {
    result.emplace_back(whole.begin() + r * width, whole.begin() + (r + 1) * width);
  }
  return result;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float d = std::fabs(a[i] - b[i]);
    if (!(d <= most)) most = d;  // a NaN counts
  }
  return most;
}

class reference_model : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    reference_ = read_reference("tiny/" + GetParam() + ".json");
    write_reference_model(reference_, folder_.path());
    config_ = read_config(folder_.path());
  }

  template <class F>
  void on_ranks(int ranks, model_options options, F&& body) {
    run(ranks, [&](communicator& world) {
      checkpoint files(folder_.path());
      model m(files, config_, world, options);
      const sharded_vocabulary vocabulary(world, config_.vocab_size);
      body(world, m, vocabulary);
    });
  }

  nlohmann::json reference_;
  scratch_folder folder_;
  model_config config_;
};

// Sums run in another order than the reference's: float32 rounding of logits of size ten.
constexpr float tolerance = 2e-4F;

TEST_P(reference_model, logits_of_every_position_on_one_to_five_ranks) {
  const auto prompts = reference_.at("prompts").get<std::vector<std::vector<std::int32_t>>>();
  const auto expected = reference_.at("logits").get<std::vector<logit_rows_list>>();
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const embedding_cut cut : {embedding_cut::vocabulary, embedding_cut::hidden}) {
      on_ranks(ranks, {.embedding = cut},
               [&](communicator& world, model& m, const sharded_vocabulary& vocabulary) {
                 for (std::size_t p = 0; p < prompts.size(); ++p) {
                   kv_cache cache = m.make_cache(static_cast<std::int64_t>(prompts[p].size()));
                   const logit_rows_list found = all_logits(m, vocabulary, prompts[p], cache);
                   for (std::size_t r = 0; r < found.size() && world.rank() == 0; ++r) {
                     EXPECT_LT(largest_difference(found[r], expected[p][r]), tolerance)
                         << GetParam() << ", " << ranks << " ranks, prompt " << p << ", position "
                         << r;
                   }
                 }
               });
    }
  }
}

TEST_P(reference_model, one_token_at_a_time_gives_the_logits_of_all_at_once) {
  const auto prompts = reference_.at("prompts").get<std::vector<std::vector<std::int32_t>>>();
  const auto expected = reference_.at("logits").get<std::vector<logit_rows_list>>();
  on_ranks(3, {}, [&](communicator& world, model& m, const sharded_vocabulary& vocabulary) {
    for (std::size_t p = 0; p < prompts.size(); ++p) {
      kv_cache cache = m.make_cache(static_cast<std::int64_t>(prompts[p].size()));
      for (std::size_t r = 0; r < prompts[p].size(); ++r) {
        const logit_rows_list found =
            all_logits(m, vocabulary, std::span(&prompts[p][r], 1), cache);
        if (world.rank() != 0) continue;
        EXPECT_LT(largest_difference(found.front(), expected[p][r]), tolerance)
            << GetParam() << ", prompt " << p << ", position " << r;
      }
    }
  });
}

TEST_P(reference_model, greedy_tokens) {
  const auto prompt = reference_.at("prompts").at(0).get<std::vector<std::int32_t>>();
  const auto expected = reference_.at("greedy").get<std::vector<std::int64_t>>();
  for (const int ranks : {1, 2, 4}) {
    on_ranks(ranks, {}, [&](communicator&, model& m, const sharded_vocabulary& vocabulary) {
      kv_cache cache = m.make_cache(static_cast<std::int64_t>(prompt.size() + expected.size()));
      std::vector<std::int32_t> input = prompt;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::int64_t token = argmax(vocabulary, m.forward(input, cache, 1)).front();
        EXPECT_EQ(token, expected[i]) << GetParam() << ", " << ranks << " ranks, step " << i;
        input = {static_cast<std::int32_t>(expected[i])};
      }
    });
  }
}

// The distance is that of rounded weights; a wrong cut would be as large as the logits themselves.
TEST_P(reference_model, bfloat16_weights_stay_near_and_do_not_depend_on_the_ranks) {
  const auto prompt = reference_.at("prompts").at(0).get<std::vector<std::int32_t>>();
  const auto expected = reference_.at("logits").at(0).get<logit_rows_list>();
  logit_rows_list alone;
  for (const int ranks : {1, 2, 5}) {
    on_ranks(ranks, {.type = dtype::bfloat16},
             [&](communicator& world, model& m, const sharded_vocabulary& vocabulary) {
               kv_cache cache = m.make_cache(static_cast<std::int64_t>(prompt.size()));
               const logit_rows_list found = all_logits(m, vocabulary, prompt, cache);
               if (world.rank() != 0) return;
               if (ranks == 1) alone = found;
               for (std::size_t r = 0; r < found.size(); ++r) {
                 EXPECT_LT(largest_difference(found[r], expected[r]), 0.5F) << GetParam();
                 EXPECT_LT(largest_difference(found[r], alone[r]), tolerance) << GetParam();
               }
             });
  }
}

INSTANTIATE_TEST_SUITE_P(families, reference_model,
                         testing::Values("llama", "llama_tied", "llama3_rope", "llama_bias",
                                         "qwen2", "qwen2_window", "mistral_window", "mistral_nemo",
                                         "phi3", "phi3_window", "gpt_neox", "gpt_neox_sequential"),
                         [](const auto& parameter) { return parameter.param; });

TEST(model, weights_per_rank_are_the_shares_of_the_partition_rule) {
  const nlohmann::json reference = read_reference("tiny/llama_tied.json");
  const scratch_folder folder;
  write_reference_model(reference, folder.path());
  const model_config c = read_config(folder.path());
  for (int ranks = 1; ranks <= 5; ++ranks) {
    run(ranks, [&](communicator& world) {
      const int r = world.rank();
      const head_share heads = share_heads(c.heads, c.kv_heads, ranks, r);
      const std::int64_t inner = partition(c.intermediate_size, ranks, r).count;
      const std::int64_t d = c.head_dim;
      const std::int64_t per_layer =
          c.hidden_size * (2 * heads.query.count * d + 2 * heads.kv.count * d + 3 * inner + 2);
      const std::int64_t body = c.layers * per_layer + c.hidden_size;
      const std::int64_t ids = partition(c.vocab_size, ranks, r).count;
      const std::int64_t columns = partition(c.hidden_size, ranks, r).count;
      checkpoint files(folder.path());
      // The tied head is the embedding's own rows; cut by columns, the head needs rows of its own.
      const model by_vocabulary(files, c, world);
      EXPECT_EQ(by_vocabulary.weight_bytes(),
                static_cast<std::size_t>(4 * (body + ids * c.hidden_size)));
      checkpoint again(folder.path());
      const model by_hidden(again, c, world, {.embedding = embedding_cut::hidden});
      EXPECT_EQ(by_hidden.weight_bytes(), static_cast<std::size_t>(4 * (body + ids * c.hidden_size +
                                                                        columns * c.vocab_size)));
      // Each knows what the other would take.
      EXPECT_EQ(by_vocabulary.weight_bytes(embedding_cut::hidden), by_hidden.weight_bytes());
      EXPECT_EQ(by_hidden.weight_bytes(embedding_cut::vocabulary), by_vocabulary.weight_bytes());
    });
  }
}

TEST(model, refuses_what_does_not_fit_on_every_rank) {
  const nlohmann::json reference = read_reference("tiny/llama.json");
  const scratch_folder folder;
  write_reference_model(reference, folder.path());
  const model_config c = read_config(folder.path());
  run(2, [&](communicator& world) {
    checkpoint files(folder.path());
    model m(files, c, world);
    kv_cache cache = m.make_cache(4);
    const std::vector<std::int32_t> outside{1, static_cast<std::int32_t>(c.vocab_size)};
    EXPECT_THROW(static_cast<void>(m.forward(outside, cache, 1)), usage_error);
    const std::vector<std::int32_t> many(5, 1);
    EXPECT_THROW(static_cast<void>(m.forward(many, cache, 1)), usage_error);
    EXPECT_THROW(static_cast<void>(m.forward(std::span(many).first(2), cache, 3)), usage_error);
    // And the group still works.
    EXPECT_EQ(m.forward(std::span(many).first(2), cache, 1).extent(0), 1);
  });
}

TEST(model, refuses_weights_that_it_has_no_use_for) {
  const nlohmann::json reference = read_reference("tiny/llama.json");
  const scratch_folder folder;
  write_json(folder.path() / "config.json", reference.at("config"));
  auto tensors = test::reference_tensors(reference);
  tensors.push_back(random_values({"model.layers.0.self_attn.q_proj.bias", {32}, 0, 1}));
  write_safetensors(folder.path() / "model.safetensors", tensors);
  run(2, [&](communicator& world) {
    checkpoint files(folder.path());
    try {
      const model m(files, read_config(folder.path()), world);
      FAIL() << "loaded";
    } catch (const decode_error& e) {
      EXPECT_NE(std::string(e.what()).find("q_proj.bias"), std::string::npos) << e.what();
    }
  });
}

}  // namespace
}  // namespace rankcast::transformer
