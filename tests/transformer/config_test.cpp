/// config.json of the families that are known: what is read, what is defaulted, what is refused.
#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "rankcast/core/error.hpp"
#include "support/checkpoint_writer.hpp"
#include "transformer/checkpoint/config.hpp"

namespace rankcast::transformer {
namespace {

using rankcast::test::scratch_folder;
using ids = std::vector<std::int64_t>;

/// The smallest right file of a family.
json smallest(const std::string& family) {
  json config = {{"model_type", family},          {"hidden_size", 64},
                 {"intermediate_size", 96},       {"num_hidden_layers", 4},
                 {"num_attention_heads", 8},      {"vocab_size", 100},
                 {"max_position_embeddings", 128}};
  if (family == "gpt_neox") {
    config["layer_norm_eps"] = 1e-5;
  } else {
    config["rms_norm_eps"] = 1e-6;
    config["rope_theta"] = 500000.0;
    config["num_key_value_heads"] = 2;
  }
  return config;
}

model_config read(const json& config, const std::string& generation = "") {
  const scratch_folder folder;
  folder.write("config.json", config.dump());
  if (!generation.empty()) folder.write("generation_config.json", generation);
  return read_config(folder.path());
}

/// The smallest file of a family with some keys set.
json with(const std::string& family, const json& changes) {
  json config = smallest(family);
  config.update(changes);
  return config;
}
json without(const std::string& family, const std::string& key) {
  json config = smallest(family);
  config.erase(key);
  return config;
}

void refused(const json& config, const std::vector<std::string>& words) {
  try {
    static_cast<void>(read(config));
    ADD_FAILURE() << "was read: " << config.dump();
  } catch (const usage_error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("config.json"), std::string::npos) << text;
    for (const std::string& word : words) {
      EXPECT_NE(text.find(word), std::string::npos) << "no " << word << " in: " << text;
    }
  } catch (const std::exception& e) {
    ADD_FAILURE() << "an error of another type: " << e.what();
  }
}

TEST(config, llama) {
  const model_config m = read(smallest("llama"));
  EXPECT_EQ(m.architecture, architecture::llama);
  EXPECT_EQ(m.hidden_size, 64);
  EXPECT_EQ(m.intermediate_size, 96);
  EXPECT_EQ(m.layers, 4);
  EXPECT_EQ(m.heads, 8);
  EXPECT_EQ(m.kv_heads, 2);
  EXPECT_EQ(m.head_dim, 8);
  EXPECT_EQ(m.vocab_size, 100);
  EXPECT_EQ(m.max_positions, 128);
  EXPECT_EQ(m.norm_epsilon, 1e-6);
  EXPECT_EQ(m.activation, activation::silu);
  EXPECT_EQ(m.rope.theta, 500000.0);
  EXPECT_EQ(m.rope.dimensions, 8);
  EXPECT_EQ(m.rope.scaling, rope_scaling::none);
  EXPECT_FALSE(m.tie_word_embeddings);
  EXPECT_FALSE(m.qkv_bias || m.output_bias || m.mlp_bias || m.parallel_residual);
  EXPECT_EQ(m.windows, ids(4, 0));
  EXPECT_EQ(m.bos, -1);
  EXPECT_TRUE(m.eos.empty());
}

TEST(config, llama_options) {
  const model_config m = read(with("llama", {{"head_dim", 12},
                                             {"attention_bias", true},
                                             {"mlp_bias", true},
                                             {"tie_word_embeddings", true},
                                             {"architectures", {"LlamaForCausalLM"}},
                                             {"pretraining_tp", 2},
                                             {"sliding_window", 7},
                                             {"bos_token_id", 1},
                                             {"eos_token_id", {2, 3}}}));
  EXPECT_EQ(m.head_dim, 12);
  EXPECT_EQ(m.rope.dimensions, 12);
  EXPECT_TRUE(m.qkv_bias && m.output_bias && m.mlp_bias && m.tie_word_embeddings);
  EXPECT_EQ(m.windows, ids(4, 0));  // llama has no window, whatever its file says
  EXPECT_EQ(m.bos, 1);
  EXPECT_EQ(m.eos, (ids{2, 3}));
}

TEST(config, null_is_absent) {
  const model_config m = read(with("llama", {{"head_dim", nullptr},
                                             {"num_key_value_heads", nullptr},
                                             {"rope_scaling", nullptr},
                                             {"eos_token_id", nullptr},
                                             {"quantization_config", nullptr}}));
  EXPECT_EQ(m.head_dim, 8);
  EXPECT_EQ(m.kv_heads, 8);
  EXPECT_EQ(read(without("llama", "num_key_value_heads")).kv_heads, 8);
}

TEST(config, architecture) {
  refused(with("llama", {{"model_type", "mamba"}}), {"model_type", "mamba", "llama", "gpt_neox"});
  refused(with("llama", {{"architectures", {"LlamaForSequenceClassification"}}}),
          {"architectures", "LlamaForSequenceClassification", "LlamaForCausalLM"});
  refused(with("llama", {{"architectures", {"Qwen2ForCausalLM"}}}), {"Qwen2ForCausalLM", "llama"});
  refused(with("llama", {{"architectures", json::array()}}), {"architectures"});
  refused(without("llama", "model_type"), {"model_type", "missing"});
  json by_class = without("llama", "model_type");
  by_class["architectures"] = {"MistralForCausalLM"};
  EXPECT_EQ(read(by_class).architecture, architecture::mistral);
  for (const char* family : {"llama", "qwen2", "mistral", "phi3", "gpt_neox"}) {
    EXPECT_EQ(name(read(smallest(family)).architecture), family);
  }
}

TEST(config, sizes) {
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
                          "num_attention_heads", "max_position_embeddings", "rms_norm_eps"}) {
    refused(without("llama", key), {key, "missing"});
    refused(with("llama", {{key, 0}}), {key});
    refused(with("llama", {{key, -8}}), {key, "-8"});
    refused(with("llama", {{key, "8"}}), {key});
    refused(with("llama", {{key, true}}), {key});
  }
  refused(with("llama", {{"hidden_size", 64.0}}), {"hidden_size", "64.0"});
  refused(with("llama", {{"hidden_size", std::int64_t{1} << 31}}), {"hidden_size"});
  refused(with("llama", {{"hidden_size", ~std::uint64_t{0}}}), {"hidden_size"});
  refused(with("llama", {{"num_hidden_layers", 2000000000}}), {"num_hidden_layers"});
  refused(with("llama", {{"num_key_value_heads", 3}}), {"num_key_value_heads", "3", "8"});
  refused(with("llama", {{"num_key_value_heads", 0}}), {"num_key_value_heads"});
  refused(with("llama", {{"num_key_value_heads", 16}}), {"num_key_value_heads"});
  refused(with("llama", {{"hidden_size", 66}}), {"num_attention_heads", "66", "head_dim"});
  EXPECT_EQ(read(with("llama", {{"hidden_size", 66}, {"head_dim", 4}})).head_dim, 4);
  refused(with("llama", {{"head_dim", 2000000000}}), {"head_dim"});
}

TEST(config, theta_is_not_guessed) {
  for (const char* family : {"llama", "qwen2", "mistral", "phi3"}) {
    refused(without(family, "rope_theta"), {"rope_theta", "rope_parameters", "missing"});
    json config = without(family, "rope_theta");
    config["rope_parameters"] = {{"rope_theta", 1e6}, {"rope_type", "default"}};
    EXPECT_EQ(read(config).rope.theta, 1e6);
    config["rope_parameters"] = {{"rope_type", "default"}};
    refused(config, {"rope_theta", "missing"});
    config["rope_parameters"] = {{"rope_theta", 0}};
    refused(config, {"rope_parameters.rope_theta"});
  }
  EXPECT_EQ(read(with("llama", {{"rope_parameters", {{"rope_theta", 500000}}}})).rope.theta, 5e5);
  refused(with("llama", {{"rope_parameters", {{"rope_theta", 1e4}}}}), {"rope_theta", "differ"});
}

TEST(config, rope_scaling) {
  json scaling = {{"rope_type", "llama3"},
                  {"factor", 8.0},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 4.0},
                  {"original_max_position_embeddings", 8192}};
  const auto check = [](const model_config& m) {
    EXPECT_EQ(m.rope.scaling, rope_scaling::llama3);
    EXPECT_EQ(m.rope.factor, 8.0);
    EXPECT_EQ(m.rope.low_frequency_factor, 1.0);
    EXPECT_EQ(m.rope.high_frequency_factor, 4.0);
    EXPECT_EQ(m.rope.original_max_positions, 8192);
  };
  check(read(with("llama", {{"rope_scaling", scaling}})));
  json new_form = scaling;
  new_form["rope_theta"] = 500000.0;
  check(read(with("llama", {{"rope_parameters", new_form}})));
  refused(with("llama", {{"rope_parameters", new_form}, {"rope_scaling", scaling}}),
          {"rope_scaling", "rope_parameters"});
  json old_name = scaling;
  old_name.erase("rope_type");
  refused(with("llama", {{"rope_scaling", old_name}}), {"rope_scaling.rope_type", "missing"});
  old_name["type"] = "llama3";
  check(read(with("llama", {{"rope_scaling", old_name}})));
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    json lacking = scaling;
    lacking.erase(key);
    refused(with("llama", {{"rope_scaling", lacking}}), {std::string("rope_scaling.") + key});
  }
  scaling["high_freq_factor"] = 1.0;
  refused(with("llama", {{"rope_scaling", scaling}}), {"high_freq_factor"});

  const model_config linear =
      read(with("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}));
  EXPECT_EQ(linear.rope.scaling, rope_scaling::linear);
  EXPECT_EQ(linear.rope.factor, 2.0);
  EXPECT_EQ(read(with("llama", {{"rope_scaling", {{"type", "default"}}}})).rope.scaling,
            rope_scaling::none);
  for (const char* type : {"longrope", "su", "yarn", "dynamic", "mrope", "proportional"}) {
    refused(with("llama", {{"rope_scaling", {{"rope_type", type}, {"factor", 2.0}}}}),
            {"rope_scaling.rope_type", type, "llama3"});
    refused(with("phi3", {{"rope_scaling", {{"type", type}, {"factor", 2.0}}}}), {type});
  }
  refused(with("phi3", {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
          {"linear", "phi3"});
  refused(with("llama", {{"rope_scaling", "linear"}}), {"rope_scaling", "not an object"});
  refused(
      with("llama", {{"rope_parameters",
                      {{"full_attention", {{"rope_theta", 1e4}}}, {"rope_type", "per_layer"}}}}),
      {"per_layer"});
}

TEST(config, rotary_dimensions) {
  EXPECT_EQ(read(with("phi3", {{"partial_rotary_factor", 0.75}})).rope.dimensions, 6);
  refused(with("phi3", {{"partial_rotary_factor", 0.4}}), {"partial_rotary_factor", "3 of 8"});
  refused(with("phi3", {{"partial_rotary_factor", 0.01}}), {"partial_rotary_factor"});
  refused(with("phi3", {{"partial_rotary_factor", 1.5}}), {"partial_rotary_factor"});
  refused(with("llama", {{"partial_rotary_factor", 0.5}}), {"partial_rotary_factor", "llama"});
  EXPECT_EQ(read(with("llama", {{"partial_rotary_factor", 1.0}})).rope.dimensions, 8);
  refused(with("llama", {{"head_dim", 9}}), {"9 of 9"});
}

TEST(config, qwen2) {
  model_config m = read(smallest("qwen2"));
  EXPECT_TRUE(m.qkv_bias);
  EXPECT_FALSE(m.output_bias || m.mlp_bias || m.tie_word_embeddings);
  EXPECT_EQ(m.windows, ids(4, 0));
  refused(without("qwen2", "num_key_value_heads"), {"num_key_value_heads", "missing"});

  const json window = {{"sliding_window", 32}, {"max_window_layers", 1}};
  EXPECT_EQ(read(with("qwen2", window)).windows, ids(4, 0));
  json on = with("qwen2", window);
  on["use_sliding_window"] = true;
  EXPECT_EQ(read(on).windows, (ids{0, 32, 32, 32}));
  on["max_window_layers"] = 0;
  EXPECT_EQ(read(on).windows, ids(4, 32));
  on.erase("max_window_layers");  // 28 in the class
  EXPECT_EQ(read(on).windows, ids(4, 0));
  on["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                       "sliding_attention"};
  EXPECT_EQ(read(on).windows, (ids{32, 0, 0, 32}));
  on["layer_types"] = {"sliding_attention"};
  refused(on, {"layer_types"});
  on["layer_types"] = {"sliding_attention", "full_attention", "full_attention", "linear"};
  refused(on, {"layer_types", "linear"});
}

TEST(config, mistral) {
  EXPECT_EQ(read(with("mistral", {{"sliding_window", nullptr}})).windows, ids(4, 0));
  EXPECT_EQ(read(with("mistral", {{"sliding_window", 16}})).windows, ids(4, 16));
  EXPECT_EQ(read(smallest("mistral")).windows, ids(4, 4096));  // of the class
  refused(without("mistral", "num_key_value_heads"), {"num_key_value_heads"});
  EXPECT_EQ(read(with("mistral", {{"num_key_value_heads", nullptr}})).kv_heads, 8);
  refused(with("mistral", {{"attention_bias", true}}), {"attention_bias", "mistral"});
  refused(with("mistral", {{"sliding_window", 0}}), {"sliding_window"});
}

TEST(config, phi3) {
  EXPECT_EQ(read(smallest("phi3")).windows, ids(4, 0));
  EXPECT_EQ(read(with("phi3", {{"sliding_window", 5}})).windows, ids(4, 5));
  EXPECT_FALSE(read(with("phi3", {{"attention_bias", false}})).qkv_bias);
  refused(with("phi3", {{"attention_bias", true}}), {"attention_bias", "phi3"});
}

TEST(config, gpt_neox) {
  const model_config m = read(smallest("gpt_neox"));
  EXPECT_EQ(m.kv_heads, 8);
  EXPECT_EQ(m.norm_epsilon, 1e-5);
  EXPECT_EQ(m.rope.theta, 10000.0);
  EXPECT_EQ(m.rope.dimensions, 2);
  EXPECT_EQ(m.activation, activation::gelu);
  EXPECT_TRUE(m.qkv_bias && m.output_bias && m.mlp_bias && m.parallel_residual);
  EXPECT_FALSE(m.tie_word_embeddings);
  const model_config other = read(with("gpt_neox", {{"rotary_emb_base", 500},
                                                    {"rotary_pct", 1.0},
                                                    {"hidden_act", "gelu_new"},
                                                    {"use_parallel_residual", false},
                                                    {"attention_bias", false}}));
  EXPECT_EQ(other.rope.theta, 500.0);
  EXPECT_EQ(other.rope.dimensions, 8);
  EXPECT_EQ(other.activation, activation::gelu_tanh);
  EXPECT_FALSE(other.qkv_bias || other.output_bias || other.parallel_residual);
  EXPECT_TRUE(other.mlp_bias);
  refused(without("gpt_neox", "layer_norm_eps"), {"layer_norm_eps"});
  refused(with("gpt_neox", {{"hidden_act", "relu"}}), {"hidden_act", "relu"});
  refused(with("gpt_neox", {{"hidden_act", "silu"}}), {"hidden_act", "gpt_neox"});
}

TEST(config, activation) {
  EXPECT_EQ(read(with("llama", {{"hidden_act", "silu"}})).activation, activation::silu);
  refused(with("llama", {{"hidden_act", "gelu"}}), {"hidden_act", "gelu", "llama"});
  refused(with("llama", {{"hidden_act", "relu2"}}), {"hidden_act", "relu2"});
}

TEST(config, quantized_weights_are_refused_by_name) {
  refused(with("llama", {{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}}),
          {"quantization_config", "gptq"});
  refused(with("llama", {{"quantization_config", json::object()}}), {"quantization_config"});
}

TEST(config, end_of_text) {
  const json config = with("llama", {{"eos_token_id", 2}});
  EXPECT_EQ(read(config).eos, (ids{2}));
  EXPECT_EQ(read(config, R"({"eos_token_id":[5,6]})").eos, (ids{5, 6}));
  EXPECT_EQ(read(config, R"({"eos_token_id":7})").eos, (ids{7}));
  EXPECT_EQ(read(config, R"({"eos_token_id":null})").eos, (ids{2}));
  EXPECT_EQ(read(config, R"({})").eos, (ids{2}));
  EXPECT_EQ(read(with("llama", {{"eos_token_id", -1}})).eos, ids());
  EXPECT_EQ(read(with("llama", {{"eos_token_id", 0}})).eos, (ids{0}));
  refused(with("llama", {{"eos_token_id", "</s>"}}), {"eos_token_id"});
  refused(with("llama", {{"eos_token_id", {2, -2}}}), {"eos_token_id", "-2"});
  refused(with("llama", {{"bos_token_id", {1, 2}}}), {"bos_token_id"});
  EXPECT_THROW(static_cast<void>(read(config, R"({"eos_token_id":1.5})")), usage_error);
  EXPECT_THROW(static_cast<void>(read(config, "[]")), decode_error);
}

TEST(config, broken_files) {
  const scratch_folder folder;
  EXPECT_THROW(static_cast<void>(read_config(folder.path())), transport_error);
  for (const char* text :
       {"", "[]", "{", "null", R"({"model_type":"llama","model_type":"llama"})"}) {
    folder.write("config.json", text);
    EXPECT_THROW(static_cast<void>(read_config(folder.path())), decode_error) << text;
  }
}

}  // namespace
}  // namespace rankcast::transformer
