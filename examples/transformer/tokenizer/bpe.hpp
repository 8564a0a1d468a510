/// Byte-pair encoding: a piece of text starts as one token per byte, and the adjacent pair with the
/// lowest merge rank is joined until no pair has one.
/// Sennrich, Haddow, Birch (2016); byte level after GPT-2.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rankcast/core/error.hpp"
#include "transformer/checkpoint/config_fields.hpp"
#include "transformer/checkpoint/json.hpp"
#include "transformer/tokenizer/unicode.hpp"

namespace rankcast::transformer {

namespace detail {

/// Lets a string_view look up a string without a copy.
struct text_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>{}(text);
  }
};

}  // namespace detail

/// Vocabulary and merges. Immutable: `encode` may be called from several threads.
class byte_pair_encoding {
 public:
  using vocabulary = std::unordered_map<std::string, int, detail::text_hash, std::equal_to<>>;

  byte_pair_encoding() = default;

  /// Reads the "model" object of tokenizer.json. Throws usage_error, naming file and key, for other
  /// models and for options that change the result and are not built; decode_error for a broken
  /// vocabulary.
  byte_pair_encoding(const detail::config_fields& model, const byte_alphabet& alphabet) {
    refuse_other_models(model);
    ignores_merges_ = model.boolean("ignore_merges", false);
    read_vocabulary(model);
    read_merges(model);
    const bool has_unknown = model.find("unk_token") != nullptr;
    for (unsigned b = 0; b < 256; ++b) {
      const auto found = ids_.find(alphabet.text(static_cast<unsigned char>(b)));
      byte_ids_[b] = found == ids_.end() ? -1 : found->second;
      if (has_unknown && byte_ids_[b] < 0) {
        model.fail("unk_token", "is set, and the vocabulary lacks byte " + std::to_string(b) +
                                    ": unknown bytes are not supported");
      }
    }
    for (const auto& [text, id] : ids_) {
      std::string bytes;
      if (ignores_merges_ && alphabet.to_bytes(text, bytes)) whole_.emplace(std::move(bytes), id);
    }
  }

  /// The vocabulary as the file writes it, in the byte alphabet.
  [[nodiscard]] const vocabulary& ids() const noexcept { return ids_; }

  /// The ids of one piece of text (bytes), appended to `out`. A byte that the vocabulary lacks is
  /// left out, as the library that writes these files does.
  /// Cost: O(n log n) for n bytes.
  void encode(std::string_view piece, std::vector<int>& out) const {
    if (ignores_merges_) {
      if (const auto found = whole_.find(piece); found != whole_.end()) {
        out.push_back(found->second);
        return;
      }
    }
    std::vector<symbol> symbols;
    symbols.reserve(piece.size());
    for (const char c : piece) {
      const int id = byte_ids_[static_cast<unsigned char>(c)];
      if (id < 0) continue;
      const auto at = static_cast<std::int64_t>(symbols.size());
      symbols.push_back({id, at - 1, at + 1});
    }
    merge(symbols);
    for (const symbol& s : symbols) {
      if (s.id >= 0) out.push_back(s.id);
    }
  }

 private:
  struct symbol {
    int id;  // -1: joined to its left neighbour
    std::int64_t left;
    std::int64_t right;  // the number of symbols: none
  };
  struct joined {
    int rank;
    int id;
  };
  struct candidate {
    int rank;
    int id;           // of the result
    std::int64_t at;  // its left symbol
    /// Lowest rank first, then leftmost.
    friend bool operator<(const candidate& a, const candidate& b) noexcept {
      return std::pair(a.rank, a.at) > std::pair(b.rank, b.at);
    }
  };

  static std::uint64_t pair_key(int left, int right) noexcept {
    return (static_cast<std::uint64_t>(left) << 32) | static_cast<std::uint64_t>(right);
  }

  void merge(std::vector<symbol>& symbols) const {
    const auto end = static_cast<std::int64_t>(symbols.size());
    const auto at = [&](std::int64_t i) -> symbol& { return symbols[static_cast<std::size_t>(i)]; };
    std::priority_queue<candidate> queue;
    const auto consider = [&](std::int64_t left) {
      if (left < 0 || at(left).right >= end) return;
      const auto found = merges_.find(pair_key(at(left).id, at(at(left).right).id));
      if (found != merges_.end()) queue.push({found->second.rank, found->second.id, left});
    };
    for (std::int64_t i = 0; i + 1 < end; ++i) consider(i);
    while (!queue.empty()) {
      const candidate top = queue.top();
      queue.pop();
      symbol& left = at(top.at);
      if (left.id < 0 || left.right >= end) continue;
      symbol& right = at(left.right);
      // The pair may have changed since it was queued.
      const auto found = merges_.find(pair_key(left.id, right.id));
      if (found == merges_.end() || found->second.id != top.id) continue;
      left.id = top.id;
      right.id = -1;
      left.right = right.right;
      if (left.right < end) at(left.right).left = top.at;
      consider(left.left);
      consider(top.at);
    }
  }

  static void refuse_other_models(const detail::config_fields& model) {
    constexpr const char* advice = " is not supported; give ids with --prompt-ids";
    // Old files do not name the type; a BPE has merges.
    const auto type = model.string("type").value_or(model.contains("merges") ? "BPE" : "none");
    if (type != "BPE")
      model.fail("type", "is " + in_quotes(type) + ": only BPE is known, this" + advice);
    if (model.boolean("byte_fallback", false)) {
      model.fail("byte_fallback",
                 std::string("is true (a SentencePiece vocabulary), which") + advice);
    }
    if (const json* dropout = model.find("dropout"); dropout != nullptr && *dropout != 0.0) {
      model.fail("dropout", std::string("is set, which") + advice);
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!model.string(key).value_or("").empty()) {
        model.fail(key, std::string("is not empty, which") + advice);
      }
    }
  }

  void read_vocabulary(const detail::config_fields& model) {
    const json& vocab = model.require("vocab");
    if (!vocab.is_object()) model.fail("vocab", "is no object");
    constexpr std::int64_t most = 1 << 26;  // far above any vocabulary; bounds what is allocated
    for (const auto& [text, id] : vocab.items()) {
      const std::int64_t number = model.to_integer("vocab", id, 0);
      if (number >= most) model.fail("vocab", "holds the id " + std::to_string(number));
      ids_.emplace(text, static_cast<int>(number));
    }
  }

  void read_merges(const detail::config_fields& model) {
    const json& merges = model.require("merges");
    if (!merges.is_array()) model.fail("merges", "is no array");
    int rank = 0;
    for (const json& entry : merges) {
      const auto pair = split_merge(entry, rank, model);
      const auto id_of = [&](const std::string& text) {
        const auto found = ids_.find(text);
        if (found == ids_.end()) {
          model.fail("merges", "holds, as number " + std::to_string(rank) + ", " +
                                   in_quotes(pair.first) + " with " + in_quotes(pair.second) +
                                   ", and the vocabulary lacks " + in_quotes(text));
        }
        return found->second;
      };
      // A pair that stands twice has the rank of the last, as in the library.
      merges_[pair_key(id_of(pair.first), id_of(pair.second))] = {rank,
                                                                  id_of(pair.first + pair.second)};
      ++rank;
    }
  }

  /// "a b" in old files, ["a", "b"] in new ones.
  static std::pair<std::string, std::string> split_merge(const json& entry, int rank,
                                                         const detail::config_fields& model) {
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      return {entry[0].get<std::string>(), entry[1].get<std::string>()};
    }
    if (entry.is_string()) {
      const auto& text = entry.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
        return {text.substr(0, space), text.substr(space + 1)};
      }
    }
    model.fail("merges", "holds, as number " + std::to_string(rank) +
                             ", what is neither \"a b\" nor [\"a\", \"b\"]");
  }

  vocabulary ids_;
  vocabulary whole_;  // with ignore_merges: bytes -> id
  std::unordered_map<std::uint64_t, joined> merges_;
  std::array<int, 256> byte_ids_{};
  bool ignores_merges_ = false;
};

}  // namespace rankcast::transformer
