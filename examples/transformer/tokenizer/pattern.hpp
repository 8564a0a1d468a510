/// The regular expressions of tokenizer.json. They are written for Oniguruma (Ruby syntax); PCRE2
/// runs those in which the two agree, after `\s` has been spelled out, and all others are refused:
/// a pattern that splits a little differently would give wrong ids without a word.
#pragma once

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "rankcast/core/error.hpp"
#include "transformer/checkpoint/json.hpp"

namespace rankcast::transformer {

namespace detail {

/// Oniguruma's `\s`: Unicode White_Space. PCRE2's own has U+180E, too.
inline constexpr std::string_view white_space =
    "\\t-\\r "
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

/// Rewrites a pattern for PCRE2. Throws usage_error, with the pattern, for what the two libraries
/// read differently: escapes other than those below, nested classes, options other than `i`.
inline std::string translate_pattern(const std::string& pattern) {
  const auto refuse = [&](const std::string& what) {
    throw usage_error("the tokenizer's pattern " + in_quotes(pattern) + " uses " + what +
                      ", which is not supported; give ids with --prompt-ids");
  };
  std::string out;
  bool in_class = false;
  std::size_t class_start = 0;  // where the members of the class begin
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const std::string_view rest = std::string_view(pattern).substr(i);
    if (c == '\\') {
      if (i + 1 == pattern.size()) refuse("a lone backslash at its end");
      const char e = pattern[++i];
      if (e == 's') {
        out += in_class ? std::string(white_space) : "[" + std::string(white_space) + "]";
      } else if (e == 'S' && !in_class) {
        out += "[^" + std::string(white_space) + "]";
      } else {
        const bool is_letter = (e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z');
        const bool is_digit = e >= '0' && e <= '9';
        if ((is_letter && std::string_view("dDpPrntf").find(e) == std::string_view::npos) ||
            is_digit || static_cast<unsigned char>(e) >= 0x80) {
          refuse(std::string("\\") + e + (in_class ? " in a class" : ""));
        }
        out += c;
        out += e;
      }
      continue;
    }
    if (in_class) {
      if (c == '[') refuse("a class in a class");
      if (rest.substr(0, 2) == "&&") refuse("an intersection of classes");
      if (c == ']' && i == class_start) refuse("']' as the first of a class");
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
      class_start = i + (rest.substr(0, 2) == "[^" ? 2 : 1);
    } else if (rest.substr(0, 2) == "(?") {
      bool is_known = false;
      for (const std::string_view group :
           {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?i)"}) {
        is_known = is_known || rest.substr(0, group.size()) == group;
      }
      if (!is_known) refuse("the group " + in_quotes(rest.substr(0, 4)));
    } else if (rest.substr(0, 2) == "(*") {
      refuse("the group \"(*\"");
    } else if (c == '^' || c == '$') {
      refuse("the anchor " + in_quotes(rest.substr(0, 1)));  // of lines there, of the text here
    }
    out += c;
  }
  return out;
}

}  // namespace detail

/// A compiled pattern. `find` may be called from several threads.
class pattern {
 public:
  /// Throws usage_error for what is not supported (see above) or does not compile.
  explicit pattern(const std::string& source) : source_(source) {
    const std::string text = detail::translate_pattern(source);
    int code = 0;
    std::size_t offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset,
                              nullptr));
    if (code_ == nullptr) {
      throw usage_error("the tokenizer's pattern " + in_quotes(source) +
                        " does not compile: " + message(code) + " (at " + std::to_string(offset) +
                        " of " + in_quotes(text) + ")");
    }
    std::uint32_t may_be_empty = 0;
    static_cast<void>(pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &may_be_empty));
    if (may_be_empty != 0) {
      throw usage_error("the tokenizer's pattern " + in_quotes(source) +
                        " can match nothing at all, which is not supported; give ids with "
                        "--prompt-ids");
    }
    // Where there is no just-in-time compiler the interpreter does the same.
    static_cast<void>(pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE));
  }

  /// Calls `piece(text)` for the matches and for what lies between them, in order: together they
  /// are the whole text (the behaviour "Isolated" of a split). `text` must be valid UTF-8.
  /// Throws usage_error where PCRE2 gives up. Cost: linear for the patterns in use.
  template <class Piece>
  void split(std::string_view text, Piece&& piece) const {
    const std::unique_ptr<pcre2_match_data, free_match> match(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    if (match == nullptr) throw std::bad_alloc();
    std::size_t done = 0;  // pieces have been given up to here
    std::size_t at = 0;
    while (at < text.size()) {
      const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                    text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) {
        throw usage_error("the tokenizer's pattern " + in_quotes(source_) +
                          " cannot be matched against this text: " + message(found));
      }
      const std::size_t* const range = pcre2_get_ovector_pointer(match.get());
      if (range[0] > done) piece(text.substr(done, range[0] - done));
      piece(text.substr(range[0], range[1] - range[0]));
      done = at = range[1];
    }
    if (done < text.size()) piece(text.substr(done));
  }

 private:
  struct free_code {
    void operator()(pcre2_code* p) const noexcept { pcre2_code_free(p); }
  };
  struct free_match {
    void operator()(pcre2_match_data* p) const noexcept { pcre2_match_data_free(p); }
  };

  static std::string message(int code) {
    std::array<PCRE2_UCHAR, 256> text{};
    static_cast<void>(pcre2_get_error_message(code, text.data(), text.size()));
    return reinterpret_cast<const char*>(text.data());
  }

  std::string source_;
  std::unique_ptr<pcre2_code, free_code> code_;
};

}  // namespace rankcast::transformer
