/// Text to token ids and back, as a model folder's tokenizer.json says (format of the Hugging Face
/// `tokenizers` library), for byte-level BPE: GPT-2, GPT-NeoX, Llama 3, Qwen 2, SmolLM,
/// Mistral-Nemo. Others (SentencePiece, WordPiece) are refused by name; programs then take ids.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rankcast/core/error.hpp"
#include "transformer/checkpoint/config_fields.hpp"
#include "transformer/checkpoint/json.hpp"
#include "transformer/checkpoint/mapped_file.hpp"
#include "transformer/tokenizer/added_tokens.hpp"
#include "transformer/tokenizer/bpe.hpp"
#include "transformer/tokenizer/pre_tokenizer.hpp"
#include "transformer/tokenizer/template.hpp"
#include "transformer/tokenizer/unicode.hpp"

namespace rankcast::transformer {

/// All functions may be called from several threads. "truncation" and "padding" of the file are
/// not applied: how long a prompt may be is the caller's business.
class tokenizer {
 public:
  /// Reads `tokenizer.json` of a model folder. Throws transport_error (it cannot be read),
  /// decode_error (no JSON, a key twice) and usage_error, naming file and key, for what is not
  /// supported.
  [[nodiscard]] static tokenizer from_folder(const std::filesystem::path& folder) {
    return tokenizer(folder / "tokenizer.json");
  }

  /// The same, from a file of any name.
  explicit tokenizer(const std::filesystem::path& path) {
    const mapped_file file(path);
    const json document = parse_json(file.text(), path.string());
    if (!document.is_object()) throw decode_error(path.string() + ": not a JSON object");
    const detail::config_fields fields(document, path.string());
    const auto need = [&](const char* key) {
      const auto object = fields.object(key);
      if (!object) {
        fields.fail(key,
                    "is missing or null, which only tokenizers have that are not byte-level; "
                    "give ids with --prompt-ids");
      }
      return *object;
    };
    model_ = byte_pair_encoding(need("model"), alphabet_);
    read_normalizer(fields);
    pre_tokenizer_ = pre_tokenizer(need("pre_tokenizer"));
    const detail::config_fields decoder = need("decoder");
    if (const auto type = decoder.string("type").value_or(""); type != "ByteLevel") {
      decoder.fail("type",
                   "is " + in_quotes(type) + ", which is not supported; known is ByteLevel");
    }
    read_tokens(fields);
    template_ = prompt_template(fields, vocabulary_size());
  }

  /// The ids of a text. Added tokens that stand in the text become their ids, special ones too.
  /// `add_special_tokens` puts before and after what the file's template says (a BOS, for some
  /// families). Bytes that are no UTF-8 count as U+FFFD.
  /// Cost: O(n log n); pieces that were seen before come from a cache of bounded size.
  [[nodiscard]] std::vector<int> encode(std::string_view text,
                                        bool add_special_tokens = true) const {
    if (!is_valid_utf8(text)) return encode(replace_invalid_utf8(text), add_special_tokens);
    std::vector<int> ids;
    if (add_special_tokens) ids = template_.before();
    const auto add = [&](int id) { ids.push_back(id); };
    raw_finder_.split(
        text,
        [&](std::string_view part) {
          const std::string normalized = is_nfc_ ? normalize_nfc(part) : std::string();
          normalized_finder_.split(
              is_nfc_ ? std::string_view(normalized) : part,
              [&](std::string_view rest) {
                pre_tokenizer_.split(rest,
                                     [&](std::string_view piece) { encode_piece(piece, ids); });
              },
              add);
        },
        add);
    if (add_special_tokens) {
      ids.insert(ids.end(), template_.after().begin(), template_.after().end());
    }
    return ids;
  }

  /// The bytes that an id stands for; empty for an id that no token has (a model's vocabulary may
  /// be padded beyond its tokenizer's) and, with `skip_special`, for special tokens.
  /// Throws usage_error for a negative id. Valid as long as the tokenizer is.
  [[nodiscard]] std::string_view bytes(int id, bool skip_special = true) const {
    if (id < 0) throw usage_error("token id " + std::to_string(id) + " is negative");
    const auto index = static_cast<std::size_t>(id);
    if (index >= tokens_.size() || (skip_special && tokens_[index].is_special)) return {};
    return tokens_[index].bytes;
  }

  /// The bytes of all ids, one after the other. Not UTF-8 where the ids cut a character.
  [[nodiscard]] std::string decode_bytes(std::span<const int> ids, bool skip_special = true) const {
    std::string result;
    for (const int id : ids) result += bytes(id, skip_special);
    return result;
  }

  /// The text of the ids, with U+FFFD for what is no UTF-8.
  [[nodiscard]] std::string decode(std::span<const int> ids, bool skip_special = true) const {
    return replace_invalid_utf8(decode_bytes(ids, skip_special));
  }

  /// One more than the largest id.
  [[nodiscard]] int vocabulary_size() const noexcept { return static_cast<int>(tokens_.size()); }

  /// The id of a token by its text: an added token's content, or bytes.
  [[nodiscard]] std::optional<int> find(std::string_view text) const {
    const auto found = by_bytes_.find(text);
    return found == by_bytes_.end() ? std::nullopt : std::optional(found->second);
  }

  [[nodiscard]] bool is_special(int id) const noexcept {
    const auto index = static_cast<std::size_t>(id);
    return id >= 0 && index < tokens_.size() && tokens_[index].is_special;
  }

 private:
  struct token {
    std::string bytes;
    bool is_special = false;
    bool is_present = false;
  };
  using piece_ids =
      std::unordered_map<std::string, std::vector<int>, detail::text_hash, std::equal_to<>>;
  struct piece_cache {
    std::mutex mutex;
    piece_ids pieces;
  };

  void encode_piece(std::string_view piece, std::vector<int>& ids) const {
    constexpr std::size_t longest = 64;  // bytes: longer pieces seldom come again
    constexpr std::size_t most = 1 << 14;
    if (piece.size() > longest) return model_.encode(piece, ids);
    {
      const std::lock_guard lock(cache_->mutex);
      const auto found = cache_->pieces.find(piece);
      if (found != cache_->pieces.end()) {
        ids.insert(ids.end(), found->second.begin(), found->second.end());
        return;
      }
    }
    std::vector<int> own;
    model_.encode(piece, own);
    ids.insert(ids.end(), own.begin(), own.end());
    const std::lock_guard lock(cache_->mutex);
    if (cache_->pieces.size() < most) cache_->pieces.emplace(piece, std::move(own));
  }

  void read_normalizer(const detail::config_fields& fields) {
    const auto normalizer = fields.object("normalizer");
    if (!normalizer) return;
    const auto type = normalizer->string("type").value_or("");
    if (type == "Sequence" && normalizer->objects("normalizers").empty()) return;
    if (type != "NFC") {
      normalizer->fail("type", "is " + in_quotes(type) +
                                   ", which is not supported; known is NFC; give ids with "
                                   "--prompt-ids");
    }
    is_nfc_ = true;
  }

  token& slot(int id) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= tokens_.size()) tokens_.resize(index + 1);
    return tokens_[index];
  }

  void read_tokens(const detail::config_fields& fields) {
    for (const auto& [text, id] : model_.ids()) {
      token& t = slot(id);
      if (t.is_present) {
        fields.fail("model.vocab", "gives the id " + std::to_string(id) + " to two tokens");
      }
      t.is_present = true;
      if (!alphabet_.to_bytes(text, t.bytes)) t.bytes = text;
    }
    for (const detail::config_fields& added : fields.objects("added_tokens")) {
      read_added_token(added);
    }
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].is_present) by_bytes_.emplace(tokens_[i].bytes, static_cast<int>(i));
    }
  }

  void read_added_token(const detail::config_fields& added) {
    for (const char* key : {"lstrip", "rstrip", "single_word"}) {
      if (added.boolean(key, false)) {
        added.fail(key, "is true (of token " + in_quotes(added.string("content").value_or("")) +
                            "), which is not supported; give ids with --prompt-ids");
      }
    }
    added_token t;
    constexpr std::int64_t most = 1 << 26;
    const std::int64_t id = added.to_integer("id", added.require("id"), 0);
    if (id >= most) added.fail("id", "is " + std::to_string(id));
    t.id = static_cast<int>(id);
    const auto content = added.string("content");
    if (!content) added.fail("content", "is missing");
    t.content = *content;
    t.is_special = added.boolean("special", false);
    t.is_normalized = added.boolean("normalized", !t.is_special);
    const auto in_model = model_.ids().find(t.content);
    token& known = slot(t.id);
    // Either the model has this content under this id, or it has neither.
    const bool is_same = in_model != model_.ids().end() && in_model->second == t.id;
    if (!is_same && (in_model != model_.ids().end() || known.is_present)) {
      added.fail("id", "is " + std::to_string(t.id) + " for " + in_quotes(t.content) +
                           ", but the vocabulary has the id or the text for something else");
    }
    known = {t.content, t.is_special, true};
    if (t.is_normalized) {
      normalized_finder_.add(is_nfc_ ? normalize_nfc(t.content) : t.content, t.id);
    } else {
      raw_finder_.add(t.content, t.id);
    }
  }

  byte_alphabet alphabet_;
  byte_pair_encoding model_;
  pre_tokenizer pre_tokenizer_;
  prompt_template template_;
  token_finder raw_finder_;
  token_finder normalized_finder_;
  bool is_nfc_ = false;
  std::vector<token> tokens_;  // by id
  byte_pair_encoding::vocabulary by_bytes_;
  std::unique_ptr<piece_cache> cache_ = std::make_unique<piece_cache>();  // so that it can move
};

/// Turns ids into text as they come: a character whose bytes come with several tokens is held back
/// until it is whole. One per text; the tokenizer must outlive it.
class stream_decoder {
 public:
  explicit stream_decoder(const tokenizer& tokens, bool skip_special = true) noexcept
      : tokenizer_(&tokens), skip_special_(skip_special) {}

  /// The text that is now certain; may be empty. Bytes that can no longer become UTF-8 come as
  /// U+FFFD. All texts together, with that of `finish`, are `decode` of all the ids.
  [[nodiscard]] std::string push(int id) {
    held_ += tokenizer_->bytes(id, skip_special_);
    std::string text;
    std::string_view rest = held_;
    while (!rest.empty()) {
      const utf8_step step = next_utf8(rest);
      if (step.what == utf8_step::kind::incomplete) break;
      text += step.what == utf8_step::kind::character ? rest.substr(0, step.bytes)
                                                      : replacement_character;
      rest.remove_prefix(step.bytes);
    }
    held_.erase(0, held_.size() - rest.size());
    return text;
  }

  /// The end: a character that never became whole comes as U+FFFD.
  [[nodiscard]] std::string finish() { return replace_invalid_utf8(std::exchange(held_, {})); }

 private:
  const tokenizer* tokenizer_;
  bool skip_special_;
  std::string held_;  // at most three bytes between calls
};

}  // namespace rankcast::transformer
