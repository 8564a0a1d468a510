/// What must hold of a checkpoint beyond the tensors that layers read: nothing is left over, and a
/// weight that is there twice is there equally.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "rankcast/core/error.hpp"
#include "transformer/checkpoint/folder.hpp"

namespace rankcast::transformer {

/// A weight that no layer reads means that the model is another than was built. Buffers that old
/// versions stored (masks, rotary frequencies) are computed and may be left.
/// Throws decode_error listing the unused tensors.
inline void require_all_used(const checkpoint& from) {
  constexpr std::string_view buffers[] = {".attention.bias", ".attention.masked_bias",
                                          ".rotary_emb.inv_freq"};
  std::string left;
  for (const std::string& name : from.unused()) {
    bool computed = false;
    for (const std::string_view b : buffers)
      computed = computed || std::string_view(name).ends_with(b);
    if (!computed) left += (left.empty() ? "" : ", ") + name;
  }
  if (left.empty()) return;
  throw decode_error(
      from.folder().string() +
      ": tensors that this model has no use for (is the config of another model?): " + left);
}

/// Tied weights may be stored twice; then they must be equal, for neither can be chosen silently.
/// Throws decode_error naming both. Cost: reads both tensors.
inline void require_equal(checkpoint& from, const std::string& a, const std::string& b,
                          const std::string& why) {
  const stored_tensor& x = from.stored(a);
  const stored_tensor& y = from.stored(b);
  const bool same_form = x.dtype == y.dtype && x.layout == y.layout;
  const auto bytes = static_cast<std::size_t>(x.layout.elements()) * size_of(x.dtype);
  if (same_form && std::memcmp(x.data, y.data, bytes) == 0) return;
  throw decode_error(from.folder().string() + ": tensors " + a + " and " + b + " differ, but " +
                     why);
}

}  // namespace rankcast::transformer
