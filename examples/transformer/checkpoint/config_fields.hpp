/// Typed reading of one JSON object of a model folder: every error names the file and the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/error.hpp"
#include "transformer/checkpoint/json.hpp"

namespace rankcast::transformer::detail {

/// A view of a JSON object; the object must outlive it. A key whose value is null counts as absent,
/// as it does for the Python library that writes these files.
class config_fields {
 public:
  /// `path` names the object inside the file: "" or "rope_scaling.".
  config_fields(const json& object, std::string file, std::string path = "")
      : object_(object), file_(std::move(file)), path_(std::move(path)) {}

  [[nodiscard]] const std::string& file() const noexcept { return file_; }

  /// True where the key is there, null or not.
  [[nodiscard]] bool contains(const char* key) const { return object_.contains(key); }

  /// The value, or nullptr where the key is absent or null.
  [[nodiscard]] const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  [[nodiscard]] const json& require(const char* key, const std::string& advice = "") const {
    const json* value = find(key);
    if (value == nullptr) fail(key, "is missing" + advice);
    return *value;
  }

  /// A count: an integer in [least, 2^31).
  [[nodiscard]] std::optional<std::int64_t> integer(const char* key, std::int64_t least = 1) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    return to_integer(key, *value, least);
  }
  [[nodiscard]] std::int64_t required_integer(const char* key) const {
    return to_integer(key, require(key), 1);
  }

  [[nodiscard]] std::int64_t to_integer(const char* key, const json& value,
                                        std::int64_t least) const {
    constexpr std::int64_t end = std::int64_t{1} << 31;
    const bool fits = value.is_number_unsigned()
                          ? value.get<std::uint64_t>() < static_cast<std::uint64_t>(end)
                          : value.is_number_integer();
    if (!fits || value.get<std::int64_t>() < least) {
      fail(key,
           "is " + short_text(value) + ", not an integer in [" + std::to_string(least) + ", 2^31)");
    }
    return value.get<std::int64_t>();
  }

  /// A finite number above zero.
  [[nodiscard]] std::optional<double> positive(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    // JSON has no infinity, and the parser refuses numbers past the range of a double.
    if (!value->is_number() || !(value->get<double>() > 0)) {
      fail(key, "is " + short_text(*value) + ", not a number above zero");
    }
    return value->get<double>();
  }
  [[nodiscard]] double required_positive(const char* key, const std::string& advice = "") const {
    static_cast<void>(require(key, advice));
    return *positive(key);
  }

  [[nodiscard]] bool boolean(const char* key, bool otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) fail(key, "is " + short_text(*value) + ", neither true nor false");
    return value->get<bool>();
  }

  [[nodiscard]] std::optional<std::string> string(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) fail(key, "is " + short_text(*value) + ", not a string");
    return value->get<std::string>();
  }

  /// The object under a key. Throws where it is something else.
  [[nodiscard]] std::optional<config_fields> object(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object()) fail(key, "is " + short_text(*value) + ", not an object");
    return config_fields(*value, file_, path_ + key + ".");
  }

  /// The objects of an array under a key; none where it is absent.
  [[nodiscard]] std::vector<config_fields> objects(const char* key) const {
    std::vector<config_fields> result;
    const json* value = find(key);
    if (value == nullptr) return result;
    if (!value->is_array()) fail(key, "is " + short_text(*value) + ", not an array");
    for (const json& element : *value) {
      const std::string place = "[" + std::to_string(result.size()) + "]";
      if (!element.is_object()) fail(key, "holds, at " + place + ", no object");
      result.emplace_back(element, file_, path_ + key + place + ".");
    }
    return result;
  }

  /// Throws usage_error "<file>: key "<path><key>" <what>".
  [[noreturn]] void fail(const char* key, const std::string& what) const {
    throw usage_error(file_ + ": key \"" + path_ + key + "\" " + what);
  }

  [[nodiscard]] static std::string short_text(const json& value) {
    return value.is_structured() ? (value.is_array() ? "an array" : "an object")
                                 : value.dump().substr(0, 60);
  }

 private:
  const json& object_;
  std::string file_;
  std::string path_;
};

}  // namespace rankcast::transformer::detail
