/// The program `generate`, as a user runs it: what it prints, what it writes, how it ends.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <nlohmann/json.hpp>

#include "support/reference_models.hpp"

namespace rankcast::test {
namespace {

struct outcome {
  int exit_code = -1;
  std::string output;  // stdout and stderr
};

// With `processes`: as a job of so many.
outcome generate(const std::string& arguments, int processes = 0) {
  std::string command = std::string(RANKCAST_GENERATE_PROGRAM) + " " + arguments + " 2>&1";
  if (processes > 0) command = RANKCAST_LAUNCHER " " + std::to_string(processes) + " " + command;
  outcome o;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return o;
  std::array<char, 4096> part{};
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe)) {
    o.output.append(part.data(), n);
  }
  const int status = pclose(pipe);
  o.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return o;
}

nlohmann::json read_report(const std::filesystem::path& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in);
}

class generate_program : public testing::Test {
 protected:
  // The tiny models have no tokenizer; ids do without.
  void write_tiny(const std::string& name) {
    write_reference_model(read_reference("tiny/" + name + ".json"), folder_.path());
  }
  [[nodiscard]] std::string model() const { return "--model " + folder_.path().string(); }

  void expect_error(const std::string& arguments, const std::string& text) {
    const outcome o = generate(arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments << "\n" << o.output;
    EXPECT_NE(o.output.find(text), std::string::npos) << arguments << "\n" << o.output;
  }

  scratch_folder folder_;
};

TEST_F(generate_program, the_random_model_says_the_same_on_any_number_of_ranks) {
  nlohmann::json alone;
  for (const std::string ranks : {"--ranks 1", "--ranks 2", "--ranks 3", "--ranks 4"}) {
    const auto file = folder_.path() / "report.json";
    const outcome o =
        generate("--random-model --max-tokens 12 --compare " + ranks + " --json " + file.string());
    ASSERT_EQ(o.exit_code, 0) << o.output;
    EXPECT_NE(o.output.find("random weights"), std::string::npos) << o.output;
    const nlohmann::json report = read_report(file);
    EXPECT_EQ(report.at("tokens").size(), 12U);
    EXPECT_EQ(report.at("tokens_agree"), true);
    EXPECT_LT(report.at("max_logit_difference").get<double>(), 1e-3);
    for (const char* key :
         {"prefill_tokens_per_s", "decode_tokens_per_s", "roofline_share", "bytes_per_token"}) {
      EXPECT_GT(report.at(key).get<double>(), 0.0) << key;
    }
    for (const char* key : {"wait_share", "move_share"}) {
      EXPECT_GE(report.at(key).get<double>(), 0.0) << key;
      EXPECT_LE(report.at(key).get<double>(), 1.0) << key;
    }
    if (alone.is_null()) alone = report.at("tokens");
    EXPECT_EQ(report.at("tokens"), alone) << ranks;
  }
}

// The same program text on threads and on processes: token by token the same.
TEST_F(generate_program, a_job_of_processes_says_what_threads_say) {
  if (std::string(RANKCAST_LAUNCHER).empty()) GTEST_SKIP() << "built without MPI";
  const auto file = folder_.path() / "report.json";
  std::vector<std::string> models{"--random-model --prompt-ids 3,1,4"};
  if (const auto real = model_folder("smollm2-135m");
      std::filesystem::exists(real / "model.safetensors")) {
    models.push_back("--model " + real.string() + " --prompt \"The three laws of robotics are\"");
  }
  for (const std::string& model : models) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      const std::string arguments = model + " --max-tokens 16 --json " + file.string();
      const outcome threads = generate(arguments + " --ranks " + std::to_string(ranks));
      ASSERT_EQ(threads.exit_code, 0) << threads.output;
      const nlohmann::json expected = read_report(file);
      const outcome job = generate(arguments + " --compare", ranks);
      ASSERT_EQ(job.exit_code, 0) << job.output;
      const nlohmann::json report = read_report(file);
      EXPECT_EQ(report.at("ranks"), ranks);
      EXPECT_EQ(report.at("tokens"), expected.at("tokens")) << model << " on " << ranks;
      EXPECT_EQ(report.at("tokens_agree"), true);
    }
  }
  // Two groups of processes, each with prompts of its own.
  write_tiny("llama");
  const std::string prompts = this->model() + " --prompt-ids 3,1,4 --prompt-ids 5 --max-tokens 6 ";
  ASSERT_EQ(generate(prompts + "--json " + file.string()).exit_code, 0);
  const nlohmann::json expected = read_report(file).at("completions");
  const outcome job =
      generate(prompts + "--mesh data=2,tensor=2 --compare --json " + file.string(), 4);
  ASSERT_EQ(job.exit_code, 0) << job.output;
  EXPECT_EQ(read_report(file).at("completions"), expected);

  const outcome wrong = generate("--random-model --ranks 3", 2);
  EXPECT_NE(wrong.exit_code, 0);
  EXPECT_NE(wrong.output.find("3 ranks asked for in a job of 2 processes"), std::string::npos)
      << wrong.output;
}

TEST_F(generate_program, sampling_depends_on_the_seed_and_not_on_the_ranks) {
  const auto file = folder_.path() / "report.json";
  const auto tokens = [&](const std::string& arguments) {
    const outcome o = generate("--random-model --max-tokens 16 --temperature 2 --top-p 0.9 " +
                               arguments + " --json " + file.string());
    EXPECT_EQ(o.exit_code, 0) << o.output;
    return read_report(file).at("tokens");
  };
  const nlohmann::json first = tokens("--seed 1 --ranks 1");
  EXPECT_EQ(first, tokens("--seed 1 --ranks 3"));
  EXPECT_NE(first, tokens("--seed 2 --ranks 1"));
}

TEST_F(generate_program, every_data_group_generates_its_own_prompts) {
  const auto file = folder_.path() / "report.json";
  write_tiny("llama");
  const std::string prompts = " --prompt-ids 3,1,4 --prompt-ids 5 --prompt-ids 9,2 ";
  const outcome one =
      generate(model() + prompts + "--max-tokens 6 --ignore-end --ranks 1 --json " + file.string());
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const nlohmann::json expected = read_report(file).at("completions");
  ASSERT_EQ(expected.size(), 3U);
  const outcome four = generate(
      model() + prompts + "--max-tokens 6 --ignore-end --mesh data=2,tensor=2 --compare --json " +
      file.string());
  ASSERT_EQ(four.exit_code, 0) << four.output;
  const nlohmann::json report = read_report(file);
  EXPECT_EQ(report.at("ranks"), 4);
  EXPECT_EQ(report.at("completions"), expected);
}

TEST_F(generate_program, bfloat16_states_its_distance_from_float32) {
  const auto file = folder_.path() / "report.json";
  const outcome o = generate("--random-model --dtype bfloat16 --ranks 2 --compare --max-tokens 8 " +
                             std::string("--json ") + file.string());
  ASSERT_EQ(o.exit_code, 0) << o.output;
  const nlohmann::json report = read_report(file);
  EXPECT_GT(report.at("max_logit_difference_from_float32").get<double>(), 0.0);
  EXPECT_NE(o.output.find("against float32"), std::string::npos) << o.output;
}

TEST_F(generate_program, refuses_what_it_cannot_do) {
  expect_error("--no-such-option", "--no-such-option");
  expect_error("", "--model");
  expect_error("--random-model --model /tmp", "either");
  expect_error("--model /no/such/folder --prompt-ids 1", "/no/such/folder");
  expect_error("--random-model --mesh data=0,tensor=2", "data=D,tensor=T");
  expect_error("--random-model --prompt-ids 1,x", "not a token id");
  expect_error("--random-model --prompt-ids 999999", "999999");
  expect_error("--random-model --ranks 16", "1 to 9 ranks work");
  write_tiny("llama");
  expect_error(model() + " --prompt hello", "tokenizer.json");
}

TEST_F(generate_program, refuses_folders_that_are_not_whole) {
  write_tiny("llama");
  nlohmann::json config = read_reference("tiny/llama.json").at("config");
  const auto with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json changed = config;
    changed[key] = value;
    transformer::write_json(folder_.path() / "config.json", changed);
  };
  with("model_type", "mamba");
  expect_error(model() + " --prompt-ids 1 --ranks 2", "mamba");
  with("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}});
  expect_error(model() + " --prompt-ids 1 --ranks 2", "yarn");
  with("intermediate_size", 54);
  expect_error(model() + " --prompt-ids 1 --ranks 2", "shape");
  transformer::write_json(folder_.path() / "config.json", config);
  const auto weights = folder_.path() / "model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 8);
  expect_error(model() + " --prompt-ids 1 --ranks 2", "model.safetensors");
  std::ofstream(weights) << "not a checkpoint at all";
  expect_error(model() + " --prompt-ids 1 --ranks 2", "model.safetensors");
  std::filesystem::remove(weights);
  transformer::write_json(folder_.path() / "model.safetensors.index.json",
                          {{"weight_map", {{"a", "model-00001-of-00002.safetensors"}}}});
  expect_error(model() + " --prompt-ids 1 --ranks 2", "model-00001-of-00002.safetensors");
}

}  // namespace
}  // namespace rankcast::test
