/// The tiny models of tests/reference/tiny: their weights are made here from the same formula as
/// the reference's, and the reference's logits come with them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/checkpoint_writer.hpp"
#include "transformer/checkpoint/random_model.hpp"

namespace rankcast::test {

inline nlohmann::json read_reference(const std::string& file) {
  std::ifstream in(std::filesystem::path(RANKCAST_REFERENCE_FOLDER) / file);
  if (!in) throw std::runtime_error("no reference file " + file);
  return nlohmann::json::parse(in);
}

inline std::vector<transformer::named_values> reference_tensors(const nlohmann::json& reference) {
  std::vector<transformer::named_values> tensors;
  for (const auto& t : reference.at("tensors")) {
    tensors.push_back(transformer::random_values(
        {t.at("name").get<std::string>(), t.at("shape").get<std::vector<std::int64_t>>(),
         t.at("offset").get<float>(), t.at("scale").get<float>()}));
  }
  return tensors;
}

/// Writes config.json and model.safetensors of a tiny model.
inline void write_reference_model(const nlohmann::json& reference,
                                  const std::filesystem::path& folder) {
  transformer::write_json(folder / "config.json", reference.at("config"));
  transformer::write_safetensors(folder / "model.safetensors", reference_tensors(reference));
}

/// Where `tools/get-model` leaves a model; it may not be there.
inline std::filesystem::path model_folder(const std::string& name) {
  const char* cache = std::getenv("RANKCAST_CACHE");
  const char* home = std::getenv("HOME");
  const std::filesystem::path base =
      cache != nullptr
          ? std::filesystem::path(cache)
          : std::filesystem::path(home != nullptr ? home : "/root") / ".cache/rankcast";
  return base / "models" / name;
}

}  // namespace rankcast::test
