/// A decoder-only transformer on one tensor-parallel group: every rank holds its slices of the
/// weights and its heads of the cache, and all make the same calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/communicator.hpp"
#include "rankcast/core/partition.hpp"
#include "rankcast/core/tensor.hpp"
#include "transformer/checkpoint/config.hpp"
#include "transformer/checkpoint/folder.hpp"
#include "transformer/model/attention.hpp"
#include "transformer/model/families.hpp"
#include "transformer/model/kv_cache.hpp"
#include "transformer/model/load_rules.hpp"
#include "transformer/model/mlp.hpp"
#include "transformer/model/norm.hpp"
#include "transformer/model/rotary.hpp"
#include "transformer/parallel/embedding.hpp"
#include "transformer/parallel/linear.hpp"

namespace rankcast::transformer {

/// How the embedding table is cut.
enum class embedding_cut : std::uint8_t { vocabulary, hidden };

struct model_options {
  dtype type = dtype::float32;  // of the weight matrices: float32 or bfloat16
  embedding_cut embedding = embedding_cut::vocabulary;
};

class model {
 public:
  /// Reads this rank's slices of every weight; ranks of `group` call it with the same arguments.
  ///
  /// Errors   usage_error for more ranks than query heads; decode_error or usage_error naming the
  ///          tensor for weights that are missing, misshapen, or there but not used by the family.
  /// Cost     one read of this rank's share of the files; no communication.
  model(checkpoint& from, const model_config& config, const communicator& group,
        model_options options = {})
      : config_(config),
        group_(group),
        options_(options),
        rope_(config),
        heads_(share_heads(config.heads, config.kv_heads, group.size(), group.rank())),
        final_norm_(names_of(config).final_norm, config.hidden_size, norm_epsilon(), centred()) {
    const model_names names = names_of(config_);
    make_embedding(names.embedding);
    for (std::int64_t l = 0; l < config_.layers; ++l) layers_.push_back(make_layer(l));
    make_head(names, from);

    embedding_->partition(from);
    if (config_.tie_word_embeddings) head_->share(embedding_->table());
    for (parallel_layer* l : sharded_) l->partition(from);
    for (auto& l : layers_) {
      l->attention_norm.load(from);
      l->mlp_norm.load(from);
    }
    final_norm_.load(from);
    require_all_used(from);
  }

  [[nodiscard]] const model_config& config() const noexcept { return config_; }
  [[nodiscard]] const communicator& group() const noexcept { return group_; }

  /// A cache for one sequence of at most `capacity` tokens.
  [[nodiscard]] kv_cache make_cache(std::int64_t capacity) const {
    return {config_.layers, heads_.kv.count, config_.head_dim, capacity};
  }

  /// Logits for the last `keep` of `tokens`, which follow those in the cache.
  ///
  /// Shape    result: [keep, this rank's vocabulary share] float32; valid until the next call.
  /// Errors   usage_error, on every rank: an id outside the vocabulary, more tokens than the cache
  ///          has room for, keep outside [0, tokens].
  /// Cost     per layer two all_reduces of tokens * hidden float32, one more for the embedding; the
  ///          head is computed for `keep` rows only.
  [[nodiscard]] const_tensor_view forward(std::span<const std::int32_t> tokens, kv_cache& cache,
                                          std::int64_t keep) {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    const std::int64_t hidden = config_.hidden_size;
    if (rows == 0 || keep < 0 || keep > rows) {
      throw usage_error("model: logits of the last " + std::to_string(keep) + " of " +
                        std::to_string(rows) + " tokens asked for");
    }
    cache.require(rows);
    stream_.resize(static_cast<std::size_t>(rows * hidden));
    normed_.resize(stream_.size());
    update_.resize(stream_.size());
    embedding_->forward(tokens, stream_.data());
    for (auto& l : layers_) forward(*l, rows, cache);
    cache.advance(rows);

    const float* last = stream_.data() + (rows - keep) * hidden;
    final_norm_.forward(last, keep, normed_.data());
    logits_.resize(dtype::float32, {keep, head_->out()});
    head_->forward(normed_.data(), keep, logits_.data<float>());
    return logits_.view();
  }

  /// First id and number of ids whose logits this rank computes.
  [[nodiscard]] slice vocabulary() const {
    return partition(config_.vocab_size, group_.size(), group_.rank());
  }

  /// Bytes of weights on this rank.
  [[nodiscard]] std::size_t weight_bytes() const noexcept {
    std::size_t bytes = embedding_->weight_bytes() + final_norm_.weight_bytes();
    for (const parallel_layer* l : sharded_) bytes += l->weight_bytes();
    for (const auto& l : layers_) {
      bytes += l->attention_norm.weight_bytes() + l->mlp_norm.weight_bytes();
    }
    if (config_.tie_word_embeddings && embedding_->table() != nullptr) {
      bytes -= head_->weight_bytes();  // the same memory as the embedding
    }
    return bytes;
  }

  /// What weight_bytes() would be with the embedding cut the other way: by vocabulary a tied head
  /// shares the table, by hidden dimension it needs rows of its own.
  [[nodiscard]] std::size_t weight_bytes(embedding_cut cut) const {
    return weight_bytes() - table_bytes(options_.embedding) + table_bytes(cut);
  }

  /// Bytes of weights this rank reads for one token: all matrices once; of an embedding that is not
  /// the head as well, a row only.
  [[nodiscard]] std::size_t bytes_per_token() const noexcept {
    std::size_t bytes = final_norm_.weight_bytes();
    for (const parallel_layer* l : sharded_) bytes += l->weight_bytes();
    for (const auto& l : layers_) {
      bytes += l->attention_norm.weight_bytes() + l->mlp_norm.weight_bytes();
    }
    return bytes;
  }

 private:
  struct layer {
    std::unique_ptr<column_linear> qkv;
    std::unique_ptr<row_linear> attention_output;
    std::unique_ptr<column_linear> mlp_input;
    std::unique_ptr<row_linear> mlp_output;
    norm attention_norm;
    norm mlp_norm;
    attention attend;
    mlp feed;
  };

  [[nodiscard]] bool centred() const noexcept {
    return config_.architecture == architecture::gpt_neox;
  }
  [[nodiscard]] float norm_epsilon() const noexcept {
    return static_cast<float>(config_.norm_epsilon);
  }

  // The embedding and the head together.
  [[nodiscard]] std::size_t table_bytes(embedding_cut cut) const {
    const std::int64_t head = vocabulary().count * config_.hidden_size;
    const std::int64_t table =
        cut == embedding_cut::vocabulary
            ? (config_.tie_word_embeddings ? 0 : head)
            : partition(config_.hidden_size, group_.size(), group_.rank()).count *
                  config_.vocab_size;
    return static_cast<std::size_t>(head + table) * size_of(options_.type);
  }

  void make_embedding(const std::string& tensor) {
    if (options_.embedding == embedding_cut::vocabulary) {
      embedding_ = std::make_unique<vocabulary_embedding>(group_, tensor, config_.vocab_size,
                                                          config_.hidden_size, options_.type);
    } else {
      embedding_ = std::make_unique<hidden_embedding>(group_, tensor, config_.vocab_size,
                                                      config_.hidden_size, options_.type);
    }
  }

  std::unique_ptr<layer> make_layer(std::int64_t index) {
    const int ranks = group_.size();
    const std::int64_t d = config_.head_dim;
    std::vector<std::int64_t> query_widths = partition_counts(config_.heads, ranks);
    for (auto& w : query_widths) w *= d;
    const placement query = placement::sharded(1, std::move(query_widths));
    const placement inner =
        placement::sharded(1, partition_counts(config_.intermediate_size, ranks));
    const slice units = inner.share(group_.rank());
    const layer_names names = layer_names_of(config_, index, heads_, units);
    const bool gated = config_.architecture != architecture::gpt_neox;
    const std::int64_t hidden = config_.hidden_size;

    auto qkv = std::make_unique<column_linear>(group_, names.qkv, hidden,
                                               linear_options{options_.type, config_.qkv_bias});
    auto attention_output =
        std::make_unique<row_linear>(group_, names.attention_output, hidden, query,
                                     linear_options{options_.type, config_.output_bias});
    auto mlp_input = std::make_unique<column_linear>(
        group_, names.mlp_input, hidden, linear_options{options_.type, config_.mlp_bias});
    auto mlp_output = std::make_unique<row_linear>(group_, names.mlp_output, hidden, inner,
                                                   linear_options{options_.type, config_.mlp_bias});
    for (parallel_layer* l : {static_cast<parallel_layer*>(qkv.get()),
                              static_cast<parallel_layer*>(attention_output.get()),
                              static_cast<parallel_layer*>(mlp_input.get()),
                              static_cast<parallel_layer*>(mlp_output.get())}) {
      sharded_.push_back(l);
    }
    attention attend(index, heads_, d, config_.window(index), qkv.get(), attention_output.get());
    mlp feed(config_.activation, gated, units.count, mlp_input.get(), mlp_output.get());
    return std::unique_ptr<layer>(new layer{
        std::move(qkv), std::move(attention_output), std::move(mlp_input), std::move(mlp_output),
        norm(names.attention_norm, hidden, norm_epsilon(), centred()),
        norm(names.mlp_norm, hidden, norm_epsilon(), centred()), std::move(attend),
        std::move(feed)});
  }

  // Tied heads are the embedding's own rows. A file may store the head all the same; then it has to
  // be equal, for neither of two different tables can be chosen silently.
  void make_head(const model_names& names, checkpoint& from) {
    const std::int64_t vocabulary_size = config_.vocab_size;
    std::string tensor = names.head;
    if (config_.tie_word_embeddings) {
      tensor = names.embedding;
      if (from.has(names.head + ".weight")) {
        require_equal(from, names.head + ".weight", names.embedding + ".weight",
                      "the config ties the output head to the embedding");
      }
    }
    head_ = std::make_unique<column_linear>(
        group_, std::vector<row_source>{{tensor, vocabulary_size, {vocabulary()}}},
        config_.hidden_size, linear_options{options_.type, false},
        placement::sharded(0, partition_counts(vocabulary_size, group_.size())));
    sharded_.push_back(head_.get());
  }

  void forward(layer& l, std::int64_t rows, kv_cache& cache) {
    const auto add = [](std::vector<float>& to, const std::vector<float>& from) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    };
    l.attention_norm.forward(stream_.data(), rows, normed_.data());
    l.attend.forward(normed_.data(), rows, cache, rope_, update_.data());
    if (config_.parallel_residual) {  // both branches read the layer's input
      l.mlp_norm.forward(stream_.data(), rows, normed_.data());
      add(stream_, update_);
    } else {
      add(stream_, update_);
      l.mlp_norm.forward(stream_.data(), rows, normed_.data());
    }
    l.feed.forward(normed_.data(), rows, update_.data());
    add(stream_, update_);
  }

  model_config config_;
  communicator group_;
  model_options options_;
  rotary rope_;
  head_share heads_;
  std::unique_ptr<embedding> embedding_;
  std::vector<std::unique_ptr<layer>> layers_;
  norm final_norm_;
  std::unique_ptr<column_linear> head_;
  std::vector<parallel_layer*> sharded_;  // all but the embedding, in the order of use
  std::vector<float> stream_;             // [tokens, hidden], as are the next two
  std::vector<float> normed_;
  std::vector<float> update_;
  tensor logits_;
};

}  // namespace rankcast::transformer
