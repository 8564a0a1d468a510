/// UTF-8 as bytes, and the alphabet in which byte-level tokenizers write bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include "rankcast/core/error.hpp"

namespace rankcast::transformer {

/// What stands in the place of bytes that are no UTF-8: U+FFFD.
inline constexpr std::string_view replacement_character = "\xef\xbf\xbd";

/// What the first bytes of a text are.
struct utf8_step {
  enum class kind : std::uint8_t { character, invalid, incomplete };
  kind what;
  std::size_t bytes;  // to go on by; `invalid` gives the longest start of a character (at least 1)
};

/// Looks at the first character of a text that is not empty. Surrogates, overlong forms and code
/// points over U+10FFFF are invalid (Unicode standard, table 3-7).
[[nodiscard]] inline utf8_step next_utf8(std::string_view text) noexcept {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {utf8_step::kind::character, 1};
  if (first < 0xc2 || first > 0xf4) return {utf8_step::kind::invalid, 1};
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  unsigned low = 0x80;  // the second byte's range depends on the first
  unsigned high = 0xbf;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {utf8_step::kind::incomplete, i};
    if (byte(i) < low || byte(i) > high) return {utf8_step::kind::invalid, i};
    low = 0x80;
    high = 0xbf;
  }
  return {utf8_step::kind::character, length};
}

/// The text with every invalid or cut-off stretch replaced by one U+FFFD, as browsers, Python's
/// "replace" and Rust's from_utf8_lossy do.
[[nodiscard]] inline std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const utf8_step step = next_utf8(text);
    result += step.what == utf8_step::kind::character ? text.substr(0, step.bytes)
                                                      : replacement_character;
    text.remove_prefix(step.bytes);
  }
  return result;
}

[[nodiscard]] inline bool is_valid_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const utf8_step step = next_utf8(text);
    if (step.what != utf8_step::kind::character) return false;
    text.remove_prefix(step.bytes);
  }
  return true;
}

/// The code point of one valid character.
[[nodiscard]] constexpr char32_t code_point(std::string_view character) noexcept {
  const auto byte = [character](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(character[i]));
  };
  switch (character.size()) {
    case 1: return byte(0);
    case 2: return ((byte(0) & 0x1f) << 6) | (byte(1) & 0x3f);
    case 3: return ((byte(0) & 0x0f) << 12) | ((byte(1) & 0x3f) << 6) | (byte(2) & 0x3f);
    default:
      return ((byte(0) & 0x07) << 18) | ((byte(1) & 0x3f) << 12) | ((byte(2) & 0x3f) << 6) |
             (byte(3) & 0x3f);
  }
}

/// Unicode normalisation form C of valid UTF-8. Cost: one pass; text that is already in the form
/// (all of ASCII) is copied.
[[nodiscard]] inline std::string normalize_nfc(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  std::string result;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  if (U_SUCCESS(status)) {
    // ICU counts in 32 bits.
    if (text.size() > 0x7fffffff) throw usage_error("a text of over 2 GiB cannot be normalised");
    icu::StringByteSink<std::string> sink(&result);
    nfc->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())),
                       sink, nullptr, status);
  }
  if (U_FAILURE(status)) {
    throw usage_error(std::string("ICU cannot normalise: ") + u_errorName(status));
  }
  return result;
}

/// Byte-level tokenizers write each byte as one visible character: printable Latin-1 as itself, the
/// other 68 bytes in order as U+0100, U+0101, ... (GPT-2, encoder.py, bytes_to_unicode).
class byte_alphabet {
 public:
  byte_alphabet() {
    to_byte_.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool is_itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      const char32_t c = is_itself ? static_cast<char32_t>(b) : next++;
      to_byte_[c] = static_cast<int>(b);
      std::string& text = to_text_[b];
      if (c < 0x80) {
        text = static_cast<char>(c);
      } else {
        text += static_cast<char>(0xc0 | (c >> 6));
        text += static_cast<char>(0x80 | (c & 0x3f));
      }
    }
  }

  /// The character (UTF-8) of a byte.
  [[nodiscard]] const std::string& text(unsigned char byte) const noexcept {
    return to_text_[byte];
  }

  /// The bytes that a token's text stands for; false where it holds a character outside of the
  /// alphabet.
  [[nodiscard]] bool to_bytes(std::string_view text, std::string& bytes) const {
    bytes.clear();
    while (!text.empty()) {
      const utf8_step step = next_utf8(text);
      if (step.what != utf8_step::kind::character) return false;
      const char32_t c = code_point(text.substr(0, step.bytes));
      if (c >= to_byte_.size() || to_byte_[c] < 0) return false;
      bytes += static_cast<char>(to_byte_[c]);
      text.remove_prefix(step.bytes);
    }
    return true;
  }

 private:
  std::array<std::string, 256> to_text_;
  std::array<int, 0x144> to_byte_{};
};

}  // namespace rankcast::transformer
