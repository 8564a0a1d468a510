/// Added tokens: strings that are found in a text before anything else is done to it, each one id.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rankcast::transformer {

struct added_token {
  int id = 0;
  std::string content;
  bool is_special = false;     // left out of decoded text on request
  bool is_normalized = false;  // looked for after normalisation, not before
};

/// Finds tokens in a text: the leftmost, and of several there the longest.
class token_finder {
 public:
  void add(std::string content, int id) {
    if (content.empty()) return;
    auto& bucket = by_first_byte_[static_cast<unsigned char>(content.front())];
    bucket.push_back({std::move(content), id});
    std::stable_sort(bucket.begin(), bucket.end(), [](const entry& a, const entry& b) {
      return a.content.size() > b.content.size();
    });
    is_empty_ = false;
  }

  [[nodiscard]] bool empty() const noexcept { return is_empty_; }

  /// Calls `text(part)` for what lies between tokens and `token(id)` for each token, in order.
  /// Cost: the text's length times the tokens that start with the byte at hand.
  template <class Text, class Token>
  void split(std::string_view input, Text&& text, Token&& token) const {
    std::size_t done = 0;
    std::size_t at = is_empty_ ? input.size() : 0;
    while (at < input.size()) {
      const entry* const found = find(input.substr(at));
      if (found == nullptr) {
        ++at;
        continue;
      }
      if (at > done) text(input.substr(done, at - done));
      token(found->id);
      at += found->content.size();
      done = at;
    }
    if (done < input.size()) text(input.substr(done));
  }

 private:
  struct entry {
    std::string content;
    int id;
  };

  [[nodiscard]] const entry* find(std::string_view text) const {
    for (const entry& e : by_first_byte_[static_cast<unsigned char>(text.front())]) {
      if (text.substr(0, e.content.size()) == e.content) return &e;
    }
    return nullptr;
  }

  std::array<std::vector<entry>, 256> by_first_byte_;  // longest first
  bool is_empty_ = true;
};

}  // namespace rankcast::transformer
