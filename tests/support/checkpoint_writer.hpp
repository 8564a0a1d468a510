/// Writes model folders for tests: safetensors files that are right, and ones that are broken in a
/// chosen way, because the header is taken as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/checkpoint/scratch_folder.hpp"

namespace rankcast::test {

/// A folder of its own, removed with all it holds at the end.
class scratch_folder : public transformer::scratch_folder {
 public:
  /// Writes a file and returns its path.
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path file = path() / name;
    std::ofstream out(file, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
    return file;
  }
};

/// The bytes of a safetensors file with this header and data, whatever they say.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string bytes;
  for (unsigned i = 0; i < 8; ++i) {
    bytes += static_cast<char>((static_cast<std::uint64_t>(header.size()) >> (8 * i)) & 0xff);
  }
  return bytes.append(header).append(data);
}

/// One tensor of a right file.
struct tensor_to_write {
  std::string name;
  std::string dtype;  // "F32"
  std::vector<std::int64_t> shape;
  std::string bytes;
};

/// Values as the bytes of a tensor.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline tensor_to_write float_tensor(const std::string& name, std::vector<std::int64_t> shape,
                                    const std::vector<float>& values) {
  return {name, "F32", std::move(shape), bytes_of(values)};
}

/// One entry of a header: "name":{"dtype":...}
inline std::string header_entry(const std::string& name, const std::string& dtype,
                                const std::string& shape, std::uint64_t first, std::uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(first) + "," + std::to_string(end) + "]}";
}

/// The bytes of a right file; the tensors lie in the order given.
inline std::string safetensors_bytes(const std::vector<tensor_to_write>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  for (const tensor_to_write& t : tensors) {
    std::string shape = "[";
    for (const std::int64_t extent : t.shape) {
      shape += (shape.size() > 1 ? "," : "") + std::to_string(extent);
    }
    header +=
        "," + header_entry(t.name, t.dtype, shape + "]", data.size(), data.size() + t.bytes.size());
    data += t.bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // as the usual writers align the data
  return safetensors_bytes(header, data);
}

}  // namespace rankcast::test
