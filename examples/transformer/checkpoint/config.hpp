/// What a Hugging Face `config.json` says about a model, brought to one form for the families that
/// are known. Nothing that changes the numbers is guessed: a key that is needed and missing, or a
/// feature that is not built, is an error that names file and key.
/// Keys and defaults: transformers, `models/*/configuration_*.py` (4.57 and 5).
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rankcast/core/error.hpp"
#include "transformer/checkpoint/config_fields.hpp"
#include "transformer/checkpoint/json.hpp"
#include "transformer/checkpoint/mapped_file.hpp"

namespace rankcast::transformer {

enum class architecture : std::uint8_t { llama, qwen2, mistral, phi3, gpt_neox };
enum class activation : std::uint8_t { silu, gelu, gelu_tanh };
enum class rope_scaling : std::uint8_t { none, linear, llama3 };

/// Rotary position embedding.
struct rope_config {
  double theta = 0;
  std::int64_t dimensions = 0;  // the first so many of a head's dimensions turn, in half rotation
  rope_scaling scaling = rope_scaling::none;
  double factor = 1;  // linear and llama3: frequencies are divided by it
  double low_frequency_factor = 1;
  double high_frequency_factor = 1;
  std::int64_t original_max_positions = 0;  // llama3
};

struct model_config {
  transformer::architecture architecture = transformer::architecture::llama;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads
  std::int64_t head_dim = 0;  // need not be hidden_size / heads
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
  double norm_epsilon = 0;  // of the RMS norm; of the layer norm in gpt_neox
  transformer::activation activation = transformer::activation::silu;
  rope_config rope;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool parallel_residual = false;     // gpt_neox: x + attention(norm1(x)) + mlp(norm2(x))
  std::vector<std::int64_t> windows;  // per layer: keys i - window + 1 .. i; 0 is all of them
  std::int64_t bos = -1;              // -1: none
  std::vector<std::int64_t> eos;      // any of them ends a text; may be empty

  [[nodiscard]] std::int64_t window(std::int64_t layer) const {
    return windows.at(static_cast<std::size_t>(layer));
  }
};

[[nodiscard]] constexpr std::string_view name(architecture a) noexcept {
  constexpr std::string_view names[] = {"llama", "qwen2", "mistral", "phi3", "gpt_neox"};
  return names[static_cast<int>(a)];
}

namespace detail {

struct known_architecture {
  transformer::architecture architecture;
  std::string_view model_type;
  std::string_view class_name;
};

inline constexpr known_architecture known_architectures[] = {
    {architecture::llama, "llama", "LlamaForCausalLM"},
    {architecture::qwen2, "qwen2", "Qwen2ForCausalLM"},
    {architecture::mistral, "mistral", "MistralForCausalLM"},
    {architecture::phi3, "phi3", "Phi3ForCausalLM"},
    {architecture::gpt_neox, "gpt_neox", "GPTNeoXForCausalLM"},
};

/// Both `model_type` and `architectures` must name the same known family, where they are there:
/// a classifier has the type of its language model, but another head.
inline architecture read_architecture(const config_fields& config) {
  std::string known;
  for (const known_architecture& k : known_architectures) {
    known += (known.empty() ? "" : ", ") + std::string(k.model_type) + " (" +
             std::string(k.class_name) + ")";
  }
  const auto refuse = [&](const char* key, const std::string& value) {
    config.fail(key, "names " + in_quotes(value) + ", which is not supported; known are " + known);
  };
  const known_architecture* found = nullptr;
  if (const auto type = config.string("model_type")) {
    for (const known_architecture& k : known_architectures) {
      if (k.model_type == *type) found = &k;
    }
    if (found == nullptr) refuse("model_type", *type);
  }
  if (const json* classes = config.find("architectures")) {
    if (!classes->is_array() || classes->size() != 1 || !classes->front().is_string()) {
      config.fail("architectures", "is not a list of one name");
    }
    const auto class_name = classes->front().get<std::string>();
    const known_architecture* by_class = nullptr;
    for (const known_architecture& k : known_architectures) {
      if (k.class_name == class_name) by_class = &k;
    }
    if (by_class == nullptr) refuse("architectures", class_name);
    if (found != nullptr && by_class != found) {
      config.fail("architectures", "names " + in_quotes(class_name) + ", but \"model_type\" is " +
                                       in_quotes(found->model_type));
    }
    found = by_class;
  }
  if (found == nullptr) {
    config.fail("model_type", "is missing, and so is \"architectures\"; known are " + known);
  }
  return found->architecture;
}

inline void read_sizes(const config_fields& config, model_config& m) {
  m.hidden_size = config.required_integer("hidden_size");
  m.intermediate_size = config.required_integer("intermediate_size");
  m.layers = config.required_integer("num_hidden_layers");
  m.heads = config.required_integer("num_attention_heads");
  m.vocab_size = config.required_integer("vocab_size");
  m.max_positions = config.required_integer("max_position_embeddings");
  constexpr std::int64_t most_layers = 100'000;  // before anything is allocated per layer
  if (m.layers > most_layers) config.fail("num_hidden_layers", "is over 100000");

  const bool is_neox = m.architecture == architecture::gpt_neox;
  m.kv_heads = is_neox ? m.heads : config.integer("num_key_value_heads").value_or(m.heads);
  // A null means "as many as heads"; an absent key is a number of the class in two families.
  const bool has_class_number =
      m.architecture == architecture::mistral || m.architecture == architecture::qwen2;
  if (has_class_number && !config.contains("num_key_value_heads")) {
    config.fail("num_key_value_heads", "is missing, and this family has no fixed number");
  }
  if (m.heads % m.kv_heads != 0) {
    config.fail("num_key_value_heads", "is " + std::to_string(m.kv_heads) +
                                           ", which does not divide \"num_attention_heads\" (" +
                                           std::to_string(m.heads) + ")");
  }
  const auto head_dim = is_neox ? std::nullopt : config.integer("head_dim");
  if (!head_dim && m.hidden_size % m.heads != 0) {
    config.fail("num_attention_heads",
                "is " + std::to_string(m.heads) + ", which does not divide \"hidden_size\" (" +
                    std::to_string(m.hidden_size) + "), and there is no \"head_dim\"");
  }
  m.head_dim = head_dim ? *head_dim : m.hidden_size / m.heads;
  if (m.head_dim > std::numeric_limits<std::int32_t>::max() / m.heads) {
    config.fail("head_dim", "times \"num_attention_heads\" is over 2^31 - 1");
  }
}

inline void read_scaling(const config_fields& scaling, const std::string& type, rope_config& rope) {
  if (type == "default") return;
  if (type == "linear") {
    rope.scaling = rope_scaling::linear;
    rope.factor = scaling.required_positive("factor");
  } else if (type == "llama3") {
    rope.scaling = rope_scaling::llama3;
    rope.factor = scaling.required_positive("factor");
    rope.low_frequency_factor = scaling.required_positive("low_freq_factor");
    rope.high_frequency_factor = scaling.required_positive("high_freq_factor");
    rope.original_max_positions = scaling.required_integer("original_max_position_embeddings");
    if (rope.high_frequency_factor <= rope.low_frequency_factor) {
      scaling.fail("high_freq_factor", "is not above \"low_freq_factor\"");
    }
  } else {
    scaling.fail("rope_type", "is " + in_quotes(type) +
                                  ", which is not supported; known are default, linear, llama3");
  }
}

/// The base: under its old key or in `rope_parameters`; where it is in both they must agree.
inline double read_theta(const config_fields& config,
                         const std::optional<config_fields>& parameters, const char* key,
                         architecture family) {
  const double outer = config.positive(key).value_or(0);  // 0: absent
  const double inner = parameters ? parameters->positive("rope_theta").value_or(0) : 0;
  if (outer != 0 && inner != 0 && outer != inner) {
    config.fail(key, "and \"rope_parameters.rope_theta\" differ");
  }
  if (inner != 0) return inner;
  if (outer != 0) return outer;
  if (family == architecture::gpt_neox) return 10000;  // of the whole family
  config.fail(key,
              "is missing (and so is \"rope_parameters.rope_theta\"); models of this family differ "
              "in it: write the value that the model was trained with, 10000.0 for the oldest");
}

inline void read_rope(const config_fields& config, model_config& m) {
  const bool is_neox = m.architecture == architecture::gpt_neox;
  const auto parameters = config.object("rope_parameters");
  const auto old_scaling = config.object("rope_scaling");
  m.rope.theta =
      read_theta(config, parameters, is_neox ? "rotary_emb_base" : "rope_theta", m.architecture);
  if (parameters && old_scaling) {
    config.fail("rope_scaling", "stands beside \"rope_parameters\": only one can be meant");
  }
  if (const auto& scaling = parameters ? parameters : old_scaling) {
    auto type = scaling->string("rope_type");
    if (!type) type = scaling->string("type");
    if (!type && old_scaling) scaling->fail("rope_type", "is missing");
    read_scaling(*scaling, type.value_or("default"), m.rope);
    if (m.architecture == architecture::phi3 && m.rope.scaling != rope_scaling::none) {
      scaling->fail("rope_type", "is " + in_quotes(*type) + ", which phi3 does not have");
    }
  }

  const char* const key = is_neox ? "rotary_pct" : "partial_rotary_factor";
  auto fraction = config.positive(key);
  if (parameters) {
    if (const auto inner = parameters->positive("partial_rotary_factor")) fraction = inner;
  }
  const double part = fraction.value_or(is_neox ? 0.25 : 1.0);  // the families' own
  if (part > 1) config.fail(key, "is above 1");
  if (part != 1 && !is_neox && m.architecture != architecture::phi3) {
    config.fail(key, "is not 1, which " + std::string(name(m.architecture)) + " does not have");
  }
  m.rope.dimensions = static_cast<std::int64_t>(static_cast<double>(m.head_dim) * part);
  if (m.rope.dimensions < 2 || m.rope.dimensions % 2 != 0) {
    config.fail(key, "leaves " + std::to_string(m.rope.dimensions) + " of " +
                         std::to_string(m.head_dim) +
                         " dimensions of a head to turn; it takes an even number above zero");
  }
}

inline void read_activation(const config_fields& config, model_config& m) {
  const bool is_neox = m.architecture == architecture::gpt_neox;
  const std::string act = config.string("hidden_act").value_or(is_neox ? "gelu" : "silu");
  if (act == "silu" || act == "swish") {
    m.activation = activation::silu;
  } else if (act == "gelu" || act == "gelu_python") {
    m.activation = activation::gelu;
  } else if (act == "gelu_new" || act == "gelu_fast" || act == "gelu_pytorch_tanh" ||
             act == "gelu_python_tanh") {
    m.activation = activation::gelu_tanh;
  } else {
    config.fail("hidden_act", "is " + in_quotes(act) +
                                  ", which is not supported; known are silu, gelu, gelu_new, "
                                  "gelu_fast, gelu_pytorch_tanh");
  }
  if (is_neox == (m.activation == activation::silu)) {
    config.fail("hidden_act", "is " + in_quotes(act) + ", which is not supported for " +
                                  std::string(name(m.architecture)));
  }
}

inline void read_biases(const config_fields& config, model_config& m) {
  switch (m.architecture) {
    case architecture::llama:
      m.qkv_bias = m.output_bias = config.boolean("attention_bias", false);
      m.mlp_bias = config.boolean("mlp_bias", false);
      return;
    case architecture::qwen2:  // not in its configuration: the class has them so
      m.qkv_bias = true;
      return;
    case architecture::gpt_neox:
      m.qkv_bias = m.output_bias = config.boolean("attention_bias", true);
      m.mlp_bias = true;
      return;
    case architecture::mistral:
    case architecture::phi3:
      for (const char* key : {"attention_bias", "mlp_bias"}) {
        if (config.boolean(key, false)) {
          config.fail(key,
                      "is true, which " + std::string(name(m.architecture)) + " does not have");
        }
      }
  }
}

inline void read_windows(const config_fields& config, model_config& m) {
  m.windows.assign(static_cast<std::size_t>(m.layers), 0);
  const bool is_qwen2 = m.architecture == architecture::qwen2;
  if (!is_qwen2 && m.architecture != architecture::mistral &&
      m.architecture != architecture::phi3) {
    return;
  }
  if (is_qwen2 && !config.boolean("use_sliding_window", false)) return;
  std::int64_t window = config.integer("sliding_window").value_or(0);
  // An absent key is the class's default, a null is none: two of the families tell them apart.
  constexpr std::int64_t class_window = 4096;
  if (m.architecture != architecture::phi3 && !config.contains("sliding_window")) {
    window = class_window;
  }
  if (!is_qwen2) {
    m.windows.assign(m.windows.size(), window);
    return;
  }
  if (const json* types = config.find("layer_types")) {
    if (!types->is_array() || types->size() != m.windows.size()) {
      config.fail("layer_types", "is not a list of one name per layer");
    }
    for (std::size_t i = 0; i < m.windows.size(); ++i) {
      const json& type = (*types)[i];
      if (type == "sliding_attention") {
        m.windows[i] = window;
      } else if (type != "full_attention") {
        config.fail("layer_types", "holds " + config_fields::short_text(type) +
                                       "; known are full_attention, sliding_attention");
      }
    }
    return;
  }
  constexpr std::int64_t class_first = 28;
  const std::int64_t first = config.integer("max_window_layers", 0).value_or(class_first);
  for (std::int64_t i = first; i < m.layers; ++i) m.windows[static_cast<std::size_t>(i)] = window;
}

/// One id or a list of ids; -1 (which some files write for "none") and null are no id.
inline std::vector<std::int64_t> read_ids(const config_fields& config, const char* key) {
  const json* value = config.find(key);
  if (value == nullptr) return {};
  std::vector<std::int64_t> ids;
  const auto add = [&](const json& id) {
    const std::int64_t number = config.to_integer(key, id, -1);
    if (number >= 0) ids.push_back(number);
  };
  if (value->is_array()) {
    for (const json& id : *value) add(id);
  } else {
    add(*value);
  }
  return ids;
}

inline json read_json_object(const std::filesystem::path& path) {
  const mapped_file file(path);
  json document = parse_json(file.text(), path.string());
  if (!document.is_object()) throw decode_error(path.string() + ": not a JSON object");
  return document;
}

inline void refuse_quantized(const config_fields& config) {
  if (config.find("quantization_config") == nullptr) return;
  const auto quantization = config.object("quantization_config");
  const auto method = quantization->string("quant_method");
  config.fail("quantization_config",
              "asks for weights quantised with " + in_quotes(method.value_or("an unnamed method")) +
                  ", which is not supported: use the folder with the float weights");
}

}  // namespace detail

/// Reads `config.json` of a model folder, and `generation_config.json` where it is there: its
/// `eos_token_id` goes before the other.
/// Throws transport_error (a file that cannot be read), decode_error (no JSON, a key twice), and
/// usage_error, naming file and key, for what is missing, out of range or not supported.
[[nodiscard]] inline model_config read_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const json document = detail::read_json_object(path);
  const detail::config_fields config(document, path.string());

  model_config m;
  m.architecture = detail::read_architecture(config);
  detail::refuse_quantized(config);
  detail::read_sizes(config, m);
  const bool is_neox = m.architecture == architecture::gpt_neox;
  m.norm_epsilon = config.required_positive(is_neox ? "layer_norm_eps" : "rms_norm_eps");
  detail::read_activation(config, m);
  detail::read_rope(config, m);
  detail::read_biases(config, m);
  detail::read_windows(config, m);
  m.tie_word_embeddings = config.boolean("tie_word_embeddings", false);  // in all five families
  m.parallel_residual = is_neox && config.boolean("use_parallel_residual", true);

  const std::vector<std::int64_t> bos = detail::read_ids(config, "bos_token_id");
  if (bos.size() > 1) config.fail("bos_token_id", "names more than one id");
  if (!bos.empty()) m.bos = bos.front();
  m.eos = detail::read_ids(config, "eos_token_id");
  const std::filesystem::path generation_path = folder / "generation_config.json";
  if (std::filesystem::exists(generation_path)) {
    const json generation = detail::read_json_object(generation_path);
    const detail::config_fields fields(generation, generation_path.string());
    if (fields.find("eos_token_id") != nullptr) m.eos = detail::read_ids(fields, "eos_token_id");
  }
  return m;
}

}  // namespace rankcast::transformer
