/// Linear layers cut over a tensor-parallel group, as Megatron-LM cuts them: columns of the output
/// (each rank computes a part of the outputs, nothing is exchanged) or rows of the input (each rank
/// computes a term of every output, one all_reduce adds them up).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
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

/// Rows of a stored weight that one rank takes, in this order: its outputs of a column-parallel
/// layer. Several sources make a fused layer (q, k and v; gate and up), each cut by itself.
struct row_source {
  std::string tensor;          // without ".weight" or ".bias"
  std::int64_t rows = 0;       // of the whole stored weight
  std::vector<slice> taken{};  // by this rank
};

/// Options of both linear layers.
struct linear_options {
  dtype type = dtype::float32;  // of the weights on this rank: float32 or bfloat16
  bool bias = false;
};

namespace detail {

// y[rows, out] += bias[out], where there is one.
inline void add_bias(const tensor& bias, std::int64_t rows, std::int64_t out, float* y) {
  if (bias.elements() == 0) return;
  const float* b = bias.data<float>();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < out; ++o) y[r * out + o] += b[o];
  }
}

}  // namespace detail

/// y[rows, out_r] = x[rows, in] * W_rᵀ + b_r: this rank's outputs.
class column_linear final : public parallel_layer {
 public:
  /// `output`: how the outputs lie over the group, where they tile it (unfused); replicated where
  /// the parts of the ranks overlap or are fused.
  column_linear(communicator group, std::vector<row_source> sources, std::int64_t in,
                linear_options options, placement output = placement::replicated())
      : parallel_layer(sources.at(0).tensor + ".weight", std::move(group)),
        sources_(std::move(sources)),
        in_(in),
        options_(options),
        output_(std::move(output)) {
    for (const row_source& s : sources_) {
      for (const slice& part : s.taken) out_ += part.count;
    }
  }

  /// Shares the weights of another layer (an embedding table that is also the output head).
  void share(std::shared_ptr<const matrix> weight) { weight_ = std::move(weight); }

  void partition(checkpoint& from) override {
    if (weight_ == nullptr && out_ > 0) {
      auto weight = std::make_shared<matrix>(out_, in_, options_.type);
      std::int64_t at = 0;
      for (const row_source& s : sources_) {
        std::int64_t rows = 0;
        for (const slice& part : s.taken) rows += part.count;
        copy_slices(from.stored(s.tensor + ".weight"), std::array{s.rows, in_}, 0, s.taken,
                    weight->rows(at, rows));
        at += rows;
      }
      weight->finish();
      weight_ = std::move(weight);
    }
    if (!options_.bias) return;
    bias_.resize(dtype::float32, {out_});
    std::int64_t at = 0;
    for (const row_source& s : sources_) {
      std::int64_t rows = 0;
      for (const slice& part : s.taken) rows += part.count;
      copy_slices(from.stored(s.tensor + ".bias"), std::array{s.rows}, 0, s.taken,
                  bias_.view().slice(0, at, rows));
      at += rows;
    }
  }

  /// x: [rows, in], y: [rows, out()], both contiguous. No communication.
  void forward(const float* x, std::int64_t rows, float* y) const {
    if (out_ == 0 || rows == 0) return;
    weight_->product(x, rows, in_, y, out_);
    detail::add_bias(bias_, rows, out_, y);
  }

  /// Outputs on this rank.
  [[nodiscard]] std::int64_t out() const noexcept { return out_; }
  [[nodiscard]] std::int64_t in() const noexcept { return in_; }
  [[nodiscard]] const placement& output() const noexcept { return output_; }
  [[nodiscard]] std::size_t weight_bytes() const noexcept override {
    return static_cast<std::size_t>(out_ * in_) * size_of(options_.type) + bias_.bytes();
  }

  [[nodiscard]] bool can_gather() const noexcept override {
    return sources_.size() == 1 && output_.what() == placement::kind::sharded;
  }
  [[nodiscard]] tensor gather() const override {
    if (!can_gather()) return parallel_layer::gather();
    tensor mine(dtype::float32, {out_, in_});
    if (weight_ != nullptr) weight_->to_rows(mine.data<float>());
    std::vector<std::int64_t> counts = output_.widths();
    for (auto& c : counts) c *= in_;
    tensor whole(dtype::float32, {output_.total(), in_});
    all_gather(group(), mine, whole, {.counts = counts});
    return whole;
  }

 private:
  std::vector<row_source> sources_;
  std::int64_t in_;
  std::int64_t out_ = 0;
  linear_options options_;
  placement output_;
  std::shared_ptr<const matrix> weight_;
  tensor bias_ = tensor(dtype::float32, {0});
};

/// y[rows, out] = sum over ranks of x_r[rows, in_r] * W_rᵀ, + b: the bias once, after the sum.
class row_linear final : public parallel_layer {
 public:
  /// `input`: how the inputs lie over the group; must be sharded(1). Throws usage_error otherwise.
  row_linear(communicator group, const std::string& tensor, std::int64_t out, placement input,
             linear_options options)
      : parallel_layer(tensor + ".weight", std::move(group)),
        tensor_(tensor),
        out_(out),
        input_(std::move(input)),
        options_(options) {
    if (input_.what() != placement::kind::sharded || input_.dimension() != 1 ||
        input_.widths().size() != static_cast<std::size_t>(this->group().size())) {
      throw usage_error("row_linear '" + tensor_ +
                        "': its input must be sharded over dimension 1 "
                        "of the " +
                        std::to_string(this->group().size()) + " ranks, but is " + input_.text());
    }
    taken_ = input_.share(this->group().rank());
  }

  void partition(checkpoint& from) override {
    const stored_tensor& stored = from.stored(tensor_ + ".weight");
    if (taken_.count > 0) {
      weight_.emplace(out_, taken_.count, options_.type);
      copy_slices(stored, {out_, input_.total()}, 1, {taken_}, weight_->rows(0, out_));
      weight_->finish();
    }
    if (!options_.bias) return;
    bias_.resize(dtype::float32, {out_});
    copy_whole(from.stored(tensor_ + ".bias"), {out_}, bias_);
  }

  /// x: [rows, in_r], y: [rows, out], both contiguous; y is the whole result on every rank.
  /// Cost: one all_reduce of rows * out float32.
  void forward(const float* x, std::int64_t rows, float* y) const {
    if (rows == 0) return;
    if (weight_) weight_->product(x, rows, taken_.count, y, out_);
    else std::fill_n(y, rows * out_, 0.0F);
    all_reduce(group(), std::span<float>(y, static_cast<std::size_t>(rows * out_)));
    detail::add_bias(bias_, rows, out_, y);
  }

  [[nodiscard]] std::size_t weight_bytes() const noexcept override {
    return static_cast<std::size_t>(out_ * taken_.count) * size_of(options_.type) + bias_.bytes();
  }

 private:
  std::string tensor_;
  std::int64_t out_;
  placement input_;
  linear_options options_;
  slice taken_;
  std::optional<matrix> weight_;
  tensor bias_ = tensor(dtype::float32, {0});
};

}  // namespace rankcast::transformer
