/// JSON read strictly: a key that stands twice in one object is an error (most parsers keep the
/// last and say nothing), nesting is bounded, and every error names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "rankcast/core/error.hpp"

namespace rankcast::transformer {

using nlohmann::json;

/// A name from a file in quotes, for a message: control characters are shown as '?', and a long
/// name is cut, so that a hostile file cannot fill the terminal.
[[nodiscard]] inline std::string in_quotes(std::string_view name) {
  constexpr std::size_t longest = 160;
  std::string text = "\"";
  for (const char c : name.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return text + (name.size() > longest ? "\"..." : "\"");
}

namespace detail {

/// Builds the document while it is read. nlohmann's own callback parser looks through the whole
/// parent at the end of every child, which is quadratic in the number of tensors.
class strict_json_builder final : public nlohmann::json_sax<json> {
 public:
  strict_json_builder(std::string file, std::size_t longest_array)
      : file_(std::move(file)), longest_array_(longest_array) {}

  [[nodiscard]] json take() { return std::move(document_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(json::binary_t&) override { return false; }  // JSON text has none

  bool start_object(std::size_t) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    auto& object = open_.back()->get_ref<json::object_t&>();
    const auto [entry, is_new] = object.emplace(name, nullptr);
    slot_ = &entry->second;
    is_duplicate_ = !is_new;
    key_ = is_new ? std::string() : name;
    if (is_duplicate_ && !slot_->is_string()) refuse_duplicate("");
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& problem) override {
    const std::string text = problem.what();
    throw decode_error(file_ + ": not JSON at byte " + std::to_string(position) + ": " +
                       text.substr(0, 300));
  }

 private:
  [[noreturn]] void refuse_duplicate(const std::string& values) const {
    throw decode_error(file_ + ": duplicate name " + in_quotes(key_) + values +
                       ": it stands twice in one JSON object, and no choice between the two is "
                       "safe");
  }

  json* place(json&& value) {
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    if (open_.back()->is_array()) {
      if (open_.back()->size() >= longest_array_) {
        throw decode_error(file_ + ": an array of more than " + std::to_string(longest_array_) +
                           " elements");
      }
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    if (is_duplicate_) {
      refuse_duplicate(value.is_string()
                           ? " (" + in_quotes(slot_->get_ref<const std::string&>()) + ", then " +
                                 in_quotes(value.get_ref<const std::string&>()) + ")"
                           : "");
    }
    *slot_ = std::move(value);
    return slot_;
  }

  bool add(json&& value) {
    place(std::move(value));
    return true;
  }

  bool open(json&& value) {
    constexpr std::size_t deepest = 64;
    if (open_.size() >= deepest) {
      throw decode_error(file_ + ": JSON nested deeper than " + std::to_string(deepest));
    }
    open_.push_back(place(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string file_;
  std::size_t longest_array_;
  json document_;
  std::vector<json*> open_;  // valid: only the last one's children grow
  json* slot_ = nullptr;     // where the value after the last key goes
  std::string key_;
  bool is_duplicate_ = false;
};

}  // namespace detail

/// Parses JSON text; `file` is for messages. Throws decode_error where it is no JSON, where a key
/// stands twice in one object, where it is nested deeper than 64, and where an array has more than
/// `longest_array` elements.
/// Cost: linear; memory of the document.
[[nodiscard]] inline json parse_json(
    std::string_view text, const std::string& file,
    std::size_t longest_array = std::numeric_limits<std::size_t>::max()) {
  detail::strict_json_builder builder(file, longest_array);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace rankcast::transformer
