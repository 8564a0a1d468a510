/// Embedding tables cut over a tensor-parallel group: by vocabulary (each rank holds whole rows of
/// some ids, one all_reduce puts a token's row together; the table can also be the output head) or
/// by hidden dimension (each rank holds a part of every row, one all_gather joins them).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/collectives/gather.hpp"
#include "rankcast/collectives/reduce.hpp"
#include "transformer/checkpoint/slices.hpp"
#include "transformer/math/matrix.hpp"
#include "transformer/parallel/layer.hpp"
#include "transformer/parallel/placement.hpp"

namespace rankcast::transformer {

/// What both embeddings are to the model.
class embedding : public parallel_layer {
 public:
  embedding(communicator group, const std::string& tensor, std::int64_t vocabulary,
            std::int64_t hidden, dtype type)
      : parallel_layer(tensor + ".weight", std::move(group)),
        vocabulary_(vocabulary),
        hidden_(hidden),
        type_(type) {}

  /// out: [tokens, hidden] float32, the same on every rank.
  /// Throws usage_error, on every rank and before any exchange, for an id outside the vocabulary.
  void forward(std::span<const std::int32_t> tokens, float* out) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < 0 || tokens[i] >= vocabulary_) {
        throw usage_error("embedding '" + name() + "': token " + std::to_string(i) + " has id " +
                          std::to_string(tokens[i]) + ", the vocabulary has " +
                          std::to_string(vocabulary_) + " ids");
      }
    }
    if (!tokens.empty()) look_up(tokens, out);
  }

  [[nodiscard]] std::int64_t vocabulary() const noexcept { return vocabulary_; }
  [[nodiscard]] std::int64_t hidden() const noexcept { return hidden_; }
  /// The table, where whole rows lie here and an output head can share it; else null.
  [[nodiscard]] virtual std::shared_ptr<const matrix> table() const { return nullptr; }

 protected:
  virtual void look_up(std::span<const std::int32_t> tokens, float* out) const = 0;
  [[nodiscard]] dtype type() const noexcept { return type_; }

 private:
  std::int64_t vocabulary_;
  std::int64_t hidden_;
  dtype type_;
};

/// Rank r holds rows [first_r, first_r + count_r): every id belongs to exactly one rank.
class vocabulary_embedding final : public embedding {
 public:
  vocabulary_embedding(communicator group, const std::string& tensor, std::int64_t vocabulary,
                       std::int64_t hidden, dtype type)
      : embedding(std::move(group), tensor, vocabulary, hidden, type),
        rows_(rankcast::partition(vocabulary, this->group().size(), this->group().rank())) {}

  void partition(checkpoint& from) override {
    const stored_tensor& stored = from.stored(name());
    if (rows_.count == 0) return;
    table_ = std::make_shared<matrix>(rows_.count, hidden(), type(), storage::rows);
    copy_slices(stored, {vocabulary(), hidden()}, 0, {rows_}, table_->rows(0, rows_.count));
    table_->finish();
  }

  [[nodiscard]] std::shared_ptr<const matrix> table() const override { return table_; }
  [[nodiscard]] std::size_t weight_bytes() const noexcept override {
    return static_cast<std::size_t>(rows_.count * hidden()) * size_of(type());
  }

 protected:
  // One all_reduce of tokens * hidden float32: the owner's row plus zeros, hence exact.
  void look_up(std::span<const std::int32_t> tokens, float* out) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      float* row = out + static_cast<std::int64_t>(i) * hidden();
      const std::int64_t id = tokens[i];
      if (id >= rows_.first && id < rows_.end()) table_->read_row(id - rows_.first, row);
      else std::fill_n(row, hidden(), 0.0F);
    }
    all_reduce(group(), std::span<float>(out, tokens.size() * static_cast<std::size_t>(hidden())));
  }

 private:
  slice rows_;
  std::shared_ptr<matrix> table_;
};

/// Rank r holds columns [first_r, first_r + count_r) of every row.
class hidden_embedding final : public embedding {
 public:
  hidden_embedding(communicator group, const std::string& tensor, std::int64_t vocabulary,
                   std::int64_t hidden, dtype type)
      : embedding(std::move(group), tensor, vocabulary, hidden, type),
        widths_(partition_counts(hidden, this->group().size())),
        columns_(rankcast::partition(hidden, this->group().size(), this->group().rank())) {}

  void partition(checkpoint& from) override {
    const stored_tensor& stored = from.stored(name());
    if (columns_.count == 0) return;
    table_ = std::make_unique<matrix>(vocabulary(), columns_.count, type(), storage::rows);
    copy_slices(stored, {vocabulary(), hidden()}, 1, {columns_}, table_->rows(0, vocabulary()));
    table_->finish();
  }

  [[nodiscard]] std::size_t weight_bytes() const noexcept override {
    return static_cast<std::size_t>(vocabulary() * columns_.count) * size_of(type());
  }

 protected:
  // One all_gather of tokens * hidden float32.
  void look_up(std::span<const std::int32_t> tokens, float* out) const override {
    const auto n = static_cast<std::int64_t>(tokens.size());
    std::vector<float> mine(static_cast<std::size_t>(n * columns_.count));
    for (std::int64_t i = 0; i < n && columns_.count > 0; ++i) {
      table_->read_row(tokens[static_cast<std::size_t>(i)], mine.data() + i * columns_.count);
    }
    std::vector<float> all(static_cast<std::size_t>(n * hidden()));
    std::vector<std::int64_t> counts = widths_;
    for (auto& c : counts) c *= n;
    all_gather(group(), mine, all, {.counts = counts});
    // Blocks of [tokens, width_r] into columns of [tokens, hidden].
    const float* from = all.data();
    std::int64_t first = 0;
    for (const std::int64_t width : widths_) {
      for (std::int64_t i = 0; i < n; ++i, from += width) {
        std::copy_n(from, width, out + i * hidden() + first);
      }
      first += width;
    }
  }

 private:
  std::vector<std::int64_t> widths_;
  slice columns_;
  std::unique_ptr<matrix> table_;
};

}  // namespace rankcast::transformer
