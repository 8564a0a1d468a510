/// Generates text with a Hugging Face model sharded over thread ranks.
///
///   generate --model FOLDER --ranks 3 --prompt "Once upon a time" --compare
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transformer/checkpoint/random_model.hpp"
#include "transformer/checkpoint/scratch_folder.hpp"
#include "transformer/generate/comparison.hpp"
#include "transformer/generate/report.hpp"
#include "transformer/generate/run.hpp"
#include "transformer/generate/settings.hpp"
#include "transformer/math/bandwidth.hpp"
#include "transformer/tokenizer/tokenizer.hpp"

namespace {

using namespace rankcast;
using namespace rankcast::transformer;

// Text as it comes; with several prompts, each when the job is done, for they come interleaved.
class text_printer {
 public:
  text_printer(const tokenizer* text, std::size_t prompts) : text_(text), streams_(prompts == 1) {
    if (text_ != nullptr) decoder_.emplace(*text_);
  }

  void token(std::int32_t id) {
    if (!streams_) return;
    print(decoder_ ? decoder_->push(id) : " " + std::to_string(id));
  }
  void finish() {
    if (streams_) print((decoder_ ? decoder_->finish() : std::string()) + "\n");
  }

 private:
  static void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  const tokenizer* text_;
  bool streams_;
  std::optional<stream_decoder> decoder_;
};

std::string text_of(const tokenizer* text, const std::vector<std::int32_t>& tokens) {
  if (text != nullptr) return text->decode(tokens);
  std::string ids;
  for (const std::int32_t t : tokens) ids += (ids.empty() ? "" : " ") + std::to_string(t);
  return ids;
}

int generate(const generate_settings& settings, const std::filesystem::path& folder) {
  const model_config config = read_config(folder);
  std::unique_ptr<tokenizer> text;
  if (!settings.prompts.empty() || std::filesystem::exists(folder / "tokenizer.json")) {
    try {
      text = std::make_unique<tokenizer>(tokenizer::from_folder(folder));
    } catch (const error&) {  // ids need none; the answer is then ids too
      if (!settings.prompts.empty()) throw;
    }
  }

  run_request request;
  request.settings = &settings;
  request.config = &config;
  request.folder = folder;
  request.data_ranks = settings.data_ranks;
  request.tensor_ranks = settings.tensor_ranks;
  request.type = settings.model.type;
  for (const std::string& p : settings.prompts) {
    request.prompts.push_back(text->encode(p, true));
    if (request.prompts.back().empty()) throw usage_error("--prompt: the text is empty");
  }
  request.prompts.insert(request.prompts.end(), settings.prompt_ids.begin(),
                         settings.prompt_ids.end());

  const double bandwidth = read_bandwidth_bytes_per_second(local::usable_cpus());

  // The unsharded run goes first: the sharded one follows its tokens.
  run_figures unsharded;
  std::optional<comparison> compared;
  std::optional<float> distance;
  if (settings.compare) {
    run_request alone = request;
    alone.data_ranks = alone.tensor_ranks = 1;
    alone.trace = true;
    unsharded = run_model(alone);
    compared.emplace(unsharded);
    if (settings.model.type != dtype::float32) {
      comparison from_float32(unsharded);
      run_request exact = alone;
      exact.type = dtype::float32;
      exact.trace = false;
      exact.follow = &unsharded;
      exact.compared = [&](std::size_t p, std::size_t i, std::span<const float> logits,
                           std::int32_t picked) { from_float32.step(p, i, logits, picked); };
      static_cast<void>(run_model(exact));
      distance = from_float32.max_logit_difference();
    }
    request.follow = &unsharded;
    request.compared = [&](std::size_t p, std::size_t i, std::span<const float> logits,
                           std::int32_t picked) { compared->step(p, i, logits, picked); };
  }

  if (request.prompts.size() == 1 && !settings.prompts.empty()) {
    std::printf("%s", settings.prompts.front().c_str());
  }
  text_printer printer(text.get(), request.prompts.size());
  request.listener = [&](std::size_t, std::int32_t token) { printer.token(token); };
  const run_figures figures = run_model(request);
  printer.finish();

  std::vector<std::string> texts;
  for (const completion_result& c : figures.completions) {
    texts.push_back(text_of(text.get(), c.tokens));
  }
  if (texts.size() > 1) {
    for (std::size_t p = 0; p < texts.size(); ++p) {
      std::printf("[%zu] %s%s\n", p, p < settings.prompts.size() ? settings.prompts[p].c_str() : "",
                  texts[p].c_str());
    }
  }

  const std::string ranks = settings.data_ranks == 1
                                ? std::to_string(settings.tensor_ranks) + " ranks"
                                : "data " + std::to_string(settings.data_ranks) + " x tensor " +
                                      std::to_string(settings.tensor_ranks);
  print_header(bandwidth);
  if (compared) print_row("unsharded", unsharded, bandwidth);
  print_row(ranks + ", " + std::string(name(settings.model.type)), figures, bandwidth);
  print_weights(figures);
  if (distance) {
    std::printf("bfloat16 weights against float32: largest logit difference %.3g\n",
                static_cast<double>(*distance));
  }
  if (compared) {
    std::printf("%s", compared->notes().c_str());
    std::printf(
        "sharded against unsharded over %d tokens: %s, %d ties, largest logit difference "
        "%.3g\n",
        compared->steps(), compared->tokens_agree() ? "tokens agree" : "TOKENS DIFFER",
        compared->ties(), static_cast<double>(compared->max_logit_difference()));
  }
  if (!settings.json_file.empty()) {
    write_report(settings.json_file, settings, figures, texts, bandwidth,
                 compared ? &*compared : nullptr, distance);
  }
  return compared && !compared->tokens_agree() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    generate_settings settings;
    if (const auto code = parse_command_line(argc, argv, settings)) return *code;
    if (!settings.random_model) return generate(settings, settings.model_folder);
    const scratch_folder folder;
    write_random_model(folder.path());
    std::printf("random weights, not a language model: expect noise\n");
    return generate(settings, folder.path());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "generate: %s\n", e.what());
    return 2;
  }
}
