/// The steps before byte-pair encoding: how tokenizer.json cuts a text into pieces.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/checkpoint/config_fields.hpp"
#include "transformer/tokenizer/pattern.hpp"

namespace rankcast::transformer {

/// Cuts text into the pieces that are encoded one by one. Immutable: may be used by several
/// threads.
class pre_tokenizer {
 public:
  pre_tokenizer() = default;

  /// Reads the "pre_tokenizer" object: ByteLevel, Digits, Split (Regex, Isolated), or a Sequence of
  /// those that ends in ByteLevel. Throws usage_error, naming file and key, for others.
  explicit pre_tokenizer(const detail::config_fields& fields) {
    add(fields);
    if (!is_byte_level_) {
      fields.fail("type",
                  "does not end in ByteLevel: only byte-level tokenizers are supported; "
                  "give ids with --prompt-ids");
    }
  }

  /// Calls `piece(text)` for each piece, in order. `text` must be valid UTF-8.
  template <class Piece>
  void split(std::string_view text, Piece&& piece) const {
    run(0, text, piece);
  }

 private:
  struct step {
    pattern cut;
    bool adds_space;  // before what does not start with one, then cuts
  };

  template <class Piece>
  void run(std::size_t index, std::string_view text, Piece& piece) const {
    if (text.empty()) return;
    if (index == steps_.size()) {
      if (adds_space_ && text.front() != ' ') {
        piece(std::string_view(" " + std::string(text)));
      } else {
        piece(text);
      }
      return;
    }
    const step& s = steps_[index];
    const std::string spaced =
        s.adds_space && text.front() != ' ' ? " " + std::string(text) : std::string();
    s.cut.split(spaced.empty() ? text : std::string_view(spaced),
                [&](std::string_view part) { run(index + 1, part, piece); });
  }

  void add(const detail::config_fields& fields) {
    const std::string type = fields.string("type").value_or("");
    if (is_byte_level_) {
      fields.fail("type", "is " + in_quotes(type) + " after ByteLevel, which is not supported");
    }
    if (type == "Sequence") {
      for (const detail::config_fields& part : fields.objects("pretokenizers")) add(part);
    } else if (type == "ByteLevel") {
      add_byte_level(fields);
    } else if (type == "Digits") {
      const bool individual = fields.boolean("individual_digits", false);
      steps_.push_back({pattern(individual ? "\\p{N}" : "\\p{N}+"), false});
    } else if (type == "Split") {
      add_split(fields);
    } else {
      fields.fail("type", "is " + in_quotes(type) +
                              ", which is not supported; known are ByteLevel, Digits, Split, "
                              "Sequence; give ids with --prompt-ids");
    }
  }

  void add_byte_level(const detail::config_fields& fields) {
    // GPT-2, encoder.py
    static const std::string gpt2 =
        R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    static_cast<void>(fields.require("add_prefix_space"));
    const bool adds_space = fields.boolean("add_prefix_space", false);
    if (fields.boolean("use_regex", true)) {
      steps_.push_back({pattern(gpt2), adds_space});
    } else {
      adds_space_ = adds_space;
    }
    is_byte_level_ = true;
  }

  void add_split(const detail::config_fields& fields) {
    if (fields.string("behavior").value_or("") != "Isolated" || fields.boolean("invert", false)) {
      fields.fail("behavior",
                  "or \"invert\" of a Split is not supported; known is Isolated, not "
                  "inverted; give ids with --prompt-ids");
    }
    const auto expression = fields.object("pattern");
    if (!expression) fields.fail("pattern", "is missing");
    const auto regex = expression->string("Regex");
    if (!regex) expression->fail("Regex", "is missing: other patterns are not supported");
    steps_.push_back({pattern(*regex), false});
  }

  std::vector<step> steps_;
  bool adds_space_ = false;  // after the steps
  bool is_byte_level_ = false;
};

}  // namespace rankcast::transformer
