/// Generates text with a Hugging Face model sharded over ranks: threads of this process, or, under
/// a launcher, MPI processes.
///
///   generate --model FOLDER --ranks 3 --prompt "Once upon a time" --compare
///   mpirun -n 3 generate --model FOLDER --prompt "Once upon a time" --compare
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rankcast/object.hpp"
#include "transformer/checkpoint/random_model.hpp"
#include "transformer/checkpoint/scratch_folder.hpp"
#include "transformer/generate/comparison.hpp"
#include "transformer/generate/ranks.hpp"
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

// Prompts as ids, and their texts where there is a tokenizer.
struct prompt_set {
  std::unique_ptr<tokenizer> text;
  std::vector<std::vector<std::int32_t>> ids;
};

prompt_set read_prompts(const generate_settings& settings, const std::filesystem::path& folder) {
  prompt_set prompts;
  if (!settings.prompts.empty() || std::filesystem::exists(folder / "tokenizer.json")) {
    try {
      prompts.text = std::make_unique<tokenizer>(tokenizer::from_folder(folder));
    } catch (const error&) {  // ids need none; the answer is then ids too
      if (!settings.prompts.empty()) throw;
    }
  }
  for (const std::string& p : settings.prompts) {
    prompts.ids.push_back(prompts.text->encode(p, true));
    if (prompts.ids.back().empty()) throw usage_error("--prompt: the text is empty");
  }
  prompts.ids.insert(prompts.ids.end(), settings.prompt_ids.begin(), settings.prompt_ids.end());
  return prompts;
}

// What the run on one rank is compared with, made on the first rank for all.
struct unsharded_run {
  run_figures figures;
  std::optional<float> distance_from_float32;  // of 16-bit weights

  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& figures& distance_from_float32;
  }
};

unsharded_run run_unsharded(run_request alone) {
  unsharded_run result;
  alone.data_ranks = alone.tensor_ranks = 1;
  alone.trace = true;
  rankcast::run(1, [&](communicator& self) { result.figures = run_model(self, alone); });
  if (alone.type == dtype::float32) return result;
  comparison from_float32(result.figures);
  alone.type = dtype::float32;
  alone.trace = false;
  alone.follow = &result.figures;
  alone.compared = [&](std::size_t p, std::size_t i, std::span<const float> logits,
                       std::int32_t picked) { from_float32.step(p, i, logits, picked); };
  rankcast::run(1, [&](communicator& self) { static_cast<void>(run_model(self, alone)); });
  result.distance_from_float32 = from_float32.result().max_logit_difference;
  return result;
}

void print_texts(const generate_settings& settings, const std::vector<std::string>& texts) {
  if (texts.size() == 1) return;  // it was printed as it came
  for (std::size_t p = 0; p < texts.size(); ++p) {
    std::printf("[%zu] %s%s\n", p, p < settings.prompts.size() ? settings.prompts[p].c_str() : "",
                texts[p].c_str());
  }
}

// On every rank of the job; the first one speaks. Returns the exit code.
int generate(const generate_settings& settings, const std::filesystem::path& folder,
             const communicator& world) {
  const bool speaks = world.rank() == 0;
  const model_config config = read_config(folder);
  prompt_set prompts;
  double bandwidth = 0;
  if (speaks) {
    prompts = read_prompts(settings, folder);
    bandwidth = read_bandwidth_bytes_per_second(local::usable_cpus());
  }
  broadcast_object(world, prompts.ids, {.timeout = no_timeout});

  run_request request;
  request.settings = &settings;
  request.config = &config;
  request.folder = folder;
  request.prompts = prompts.ids;
  request.data_ranks = settings.data_ranks;
  request.tensor_ranks = settings.tensor_ranks;
  request.type = settings.model.type;

  // The unsharded run goes first: the sharded one follows its tokens.
  unsharded_run unsharded;
  comparison compared(unsharded.figures);
  if (settings.compare) {
    if (speaks) unsharded = run_unsharded(request);
    broadcast_object(world, unsharded, {.timeout = no_timeout});
    request.follow = &unsharded.figures;
    request.compared = [&](std::size_t p, std::size_t i, std::span<const float> logits,
                           std::int32_t picked) { compared.step(p, i, logits, picked); };
  }

  text_printer printer(prompts.text.get(), prompts.ids.size());
  if (speaks) {
    if (prompts.ids.size() == 1 && !settings.prompts.empty()) {
      std::printf("%s", settings.prompts.front().c_str());
    }
    request.listener = [&](std::size_t, std::int32_t token) { printer.token(token); };
  }
  const run_figures figures = run_model(world, request);
  const auto found = gather_object(world, compared.result());
  if (!speaks) return 0;

  printer.finish();
  std::vector<std::string> texts;
  for (const completion_result& c : figures.completions) {
    texts.push_back(text_of(prompts.text.get(), c.tokens));
  }
  print_texts(settings, texts);
  print_header(bandwidth);
  if (settings.compare) print_row("unsharded", unsharded.figures, bandwidth);
  print_row(ranks_text(settings), figures, bandwidth);
  print_weights(figures);
  comparison_result total;
  for (const comparison_result& r : found) total += r;
  if (settings.compare) print_comparison(total, unsharded.distance_from_float32);
  if (!settings.json_file.empty()) {
    write_report(settings.json_file, settings, figures, texts, bandwidth,
                 settings.compare ? &total : nullptr, unsharded.distance_from_float32);
  }
  return settings.compare && !total.tokens_agree() ? 1 : 0;
}

int run_program(int argc, char** argv, rank_source& ranks) {
  generate_settings settings;
  settings.processes = ranks.processes();
  if (const auto code = parse_command_line(argc, argv, settings)) return *code;
  int code = 0;
  const auto on_all = [&](const std::filesystem::path& folder) {
    ranks.run(settings.ranks(), [&](communicator& world) {
      const int mine = generate(settings, folder, world);
      if (world.rank() == 0) code = mine;
    });
  };
  if (!settings.random_model) {
    on_all(settings.model_folder);
    return code;
  }
  const scratch_folder folder;  // each process makes the same one
  write_random_model(folder.path());
  if (ranks.speaks()) std::printf("random weights, not a language model: expect noise\n");
  on_all(folder.path());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<rank_source> ranks;
  const auto complain = [](const std::exception& e) {
    std::fprintf(stderr, "generate: %s\n", e.what());
    return 2;
  };
  try {
    ranks.emplace(argc, argv);
    return run_program(argc, argv, *ranks);
  } catch (const usage_error& e) {  // all processes were asked the same
    return !ranks || ranks->speaks() ? complain(e) : 2;
  } catch (const peer_lost_error& e) {  // the process that left has said why
    return ranks->processes() == 0 ? complain(e) : 2;
  } catch (const std::exception& e) {
    return complain(e);
  }
}
