/// One run of the model over a mesh of thread ranks: every data-parallel group generates its own
/// prompts, all ranks of a group run the loop together, and every rank picks the same tokens.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/collectives/barrier.hpp"
#include "rankcast/parallel/logits.hpp"
#include "rankcast/parallel/mesh.hpp"
#include "rankcast/transports/local/threads.hpp"
#include "transformer/checkpoint/config.hpp"
#include "transformer/checkpoint/folder.hpp"
#include "transformer/generate/settings.hpp"
#include "transformer/math/threads.hpp"
#include "transformer/model/model.hpp"

namespace rankcast::transformer {

/// What one prompt became.
struct completion_result {
  std::vector<std::int32_t> tokens;        // generated
  std::vector<std::vector<float>> logits;  // per step, the whole vocabulary; when traced
};

/// The outcome of a run: what was generated, and what it took.
struct run_figures {
  std::vector<completion_result> completions;  // by prompt
  // By tensor rank, with the embedding cut by vocabulary and by hidden dimension.
  std::vector<std::size_t> weight_bytes;
  std::vector<std::size_t> weight_bytes_by_hidden;
  std::size_t bytes_per_token = 0;  // of weights, read by all ranks of a group
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  double prefill_seconds = 0;  // of rank 0, as all that follows
  double decode_seconds = 0;
  double wait_seconds = 0;  // of the decode time: waiting for peers
  double move_seconds = 0;  // of the decode time: moving and folding data
};

/// Called on the first rank of each group, in order; `token` is what was picked.
using token_listener = std::function<void(std::size_t prompt, std::int32_t token)>;

struct run_request {
  const generate_settings* settings = nullptr;
  const model_config* config = nullptr;
  std::filesystem::path folder;
  std::vector<std::vector<std::int32_t>> prompts;
  int data_ranks = 1;
  int tensor_ranks = 1;
  dtype type = dtype::float32;
  bool trace = false;                   // keep the logits of every step
  const run_figures* follow = nullptr;  // a traced run: take its tokens instead of our own
  std::function<void(std::size_t prompt, std::size_t step, std::span<const float> logits,
                     std::int32_t picked)>
      compared{};  // with what we would have picked; needs `follow`
  token_listener listener{};
};

namespace detail {

using seconds = std::chrono::duration<double>;

// The state of one rank in a run.
class generating_rank {
 public:
  generating_rank(const run_request& request, const communicator& world, run_figures& figures,
                  std::mutex& mutex)
      : request_(request),
        mesh_(world, {.data = request.data_ranks, .tensor = request.tensor_ranks}),
        vocabulary_(mesh_.tensor(), request.config->vocab_size),
        files_(request.folder),
        figures_(figures),
        mutex_(mutex),
        model_(files_, *request.config, mesh_.tensor(),
               {.type = request.type, .embedding = request.settings->model.embedding}),
        first_(world.rank() == 0),
        group_leader_(mesh_.tensor().rank() == 0) {}

  void run() {
    {  // a slow disk may serve one rank long after the others
      const scoped_timeout loading(mesh_.world(), std::chrono::minutes(30));
      barrier(mesh_.world());
    }
    share_figures();
    const auto step = static_cast<std::size_t>(request_.data_ranks);
    for (auto p = static_cast<std::size_t>(mesh_.coordinates().data); p < request_.prompts.size();
         p += step) {
      generate(p);
    }
    // Groups finish at different times; nobody leaves while a peer may still be reading.
    barrier(mesh_.world(), {.timeout = no_timeout});
  }

 private:
  void share_figures() {
    struct sizes {
      std::uint64_t by_vocabulary = 0;
      std::uint64_t by_hidden = 0;
      std::uint64_t read = 0;
    };
    const sizes mine{model_.weight_bytes(embedding_cut::vocabulary),
                     model_.weight_bytes(embedding_cut::hidden), model_.bytes_per_token()};
    std::vector<sizes> all(static_cast<std::size_t>(request_.tensor_ranks));
    all_gather(mesh_.tensor(), mine, all);
    if (!first_) return;
    for (const sizes& s : all) {
      figures_.weight_bytes.push_back(s.by_vocabulary);
      figures_.weight_bytes_by_hidden.push_back(s.by_hidden);
      figures_.bytes_per_token += s.read;
    }
  }

  void generate(std::size_t prompt) {
    const std::vector<std::int32_t>& ids = request_.prompts[prompt];
    const generate_settings& s = *request_.settings;
    const completion_result* lead =
        request_.follow == nullptr ? nullptr : &request_.follow->completions[prompt];
    const std::size_t limit =
        lead != nullptr ? lead->tokens.size() : static_cast<std::size_t>(s.max_tokens);
    kv_cache cache = model_.make_cache(static_cast<std::int64_t>(ids.size() + limit));
    completion_result result;

    std::span<const std::int32_t> input(ids);
    std::int32_t token = 0;
    for (std::size_t step = 0; step < limit; ++step) {
      const bool prefill = step == 0;
      const auto begin = steady_clock::now();
      const transport_counters before = mesh_.tensor().counters();
      const const_tensor_view logits = model_.forward(input, cache, 1);
      const std::int32_t picked = pick(logits, prompt, step);
      account(prefill, input.size(), seconds(steady_clock::now() - begin).count(), before);

      token = picked;
      if (lead != nullptr) token = lead->tokens[step];
      if (request_.trace || request_.compared) look_at(prompt, step, logits, picked, result);
      result.tokens.push_back(token);
      if (group_leader_ && request_.listener) request_.listener(prompt, token);
      if (lead == nullptr && s.stop_at_end && ends(token)) break;
      input = {&token, 1};
    }
    if (group_leader_) {
      const std::lock_guard lock(mutex_);
      figures_.completions[prompt] = std::move(result);
    }
  }

  // Temperature 0 takes the likeliest. Every rank picks the same.
  std::int32_t pick(const const_tensor_view& logits, std::size_t prompt, std::size_t step) const {
    const generate_settings& s = *request_.settings;
    const std::vector<std::int64_t> ids =
        sample(vocabulary_, logits,
               {.temperature = s.temperature,
                .top_p = s.top_p,
                .seed = s.seed + prompt * 0x9E3779B97F4A7C15U,  // prompts draw numbers of their own
                .step = step});
    return static_cast<std::int32_t>(ids.front());
  }

  [[nodiscard]] bool ends(std::int32_t token) const {
    for (const std::int64_t e : request_.config->eos) {
      if (e == token) return true;
    }
    return false;
  }

  // The whole vocabulary's logits, on the group's first rank.
  void look_at(std::size_t prompt, std::size_t step, const const_tensor_view& logits,
               std::int32_t picked, completion_result& result) {
    std::vector<float> whole(group_leader_ ? static_cast<std::size_t>(request_.config->vocab_size)
                                           : 0);
    if (group_leader_) {
      gather_logits(vocabulary_, logits,
                    tensor_view(std::span(whole), {1, request_.config->vocab_size}));
    } else {
      gather_logits(vocabulary_, logits, nothing);
    }
    if (!group_leader_) return;
    if (request_.compared) {
      const std::lock_guard lock(mutex_);
      request_.compared(prompt, step, whole, picked);
    }
    if (request_.trace) result.logits.push_back(std::move(whole));
  }

  void account(bool prefill, std::size_t tokens, double time, const transport_counters& before) {
    if (!group_leader_) return;
    const std::lock_guard lock(mutex_);
    (prefill ? figures_.prefill_tokens : figures_.decode_tokens) +=
        static_cast<std::int64_t>(tokens);
    if (!first_) return;
    (prefill ? figures_.prefill_seconds : figures_.decode_seconds) += time;
    if (prefill) return;
    const transport_counters now = mesh_.tensor().counters();
    figures_.wait_seconds += seconds(now.waiting - before.waiting).count();
    figures_.move_seconds += seconds(now.moving - before.moving).count();
  }

  const run_request& request_;
  mesh mesh_;
  sharded_vocabulary vocabulary_;
  checkpoint files_;
  run_figures& figures_;
  std::mutex& mutex_;
  model model_;
  bool first_;
  bool group_leader_;
};

}  // namespace detail

/// Runs the request on threads of this process and returns when all ranks are done; what a rank
/// throws is thrown here.
[[nodiscard]] inline run_figures run_model(const run_request& request) {
  const int ranks = request.data_ranks * request.tensor_ranks;
  run_figures figures;
  figures.completions.resize(request.prompts.size());
  std::mutex mutex;
  rankcast::run(ranks, [&](communicator& world) {
    const scoped_threads threads(compute_threads(ranks));
    detail::generating_rank rank(request, world, figures, mutex);
    rank.run();
  });
  return figures;
}

}  // namespace rankcast::transformer
