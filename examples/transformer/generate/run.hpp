/// One run of the model over a mesh of ranks: every data-parallel group generates its own prompts.
/// In a group one rank leads: it runs the loop, which knows of no ranks, and the others serve it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/collectives/barrier.hpp"
#include "rankcast/object/gather.hpp"
#include "rankcast/parallel/coordinator.hpp"
#include "rankcast/parallel/logits.hpp"
#include "rankcast/parallel/mesh.hpp"
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

  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& tokens& logits;
  }
};

/// The outcome of a run: what was generated, and what it took.
struct run_figures {
  std::vector<completion_result> completions;  // by prompt
  // By tensor rank, with the embedding cut by vocabulary and by hidden dimension.
  std::vector<std::uint64_t> weight_bytes;
  std::vector<std::uint64_t> weight_bytes_by_hidden;
  std::uint64_t bytes_per_token = 0;  // of weights, read by all ranks of a group
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  double prefill_seconds = 0;  // of rank 0, as all that follows
  double decode_seconds = 0;
  double wait_seconds = 0;  // of the decode time: waiting for peers
  double move_seconds = 0;  // of the decode time: moving and folding data

  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& completions& weight_bytes& weight_bytes_by_hidden& bytes_per_token& prefill_tokens&
        decode_tokens& prefill_seconds& decode_seconds& wait_seconds& move_seconds;
  }
};

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
  // Called on the leader of each group, in order, with what it would have picked; needs `follow`.
  std::function<void(std::size_t prompt, std::size_t step, std::span<const float> logits,
                     std::int32_t picked)>
      compared{};
  // Likewise, with what was picked.
  std::function<void(std::size_t prompt, std::int32_t token)> listener{};
};

namespace detail {

using seconds = std::chrono::duration<double>;

// The state of one rank in a run.
class generating_rank {
 public:
  generating_rank(const run_request& request, const communicator& world)
      : request_(request),
        mesh_(world, {.data = request.data_ranks, .tensor = request.tensor_ranks}),
        vocabulary_(mesh_.tensor(), request.config->vocab_size),
        files_(request.folder),
        model_(files_, *request.config, mesh_.tensor(),
               {.type = request.type, .embedding = request.settings->model.embedding}) {
    figures_.completions.resize(request.prompts.size());
  }

  // The whole run's figures on rank 0 of the world.
  run_figures run() {
    {  // a slow disk may serve one rank long after the others
      const scoped_timeout loading(mesh_.world(), std::chrono::minutes(30));
      barrier(mesh_.world());
    }
    share_sizes();
    coordinator session(mesh_.tensor());
    const auto begin = session.wrap(
        [this](std::int64_t capacity) { cache_.emplace(model_.make_cache(capacity)); });
    const auto step = session.wrap(
        [this](std::span<const std::int32_t> tokens, std::uint64_t prompt, std::uint64_t index,
               bool whole) { return forward(tokens, prompt, index, whole); });
    if (session.is_leader()) {
      const auto stride = static_cast<std::size_t>(request_.data_ranks);
      for (auto p = static_cast<std::size_t>(mesh_.coordinates().data); p < request_.prompts.size();
           p += stride) {
        generate(p, begin, step);
      }
      session.finish();
    } else {
      session.serve();
    }
    // Groups finish at different times.
    return merge(gather_object(mesh_.world(), figures_, {.timeout = no_timeout}));
  }

 private:
  // What one step of all ranks gives their leader.
  struct stepped {
    std::int32_t picked = 0;
    std::vector<float> logits;  // [vocabulary], when asked for
  };

  void share_sizes() {
    struct sizes {
      std::uint64_t by_vocabulary = 0;
      std::uint64_t by_hidden = 0;
      std::uint64_t read = 0;
    };
    const sizes mine{model_.weight_bytes(embedding_cut::vocabulary),
                     model_.weight_bytes(embedding_cut::hidden), model_.bytes_per_token()};
    std::vector<sizes> all(static_cast<std::size_t>(request_.tensor_ranks));
    all_gather(mesh_.tensor(), mine, all);
    for (const sizes& s : all) {
      figures_.weight_bytes.push_back(s.by_vocabulary);
      figures_.weight_bytes_by_hidden.push_back(s.by_hidden);
      figures_.bytes_per_token += s.read;
    }
  }

  // On all ranks of the group.
  stepped forward(std::span<const std::int32_t> tokens, std::uint64_t prompt, std::uint64_t index,
                  bool whole) {
    const const_tensor_view logits = model_.forward(tokens, *cache_, 1);
    stepped result;
    result.picked = pick(logits, prompt, index);
    if (!whole) return result;
    if (mesh_.tensor().rank() != 0) {
      gather_logits(vocabulary_, logits, nothing);
      return result;
    }
    result.logits.resize(static_cast<std::size_t>(request_.config->vocab_size));
    gather_logits(vocabulary_, logits,
                  tensor_view(std::span(result.logits), {1, request_.config->vocab_size}));
    return result;
  }

  // Temperature 0 takes the likeliest. Every rank picks the same.
  std::int32_t pick(const const_tensor_view& logits, std::uint64_t prompt,
                    std::uint64_t step) const {
    const generate_settings& s = *request_.settings;
    const std::vector<std::int64_t> ids =
        sample(vocabulary_, logits,
               {.temperature = s.temperature,
                .top_p = s.top_p,
                .seed = s.seed + prompt * 0x9E3779B97F4A7C15U,  // prompts draw numbers of their own
                .step = step});
    return static_cast<std::int32_t>(ids.front());
  }

  // The leader's loop: `step(tokens, ...)` is all it knows of the model.
  template <class Begin, class Step>
  void generate(std::size_t prompt, const Begin& begin, const Step& step) {
    const std::vector<std::int32_t>& ids = request_.prompts[prompt];
    const generate_settings& s = *request_.settings;
    const completion_result* lead =
        request_.follow == nullptr ? nullptr : &request_.follow->completions[prompt];
    const std::size_t limit =
        lead != nullptr ? lead->tokens.size() : static_cast<std::size_t>(s.max_tokens);
    begin(static_cast<std::int64_t>(ids.size() + limit));
    completion_result& result = figures_.completions[prompt];

    const bool whole = request_.trace || request_.compared;
    std::span<const std::int32_t> input(ids);
    std::int32_t token = 0;
    for (std::size_t i = 0; i < limit; ++i) {
      const auto start = steady_clock::now();
      const transport_counters before = mesh_.tensor().counters();
      stepped next = step(input, prompt, i, whole);
      account(i == 0, input.size(), seconds(steady_clock::now() - start).count(), before);

      token = lead != nullptr ? lead->tokens[i] : next.picked;
      if (request_.compared) request_.compared(prompt, i, next.logits, next.picked);
      if (request_.trace) result.logits.push_back(std::move(next.logits));
      result.tokens.push_back(token);
      if (request_.listener) request_.listener(prompt, token);
      if (lead == nullptr && s.stop_at_end && ends(token)) break;
      input = {&token, 1};
    }
  }

  [[nodiscard]] bool ends(std::int32_t token) const {
    for (const std::int64_t e : request_.config->eos) {
      if (e == token) return true;
    }
    return false;
  }

  void account(bool prefill, std::size_t tokens, double time, const transport_counters& before) {
    (prefill ? figures_.prefill_tokens : figures_.decode_tokens) +=
        static_cast<std::int64_t>(tokens);
    (prefill ? figures_.prefill_seconds : figures_.decode_seconds) += time;
    if (prefill) return;
    const transport_counters now = mesh_.tensor().counters();
    figures_.wait_seconds += seconds(now.waiting - before.waiting).count();
    figures_.move_seconds += seconds(now.moving - before.moving).count();
  }

  // Sizes and times are rank 0's; tokens are counted, and completions collected, from all leaders.
  static run_figures merge(std::vector<run_figures> all) {
    if (all.empty()) return {};
    run_figures sum = std::move(all.front());
    for (std::size_t r = 1; r < all.size(); ++r) {
      sum.prefill_tokens += all[r].prefill_tokens;
      sum.decode_tokens += all[r].decode_tokens;
      for (std::size_t p = 0; p < sum.completions.size(); ++p) {
        if (!all[r].completions[p].tokens.empty()) {
          sum.completions[p] = std::move(all[r].completions[p]);
        }
      }
    }
    return sum;
  }

  const run_request& request_;
  mesh mesh_;
  sharded_vocabulary vocabulary_;
  checkpoint files_;
  model model_;
  std::optional<kv_cache> cache_;
  run_figures figures_;
};

}  // namespace detail

/// Runs the request on the ranks of `world`, all of which call this; rank 0 gets the figures.
[[nodiscard]] inline run_figures run_model(const communicator& world, const run_request& request) {
  const scoped_threads threads(compute_threads(world.size()));
  return detail::generating_rank(request, world).run();
}

}  // namespace rankcast::transformer
