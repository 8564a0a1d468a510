/// Weights from a formula: the same bits in every program that knows a tensor's name. Tests compare
/// with a reference made elsewhere from the same formula; a demonstration without a network runs on
/// a model of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "rankcast/core/reduction.hpp"
#include "transformer/checkpoint/writer.hpp"

namespace rankcast::transformer {

/// A tensor of the formula: element i is offset + (u_i - 0.5) * scale with u_i in [0, 1)
/// drawn from the name and i alone.
struct random_tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  float offset = 0;
  float scale = 1;
};

namespace detail {

inline std::uint64_t splitmix64(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

}  // namespace detail

[[nodiscard]] inline named_values random_values(const random_tensor& t) {
  std::int64_t n = 1;
  for (const std::int64_t extent : t.shape) n *= extent;
  const std::uint64_t seed = rankcast::detail::hash_text(t.name);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t z = detail::splitmix64(seed + i);
    const float u = static_cast<float>(z >> 40U) * 0x1p-24F;
    values[i] = t.offset + (u - 0.5F) * t.scale;
  }
  return {t.name, t.shape, std::move(values)};
}

/// A whole folder: a small Llama with random weights and a tokenizer of single bytes. What it
/// generates is noise; that it is the same noise on any number of ranks is the point.
inline void write_random_model(const std::filesystem::path& folder) {
  constexpr std::int64_t hidden = 144, heads = 9, kv_heads = 3, inner = 384, layers = 4;
  constexpr std::int64_t vocabulary = 258, head_dim = hidden / heads;
  std::filesystem::create_directories(folder);

  std::vector<named_values> tensors;
  const auto matrix = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    tensors.push_back(random_values({name + ".weight", {out, in}, 0.0F, 0.5F}));
  };
  const auto scale = [&](const std::string& name) {
    tensors.push_back(random_values({name + ".weight", {hidden}, 1.0F, 0.25F}));
  };
  matrix("model.embed_tokens", vocabulary, hidden);
  for (std::int64_t l = 0; l < layers; ++l) {
    const std::string layer = "model.layers." + std::to_string(l) + ".";
    matrix(layer + "self_attn.q_proj", heads * head_dim, hidden);
    matrix(layer + "self_attn.k_proj", kv_heads * head_dim, hidden);
    matrix(layer + "self_attn.v_proj", kv_heads * head_dim, hidden);
    matrix(layer + "self_attn.o_proj", hidden, heads * head_dim);
    matrix(layer + "mlp.gate_proj", inner, hidden);
    matrix(layer + "mlp.up_proj", inner, hidden);
    matrix(layer + "mlp.down_proj", hidden, inner);
    scale(layer + "input_layernorm");
    scale(layer + "post_attention_layernorm");
  }
  scale("model.norm");
  write_safetensors(folder / "model.safetensors", tensors);

  write_json(folder / "config.json", {{"architectures", {"LlamaForCausalLM"}},
                                      {"model_type", "llama"},
                                      {"hidden_act", "silu"},
                                      {"hidden_size", hidden},
                                      {"intermediate_size", inner},
                                      {"num_attention_heads", heads},
                                      {"num_key_value_heads", kv_heads},
                                      {"num_hidden_layers", layers},
                                      {"vocab_size", vocabulary},
                                      {"max_position_embeddings", 2048},
                                      {"rms_norm_eps", 1e-5},
                                      {"rope_theta", 10000.0},
                                      {"tie_word_embeddings", true},
                                      {"bos_token_id", 256},
                                      {"eos_token_id", 257}});

  // Byte-level BPE without merges: every byte is a token, written as GPT-2 writes bytes.
  nlohmann::json vocab;
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = printable ? byte : 256 + next++;
    std::string symbol;
    if (code < 128) {
      symbol += static_cast<char>(code);
    } else {
      symbol += static_cast<char>(0xC0 | (code >> 6));
      symbol += static_cast<char>(0x80 | (code & 0x3F));
    }
    vocab[symbol] = byte;
  }
  vocab["<|start|>"] = 256;
  vocab["<|end|>"] = 257;
  const auto special = [](int id, const char* text) {
    return nlohmann::json{{"id", id},           {"content", text}, {"special", true},
                          {"lstrip", false},    {"rstrip", false}, {"single_word", false},
                          {"normalized", false}};
  };
  write_json(
      folder / "tokenizer.json",
      {{"version", "1.0"},
       {"normalizer", nullptr},
       {"post_processor", nullptr},
       {"added_tokens", {special(256, "<|start|>"), special(257, "<|end|>")}},
       {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
       {"decoder", {{"type", "ByteLevel"}}},
       {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}});
}

}  // namespace rankcast::transformer
