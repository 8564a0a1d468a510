/// Cases of tensor-parallel layers and their weights: C28, C29, C31, C52, C53 (forward and load).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rankcast/parallel/logits.hpp"
#include "rankcast/transports/local/threads.hpp"
#include "support/reference_models.hpp"
#include "transformer/checkpoint/config.hpp"
#include "transformer/checkpoint/folder.hpp"
#include "transformer/model/families.hpp"
#include "transformer/model/mlp.hpp"
#include "transformer/model/model.hpp"
#include "transformer/parallel/embedding.hpp"
#include "transformer/parallel/linear.hpp"

namespace rankcast::transformer {
namespace {

using test::scratch_folder;

struct written_folder {
  explicit written_folder(const std::vector<named_values>& tensors) {
    write_safetensors(folder.path() / "model.safetensors", tensors);
  }
  scratch_folder folder;
};

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(cases, C28_row_bias_is_added_once) {
  const written_folder w({{"row.weight", {1, 4}, {1, 1, 1, 1}}, {"row.bias", {1}, {10}}});
  for (const int ranks : {1, 2, 3, 4}) {
    run(ranks, [&](communicator& world) {
      checkpoint files(w.folder.path());
      const placement input = placement::sharded(1, partition_counts(4, ranks));
      row_linear layer(world, "row", 1, input, {.bias = true});
      layer.partition(files);
      const std::vector<float> x(static_cast<std::size_t>(input.share(world.rank()).count), 1.0F);
      float y = 0;
      layer.forward(x.data(), 1, &y);
      EXPECT_EQ(y, 14.0F) << ranks << " ranks, rank " << world.rank();
    });
  }
}

TEST(cases, C28_row_input_must_be_sharded_over_its_columns) {
  run(2, [](communicator& world) {
    EXPECT_THROW(row_linear(world, "row", 1, placement::replicated(), {}), usage_error);
    EXPECT_THROW(row_linear(world, "row", 1, placement::sharded(0, {2, 2}), {}), usage_error);
    EXPECT_THROW(row_linear(world, "row", 1, placement::sharded(1, {4}), {}), usage_error);
  });
}

TEST(cases, C29_more_ranks_than_kv_heads) {
  // 8 query heads on 2 KV heads: with 4 ranks, rank r reads KV head r / 2.
  for (int r = 0; r < 4; ++r) {
    const head_share s = share_heads(8, 2, 4, r);
    EXPECT_EQ(s.query, (slice{2 * r, 2}));
    EXPECT_EQ(s.kv, (slice{r / 2, 1}));
  }
  // With 3 ranks whole query heads, near-even, and the KV heads that they read.
  EXPECT_EQ(share_heads(8, 2, 3, 0).query, (slice{0, 3}));
  EXPECT_EQ(share_heads(8, 2, 3, 0).kv, (slice{0, 1}));
  EXPECT_EQ(share_heads(8, 2, 3, 1).query, (slice{3, 3}));
  EXPECT_EQ(share_heads(8, 2, 3, 1).kv, (slice{0, 2}));
  EXPECT_EQ(share_heads(8, 2, 3, 1).kv_of(0), 0);
  EXPECT_EQ(share_heads(8, 2, 3, 1).kv_of(1), 1);
  EXPECT_EQ(share_heads(8, 2, 3, 2).query, (slice{6, 2}));
  EXPECT_EQ(share_heads(8, 2, 3, 2).kv, (slice{1, 1}));
}

TEST(cases, C29_the_model_gives_the_same_at_every_size_or_refuses) {
  const nlohmann::json reference = test::read_reference("tiny/llama.json");  // 8 and 2 heads of 4
  const scratch_folder folder;
  test::write_reference_model(reference, folder.path());
  const model_config config = read_config(folder.path());
  ASSERT_EQ(config.heads, 8);
  ASSERT_EQ(config.kv_heads, 2);
  const auto prompt = reference.at("prompts").at(0).get<std::vector<std::int32_t>>();
  const auto expected = reference.at("logits").at(0).get<std::vector<std::vector<float>>>();
  for (const int ranks : {1, 3, 4, 8}) {
    run(ranks, [&](communicator& world) {
      checkpoint files(folder.path());
      model m(files, config, world);
      const sharded_vocabulary vocabulary(world, config.vocab_size);
      kv_cache cache = m.make_cache(static_cast<std::int64_t>(prompt.size()));
      std::vector<float> whole(static_cast<std::size_t>(config.vocab_size));
      gather_logits(vocabulary, m.forward(prompt, cache, 1),
                    tensor_view(std::span(whole), {1, config.vocab_size}));
      for (std::size_t i = 0; i < whole.size() && world.rank() == 0; ++i) {
        EXPECT_NEAR(whole[i], expected.back()[i], 2e-4F) << ranks << " ranks, id " << i;
      }
    });
  }
  run(16, [&](communicator& world) {
    checkpoint files(folder.path());
    const std::string text = message_of([&] { const model m(files, config, world); });
    EXPECT_NE(text.find("8 query heads"), std::string::npos) << text;
    EXPECT_NE(text.find("16 tensor-parallel ranks"), std::string::npos) << text;
    EXPECT_NE(text.find("1 to 8 ranks work"), std::string::npos) << text;
  });
}

TEST(cases, C31_every_id_belongs_to_a_rank) {
  std::vector<float> rows;
  for (int i = 0; i < 10; ++i) {
    rows.push_back(static_cast<float>(i));
    rows.push_back(static_cast<float>(-i));
  }
  const written_folder w({{"table.weight", {10, 2}, rows}});
  for (const int ranks : {1, 2, 3, 4, 7}) {
    run(ranks, [&](communicator& world) {
      checkpoint files(w.folder.path());
      vocabulary_embedding by_vocabulary(world, "table", 10, 2, dtype::float32);
      hidden_embedding by_hidden(world, "table", 10, 2, dtype::float32);
      by_vocabulary.partition(files);
      by_hidden.partition(files);
      for (const embedding* table : {static_cast<const embedding*>(&by_vocabulary),
                                     static_cast<const embedding*>(&by_hidden)}) {
        const std::vector<std::int32_t> ids{0, 7, 8, 9};
        std::vector<float> found(8, 99.0F);
        table->forward(ids, found.data());
        EXPECT_EQ(found, (std::vector<float>{0, 0, 7, -7, 8, -8, 9, -9})) << ranks;
        for (const std::int32_t wrong : {10, -1}) {
          const std::vector<std::int32_t> one{wrong};
          const std::string text = message_of([&] { table->forward(one, found.data()); });
          EXPECT_NE(text.find("id " + std::to_string(wrong)), std::string::npos) << text;
          EXPECT_NE(text.find("10 ids"), std::string::npos) << text;
        }
      }

      // The output head over the same rows: x = [1, 0] gives id i the logit i.
      const slice mine = partition(10, ranks, world.rank());
      column_linear head(world, {{"table", 10, {mine}}}, 2, {},
                         placement::sharded(0, partition_counts(10, ranks)));
      head.partition(files);
      ASSERT_EQ(head.out(), mine.count);
      const std::vector<float> x{1, 0};
      std::vector<float> y(static_cast<std::size_t>(mine.count));
      head.forward(x.data(), 1, y.data());
      for (std::int64_t i = 0; i < mine.count; ++i) {
        EXPECT_EQ(y[static_cast<std::size_t>(i)], static_cast<float>(mine.first + i));
      }
      const tensor whole = head.gather();
      EXPECT_TRUE(std::equal(rows.begin(), rows.end(), whole.values<float>().begin()));
    });
  }
  EXPECT_EQ(partition_counts(10, 4), (std::vector<std::int64_t>{3, 3, 2, 2}));
}

// A Llama whose head is tied or not, and stored or not.
class tied_head : public testing::Test {
 protected:
  void write(bool tied, bool stored, float head_offset) {
    nlohmann::json reference = test::read_reference("tiny/llama.json");
    reference["config"]["tie_word_embeddings"] = tied;
    config_json_ = reference.at("config");
    auto tensors = test::reference_tensors(reference);
    std::erase_if(tensors, [](const named_values& t) { return t.name == "lm_head.weight"; });
    const auto table = std::find_if(tensors.begin(), tensors.end(), [](const named_values& t) {
      return t.name == "model.embed_tokens.weight";
    });
    if (stored) {
      named_values head = *table;
      head.name = "lm_head.weight";
      head.values.back() += head_offset;
      tensors.push_back(head);
    }
    write_json(folder_.path() / "config.json", config_json_);
    write_safetensors(folder_.path() / "model.safetensors", tensors);
  }

  std::vector<float> logits(int ranks) {
    std::vector<float> whole;
    run(ranks, [&](communicator& world) {
      const model_config config = read_config(folder_.path());
      checkpoint files(folder_.path());
      model m(files, config, world);
      const sharded_vocabulary vocabulary(world, config.vocab_size);
      kv_cache cache = m.make_cache(3);
      const std::vector<std::int32_t> ids{3, 1, 4};
      std::vector<float> mine(static_cast<std::size_t>(config.vocab_size));
      gather_logits(vocabulary, m.forward(ids, cache, 1),
                    tensor_view(std::span(mine), {1, config.vocab_size}));
      if (world.rank() == 0) whole = mine;
    });
    return whole;
  }

  // What each rank is told when it loads the folder.
  std::vector<std::string> errors(int ranks) {
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    run(ranks, [&](communicator& world) {
      texts[static_cast<std::size_t>(world.rank())] = message_of([&] {
        checkpoint files(folder_.path());
        const model m(files, read_config(folder_.path()), world);
      });
    });
    return texts;
  }

  scratch_folder folder_;
  nlohmann::json config_json_;
};

TEST_F(tied_head, C52_a_tied_head_is_the_embedding) {
  // Untied, with the embedding stored as the head too: the same model, spelled out.
  write(false, true, 0);
  const std::vector<float> spelled_out = logits(1);
  for (const int ranks : {1, 2}) {
    write(true, false, 0);
    const std::vector<float> tied = logits(ranks);
    ASSERT_EQ(tied.size(), spelled_out.size());
    for (std::size_t i = 0; i < tied.size(); ++i) {
      EXPECT_NEAR(tied[i], spelled_out[i], 2e-5F) << ranks << " ranks, id " << i;
    }
    write(true, true, 0);  // tied and stored, equal: fine
    EXPECT_EQ(logits(ranks).size(), tied.size());
  }
}

TEST_F(tied_head, C52_a_missing_or_different_head_is_an_error_on_every_rank) {
  for (const int ranks : {1, 2}) {
    write(false, false, 0);
    for (const std::string& text : errors(ranks)) {
      EXPECT_NE(text.find("lm_head.weight"), std::string::npos) << text;
      EXPECT_NE(text.find("missing"), std::string::npos) << text;
    }
    write(true, true, 1.0F);
    for (const std::string& text : errors(ranks)) {
      EXPECT_NE(text.find("lm_head.weight"), std::string::npos) << text;
      EXPECT_NE(text.find("differ"), std::string::npos) << text;
    }
  }
}

// Gate and up projections whose row i holds the one weight 100 + i (gate) or 200 + i (up), so that
// an input of 1 shows which rows a rank holds.
void check_gate_and_up(std::int64_t width, bool fused, int ranks) {
  std::vector<float> gate;
  std::vector<float> up;
  for (std::int64_t i = 0; i < width; ++i) {
    gate.push_back(static_cast<float>(100 + i));
    up.push_back(static_cast<float>(200 + i));
  }
  std::vector<float> both = gate;
  both.insert(both.end(), up.begin(), up.end());
  const written_folder w({{"gate.weight", {width, 1}, gate},
                          {"up.weight", {width, 1}, up},
                          {"gate_up.weight", {2 * width, 1}, both}});
  run(ranks, [&](communicator& world) {
    checkpoint files(w.folder.path());
    const slice mine = partition(width, ranks, world.rank());
    std::vector<row_source> sources;
    if (fused) sources = {{"gate_up", 2 * width, {mine, {width + mine.first, mine.count}}}};
    else sources = {{"gate", width, {mine}}, {"up", width, {mine}}};
    column_linear layer(world, sources, 1, {});
    layer.partition(files);
    std::vector<float> expected;
    for (std::int64_t i = mine.first; i < mine.end(); ++i)
      expected.push_back(static_cast<float>(100 + i));
    for (std::int64_t i = mine.first; i < mine.end(); ++i)
      expected.push_back(static_cast<float>(200 + i));
    const float x = 1;
    std::vector<float> y(expected.size());
    layer.forward(&x, 1, y.data());
    EXPECT_EQ(y, expected) << "width " << width << ", fused " << fused << ", " << ranks << " ranks";
    // Its parts do not tile the stored weight in rank order: gathering is refused by name.
    EXPECT_FALSE(layer.can_gather());
    EXPECT_NE(message_of([&] { static_cast<void>(layer.gather()); }).find(layer.name()),
              std::string::npos);
  });
}

TEST(cases, C53_gate_and_up_are_cut_each_by_itself) {
  for (const bool fused : {false, true}) {
    for (const int ranks : {1, 2, 4}) check_gate_and_up(4, fused, ranks);
    for (const int ranks : {1, 2, 3, 4, 5}) check_gate_and_up(5, fused, ranks);  // uneven: 3 and 2
  }
}

TEST(cases, C53_fused_families_take_the_same_rows_as_unfused) {
  model_config config;
  config.architecture = architecture::phi3;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.intermediate_size = 5;
  const head_share heads = share_heads(6, 2, 2, 1);
  const slice inner = partition(5, 2, 1);
  const layer_names names = layer_names_of(config, 0, heads, inner);
  ASSERT_EQ(names.qkv.size(), 1U);
  EXPECT_EQ(names.qkv[0].rows, 6 * 8 + 2 * 2 * 8);
  EXPECT_EQ(names.qkv[0].taken, (std::vector<slice>{{24, 24}, {48 + 8, 8}, {64 + 8, 8}}));
  ASSERT_EQ(names.mlp_input.size(), 1U);
  EXPECT_EQ(names.mlp_input[0].taken, (std::vector<slice>{{3, 2}, {5 + 3, 2}}));
}

}  // namespace
}  // namespace rankcast::transformer
