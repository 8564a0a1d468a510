/// What `generate` says about a run: a table for people, a JSON file for programs.
#pragma once

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "transformer/generate/comparison.hpp"
#include "transformer/generate/run.hpp"

namespace rankcast::transformer {

/// A run's figures as rates and shares.
struct run_rates {
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
  double roofline_share = 0;  // of the memory read bandwidth, by the bytes of weights per token
  double wait_share = 0;      // of rank 0's decode time
  double move_share = 0;
};

[[nodiscard]] inline run_rates rates_of(const run_figures& f, double bandwidth) {
  const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0.0; };
  run_rates r;
  r.prefill_tokens_per_s = ratio(static_cast<double>(f.prefill_tokens), f.prefill_seconds);
  r.decode_tokens_per_s = ratio(static_cast<double>(f.decode_tokens), f.decode_seconds);
  r.roofline_share =
      ratio(r.decode_tokens_per_s * static_cast<double>(f.bytes_per_token), bandwidth);
  r.wait_share = ratio(f.wait_seconds, f.decode_seconds);
  r.move_share = ratio(f.move_seconds, f.decode_seconds);
  return r;
}

inline void print_header(double bandwidth) {
  std::printf("\nmemory read bandwidth %.1f GB/s, measured now on all usable processors\n",
              bandwidth / 1e9);
  std::printf("%-22s %12s %12s %10s %7s %7s %14s\n", "run", "prefill t/s", "decode t/s", "roofline",
              "wait", "move", "MB per token");
}

inline void print_row(const std::string& name, const run_figures& f, double bandwidth) {
  const run_rates r = rates_of(f, bandwidth);
  std::printf("%-22s %12.1f %12.1f %9.0f%% %6.1f%% %6.1f%% %14.1f\n", name.c_str(),
              r.prefill_tokens_per_s, r.decode_tokens_per_s, 100 * r.roofline_share,
              100 * r.wait_share, 100 * r.move_share, static_cast<double>(f.bytes_per_token) / 1e6);
}

inline void print_weights(const run_figures& f) {
  const auto print = [](const char* cut, const std::vector<std::uint64_t>& ranks) {
    std::uint64_t total = 0;
    std::printf("  cut by %-17s", cut);
    for (const std::uint64_t bytes : ranks) {
      std::printf(" %8.1f", static_cast<double>(bytes) / 1e6);
      total += bytes;
    }
    std::printf("   %8.1f in all\n", static_cast<double>(total) / 1e6);
  };
  std::printf("MB of weights per rank, with the embedding\n");
  print("vocabulary", f.weight_bytes);
  print("hidden dimension", f.weight_bytes_by_hidden);
}

/// "3 ranks, float32"
[[nodiscard]] inline std::string ranks_text(const generate_settings& s) {
  const std::string ranks = s.data_ranks == 1 ? std::to_string(s.tensor_ranks) + " ranks"
                                              : "data " + std::to_string(s.data_ranks) +
                                                    " x tensor " + std::to_string(s.tensor_ranks);
  return ranks + ", " + std::string(name(s.model.type));
}

inline void print_comparison(const comparison_result& found,
                             std::optional<float> distance_from_float32) {
  if (distance_from_float32) {
    std::printf("bfloat16 weights against float32: largest logit difference %.3g\n",
                static_cast<double>(*distance_from_float32));
  }
  std::printf("%s", found.notes.c_str());
  std::printf(
      "sharded against unsharded over %d tokens: %s, %d ties, largest logit difference %.3g\n",
      found.steps, found.tokens_agree() ? "tokens agree" : "TOKENS DIFFER", found.ties,
      static_cast<double>(found.max_logit_difference));
}

inline void write_report(const std::filesystem::path& file, const generate_settings& s,
                         const run_figures& f, const std::vector<std::string>& texts,
                         double bandwidth, const comparison_result* compared,
                         std::optional<float> distance_from_float32) {
  const run_rates r = rates_of(f, bandwidth);
  nlohmann::json all_tokens = nlohmann::json::array();
  nlohmann::json completions = nlohmann::json::array();
  for (std::size_t p = 0; p < f.completions.size(); ++p) {
    const auto& tokens = f.completions[p].tokens;
    for (const std::int32_t t : tokens) all_tokens.push_back(t);
    completions.push_back({{"tokens", tokens}, {"text", texts[p]}});
  }
  nlohmann::json report{
      {"ranks", s.ranks()},
      {"data", s.data_ranks},
      {"tensor", s.tensor_ranks},
      {"dtype", std::string(name(s.model.type))},
      {"tokens", all_tokens},
      {"completions", completions},
      {"tokens_agree", nullptr},
      {"max_logit_difference", nullptr},
      {"prefill_tokens_per_s", r.prefill_tokens_per_s},
      {"decode_tokens_per_s", r.decode_tokens_per_s},
      {"roofline_share", r.roofline_share},
      {"read_bandwidth_bytes_per_s", bandwidth},
      {"bytes_per_token", f.bytes_per_token},
      {"weight_bytes_per_rank",
       s.model.embedding == embedding_cut::vocabulary ? f.weight_bytes : f.weight_bytes_by_hidden},
      {"wait_share", r.wait_share},
      {"move_share", r.move_share}};
  if (compared != nullptr) {
    report["tokens_agree"] = compared->tokens_agree();
    report["max_logit_difference"] = compared->max_logit_difference;
    report["ties"] = compared->ties;
  }
  if (distance_from_float32) report["max_logit_difference_from_float32"] = *distance_from_float32;
  std::ofstream out(file);
  // Bytes that are no UTF-8 (a text cut in the middle of a character) become a replacement sign.
  out << report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  out.close();
  if (!out) throw transport_error("--json: cannot write " + file.string(), 0);
}

}  // namespace rankcast::transformer
