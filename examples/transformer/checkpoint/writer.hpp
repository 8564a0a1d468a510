/// Writing a Hugging Face folder: safetensors and JSON files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "rankcast/core/error.hpp"

namespace rankcast::transformer {

/// A float32 tensor to be written: values in row-major order.
struct named_values {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

/// Writes one safetensors file, tensors in the given order.
/// Throws transport_error when the file cannot be written.
inline void write_safetensors(const std::filesystem::path& file,
                              const std::vector<named_values>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::uint64_t offset = 0;
  for (const named_values& t : tensors) {
    const std::uint64_t end = offset + t.values.size() * sizeof(float);
    header[t.name] = {{"dtype", "F32"}, {"shape", t.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data is aligned
  std::ofstream out(file, std::ios::binary);
  const std::uint64_t length = text.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const named_values& t : tensors) {
    out.write(reinterpret_cast<const char*>(t.values.data()),
              static_cast<std::streamsize>(t.values.size() * sizeof(float)));
  }
  out.close();
  if (!out) throw transport_error("cannot write " + file.string(), 0);
}

/// Throws transport_error when the file cannot be written.
inline void write_json(const std::filesystem::path& file, const nlohmann::json& value) {
  std::ofstream out(file);
  out << value.dump(2) << "\n";
  out.close();
  if (!out) throw transport_error("cannot write " + file.string(), 0);
}

}  // namespace rankcast::transformer
