/// What each family calls its weights and how it fuses them: the only place that knows.
#pragma once

#include <string>
#include <vector>

#include "rankcast/core/partition.hpp"
#include "transformer/checkpoint/config.hpp"
#include "transformer/parallel/heads.hpp"
#include "transformer/parallel/linear.hpp"

namespace rankcast::transformer {

/// The tensors of one decoder layer as one rank takes them; names without ".weight".
struct layer_names {
  std::vector<row_source> qkv;
  std::string attention_output;
  std::vector<row_source> mlp_input;  // gate and up, or the one input of a plain MLP
  std::string mlp_output;
  std::string attention_norm;
  std::string mlp_norm;
};

struct model_names {
  std::string embedding;
  std::string final_norm;
  std::string head;
};

[[nodiscard]] inline model_names names_of(const model_config& config) {
  if (config.architecture == architecture::gpt_neox) {
    return {"gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out"};
  }
  return {"model.embed_tokens", "model.norm", "lm_head"};
}

[[nodiscard]] inline layer_names layer_names_of(const model_config& config, std::int64_t layer,
                                                const head_share& heads, slice mlp) {
  const std::int64_t d = config.head_dim;
  const std::int64_t query_rows = config.heads * d;
  const std::int64_t kv_rows = config.kv_heads * d;
  const slice query{heads.query.first * d, heads.query.count * d};
  const slice kv{heads.kv.first * d, heads.kv.count * d};
  const std::int64_t inner = config.intermediate_size;

  if (config.architecture == architecture::gpt_neox) {
    const std::string prefix = "gpt_neox.layers." + std::to_string(layer) + ".";
    // query_key_value interleaves by head: q, k and v of head 0, then of head 1, ...
    row_source fused{prefix + "attention.query_key_value", 3 * query_rows, {}};
    for (std::int64_t part = 0; part < 3; ++part) {
      for (std::int64_t h = heads.query.first; h < heads.query.end(); ++h) {
        fused.taken.push_back({(3 * h + part) * d, d});
      }
    }
    return {{fused},
            prefix + "attention.dense",
            {{prefix + "mlp.dense_h_to_4h", inner, {mlp}}},
            prefix + "mlp.dense_4h_to_h",
            prefix + "input_layernorm",
            prefix + "post_attention_layernorm"};
  }

  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  layer_names names{{},
                    prefix + "self_attn.o_proj",
                    {},
                    prefix + "mlp.down_proj",
                    prefix + "input_layernorm",
                    prefix + "post_attention_layernorm"};
  if (config.architecture == architecture::phi3) {  // q, k and v end to end; gate and up end to end
    names.qkv = {
        {prefix + "self_attn.qkv_proj",
         query_rows + 2 * kv_rows,
         {query, {query_rows + kv.first, kv.count}, {query_rows + kv_rows + kv.first, kv.count}}}};
    names.mlp_input = {
        {prefix + "mlp.gate_up_proj", 2 * inner, {mlp, {inner + mlp.first, mlp.count}}}};
    return names;
  }
  names.qkv = {{prefix + "self_attn.q_proj", query_rows, {query}},
               {prefix + "self_attn.k_proj", kv_rows, {kv}},
               {prefix + "self_attn.v_proj", kv_rows, {kv}}};
  names.mlp_input = {{prefix + "mlp.gate_proj", inner, {mlp}},
                     {prefix + "mlp.up_proj", inner, {mlp}}};
  return names;
}

}  // namespace rankcast::transformer
