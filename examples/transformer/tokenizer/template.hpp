/// What a tokenizer puts around every prompt: the "post_processor" of tokenizer.json.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "transformer/checkpoint/config_fields.hpp"

namespace rankcast::transformer {

class prompt_template {
 public:
  prompt_template() = default;

  /// Reads "post_processor": null, ByteLevel (which changes no ids), TemplateProcessing for a
  /// single text, or a Sequence of those. Throws usage_error, naming file and key, for others and
  /// for ids outside [0, vocabulary_size).
  prompt_template(const detail::config_fields& file, int vocabulary_size)
      : vocabulary_size_(vocabulary_size) {
    if (const auto processor = file.object("post_processor")) add(*processor);
  }

  [[nodiscard]] const std::vector<int>& before() const noexcept { return before_; }
  [[nodiscard]] const std::vector<int>& after() const noexcept { return after_; }

 private:
  void add(const detail::config_fields& processor) {
    const std::string type = processor.string("type").value_or("");
    if (type == "Sequence") {
      for (const detail::config_fields& p : processor.objects("processors")) add(p);
    } else if (type == "TemplateProcessing") {
      add_template(processor);
    } else if (type != "ByteLevel") {
      processor.fail("type", "is " + in_quotes(type) +
                                 ", which is not supported; known are ByteLevel, "
                                 "TemplateProcessing, Sequence; give ids with --prompt-ids");
    }
  }

  void add_template(const detail::config_fields& processor) {
    const auto specials = processor.object("special_tokens");
    std::vector<int> before;
    std::vector<int> after;
    bool has_text = false;
    for (const detail::config_fields& part : processor.objects("single")) {
      if (part.contains("Sequence")) {
        if (has_text) processor.fail("single", "has the text twice");
        has_text = true;
        continue;
      }
      const auto special = part.object("SpecialToken");
      const auto name = special ? special->string("id") : std::nullopt;
      const auto entry = name && specials ? specials->object(name->c_str()) : std::nullopt;
      const json* ids = entry ? entry->find("ids") : nullptr;
      if (ids == nullptr || !ids->is_array()) {
        processor.fail("single", "has a part that is no Sequence and no known SpecialToken");
      }
      for (const json& id : *ids) {
        const std::int64_t number = entry->to_integer("ids", id, 0);
        if (number >= vocabulary_size_) {
          entry->fail("ids", "holds " + std::to_string(number) + ", which is no token");
        }
        (has_text ? after : before).push_back(static_cast<int>(number));
      }
    }
    if (!has_text) processor.fail("single", "has no place for the text");
    before_.insert(before_.begin(), before.begin(), before.end());  // the later one is outside
    after_.insert(after_.end(), after.begin(), after.end());
  }

  int vocabulary_size_ = 0;
  std::vector<int> before_;
  std::vector<int> after_;
};

}  // namespace rankcast::transformer
