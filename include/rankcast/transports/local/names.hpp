/// Texts that other ranks may have to print: where a call stands, what a reduction is called. Each
/// rank writes its own once into its table on the board, and then shows their places.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "rankcast/transports/local/board.hpp"

namespace rankcast::inline v0::local {

/// The writing side, one per rank and group. Cost: a look into a small table by the text's address.
class names {
 public:
  explicit names(name_table& table) noexcept : table_(table) {}

  /// The place of a text that lives as long as the program. 0 when the table is full.
  [[nodiscard]] name_place place_of(const char* text, std::size_t length) noexcept {
    if (length == 0) return 0;
    known& k = known_[(reinterpret_cast<std::uintptr_t>(text) / 8) % known_.size()];
    if (k.text != text || k.length != length) {
      k = {text, length, find_or_add({text, length})};
    }
    return k.place;
  }
  [[nodiscard]] name_place place_of(std::string_view text) noexcept {
    return place_of(text.data(), text.size());
  }
  /// Of a text that ends in a zero byte.
  [[nodiscard]] name_place place_of_file(const char* text) noexcept {
    if (text == last_file_) return last_file_place_;
    last_file_ = text;
    last_file_place_ = place_of(std::string_view(text));
    return last_file_place_;
  }

 private:
  struct known {
    const char* text = nullptr;
    std::size_t length = 0;
    name_place place = 0;
  };

  [[nodiscard]] name_place find_or_add(std::string_view text) noexcept {
    std::uint32_t at = 1;
    while (at < table_.used) {
      const std::string_view there(table_.text + at);
      if (there == text) return at;
      at += static_cast<std::uint32_t>(there.size()) + 1;
    }
    if (at + text.size() + 1 > sizeof(table_.text)) return 0;
    std::memcpy(table_.text + at, text.data(), text.size());
    table_.text[at + text.size()] = '\0';
    table_.used = at + static_cast<std::uint32_t>(text.size()) + 1;
    return at;
  }

  name_table& table_;
  std::array<known, 32> known_{};
  const char* last_file_ = nullptr;
  name_place last_file_place_ = 0;
};

/// What a peer's place stands for; empty for none. Peers are not trusted to end it.
[[nodiscard]] inline const char* text_at(const name_table& table, name_place at) noexcept {
  if (at == 0 || at >= sizeof(table.text)) return "";
  const bool ends = std::memchr(table.text + at, 0, sizeof(table.text) - at) != nullptr;
  return ends ? table.text + at : "";
}

}  // namespace rankcast::inline v0::local
