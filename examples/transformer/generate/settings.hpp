/// The command line of `generate`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "rankcast/core/dtype.hpp"
#include "rankcast/core/error.hpp"
#include "transformer/model/model.hpp"

namespace rankcast::transformer {

struct generate_settings {
  int processes = 0;  // of the job this process is of; 0: none, ranks are threads
  std::filesystem::path model_folder;
  bool random_model = false;
  std::vector<std::string> prompts;
  std::vector<std::vector<std::int32_t>> prompt_ids;
  int tensor_ranks = 1;
  int data_ranks = 1;
  std::int64_t max_tokens = 64;
  float temperature = 0;  // 0: greedy
  double top_p = 1;
  std::uint64_t seed = 0;
  bool stop_at_end = true;  // at an end-of-text token
  model_options model;
  bool compare = false;
  std::filesystem::path json_file;

  [[nodiscard]] int ranks() const noexcept { return tensor_ranks * data_ranks; }
};

namespace detail {

// "data=2,tensor=2"
inline void parse_mesh(const std::string& text, generate_settings& s) {
  const auto refuse = [&] {
    throw usage_error("--mesh '" + text + "': wanted is data=D,tensor=T, each at least 1");
  };
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) refuse();
    const std::string axis = part.substr(0, equals);
    const std::string number = part.substr(equals + 1);
    if (number.empty() || number.size() > 4 ||
        number.find_first_not_of("0123456789") != std::string::npos || std::stoi(number) < 1) {
      refuse();
    }
    if (axis == "data") s.data_ranks = std::stoi(number);
    else if (axis == "tensor") s.tensor_ranks = std::stoi(number);
    else refuse();
    at = end + 1;
  }
}

// "12,7,99"
inline std::vector<std::int32_t> parse_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const std::size_t digits = part.find_first_not_of(' ');
    if (digits == std::string::npos || part.size() - digits > 9 ||
        part.find_first_not_of("0123456789", digits) != std::string::npos) {
      throw usage_error("--prompt-ids '" + text + "': '" + part + "' is not a token id");
    }
    ids.push_back(std::stoi(part.substr(digits)));
    at = end + 1;
  }
  return ids;
}

}  // namespace detail

/// Reads the command line. Returns an exit code when there is nothing to run (help, or an error
/// that has been printed). Throws usage_error for values that do not fit together.
[[nodiscard]] inline std::optional<int> parse_command_line(int argc, char** argv,
                                                           generate_settings& s) {
  CLI::App app{
      "Generates text with a Hugging Face model whose weights are sharded over tensor-parallel "
      "ranks: threads of this process, or the processes of an MPI job."};
  std::string mesh_text;
  std::string dtype_text = "float32";
  std::string embedding_text = "vocabulary";
  std::vector<std::string> ids;
  bool ignore_end = false;
  app.add_option("--model", s.model_folder,
                 "Hugging Face folder: config.json, safetensors, tokenizer.json");
  app.add_flag("--random-model", s.random_model,
               "make a tiny model of random weights instead (it speaks noise)");
  app.add_option("--prompt", s.prompts, "text to continue; may be given several times");
  app.add_option("--prompt-ids", ids,
                 "token ids to continue, as 12,7,99; works without a tokenizer");
  if (s.processes > 0) s.tensor_ranks = s.processes;
  auto* ranks = app.add_option("--ranks", s.tensor_ranks,
                               "tensor-parallel ranks; in a job, all of its processes")
                    ->check(CLI::Range(1, 1024));
  app.add_option("--mesh", mesh_text,
                 "data=D,tensor=T: D groups of T ranks, each with prompts of its own")
      ->excludes(ranks);
  app.add_option("--max-tokens", s.max_tokens, "tokens to generate for each prompt")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--temperature", s.temperature, "0 takes the likeliest token")
      ->check(CLI::Range(0.0F, 100.0F))
      ->capture_default_str();
  app.add_option("--top-p", s.top_p, "sample among the likeliest tokens of this total probability")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str();
  app.add_option("--seed", s.seed, "of the sampling")->capture_default_str();
  app.add_flag("--ignore-end", ignore_end, "go on after an end-of-text token");
  app.add_option("--dtype", dtype_text, "of the weights in memory; sums are float32 in both")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  app.add_option("--embedding", embedding_text, "how the embedding table is cut")
      ->check(CLI::IsMember({"vocabulary", "hidden"}))
      ->capture_default_str();
  app.add_flag("--compare", s.compare,
               "also run unsharded and compare logits and tokens; exit code 1 when they differ");
  app.add_option("--json", s.json_file, "write the figures to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }

  if (!mesh_text.empty()) detail::parse_mesh(mesh_text, s);
  for (const std::string& text : ids) s.prompt_ids.push_back(detail::parse_ids(text));
  s.model.type = dtype_text == "bfloat16" ? dtype::bfloat16 : dtype::float32;
  s.model.embedding =
      embedding_text == "hidden" ? embedding_cut::hidden : embedding_cut::vocabulary;
  s.stop_at_end = !ignore_end;
  if (s.random_model != s.model_folder.empty()) {
    throw usage_error("give either --model FOLDER or --random-model");
  }
  if (s.prompts.empty() && s.prompt_ids.empty()) s.prompts = {"Once upon a time"};
  return std::nullopt;
}

}  // namespace rankcast::transformer
