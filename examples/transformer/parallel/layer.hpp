/// The base of every sharded layer.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "rankcast/core/communicator.hpp"
#include "rankcast/core/tensor.hpp"
#include "transformer/checkpoint/folder.hpp"

namespace rankcast::transformer {

/// A layer whose weights are spread over a tensor-parallel group. `partition` is required: it reads
/// this rank's own slices. `gather` may be absent; what needs whole weights back (saving, training)
/// is then refused by the layer's name.
class parallel_layer {
 public:
  parallel_layer(std::string name, communicator group)
      : name_(std::move(name)), group_(std::move(group)) {}
  virtual ~parallel_layer() = default;
  parallel_layer(const parallel_layer&) = delete;
  parallel_layer& operator=(const parallel_layer&) = delete;

  /// The name of the layer's weight in the checkpoint; of a fused layer, of its first.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const communicator& group() const noexcept { return group_; }

  /// Reads this rank's slices of the weights. Throws decode_error or usage_error naming the tensor
  /// and the file when one is missing or has another shape.
  virtual void partition(checkpoint& from) = 0;

  /// Bytes of weights on this rank.
  [[nodiscard]] virtual std::size_t weight_bytes() const noexcept = 0;

  [[nodiscard]] virtual bool can_gather() const noexcept { return false; }
  /// The whole weight, float32, on all ranks of the group; collective.
  [[nodiscard]] virtual tensor gather() const {
    throw usage_error("layer '" + name_ +
                      "' cannot be gathered: saving and training are not supported for it");
  }

 private:
  std::string name_;
  communicator group_;
};

}  // namespace rankcast::transformer
