/// The tokenizer against what the Hugging Face `tokenizers` library made of the same texts
/// (tests/reference/make_tokenizer_fixture.py), a real model's file where it is there, and what is
/// refused.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "rankcast/core/error.hpp"
#include "support/checkpoint_writer.hpp"
#include "transformer/tokenizer/tokenizer.hpp"

namespace rankcast::transformer {
namespace {

using rankcast::test::scratch_folder;
using token_ids = std::vector<int>;

json read_reference(const std::string& file) {
  std::ifstream in(std::filesystem::path(RANKCAST_REFERENCE_FOLDER) / file);
  EXPECT_TRUE(in.good()) << file;
  return json::parse(in);
}

const json& fixture() {
  static const json document = read_reference("tokenizer_fixture.json");
  return document;
}

/// The whole tokenizer.json of a form of the fixture.
json document_of(const json& form) {
  json document = form.at("tokenizer");
  document["model"] = fixture().at("model");
  if (form.contains("model_changes")) document["model"].update(form.at("model_changes"));
  if (form.value("merges_as_text", false)) {
    for (json& merge : document["model"]["merges"]) {
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    }
  }
  return document;
}

json document_named(const std::string& name) {
  for (const json& form : fixture().at("forms")) {
    if (form.at("name") == name) return document_of(form);
  }
  throw std::runtime_error("the fixture has no form " + name);
}

tokenizer load(const json& document) {
  const scratch_folder folder;
  folder.write("tokenizer.json", document.dump());
  return tokenizer::from_folder(folder.path());
}

/// The texts of a stream decoder put together.
std::string streamed(const tokenizer& tokens, const token_ids& ids, bool skip_special) {
  stream_decoder decoder(tokens, skip_special);
  std::string text;
  for (const int id : ids) {
    const std::string part = decoder.push(id);
    EXPECT_TRUE(is_valid_utf8(part));
    text += part;
  }
  return text + decoder.finish();
}

void check_case(const tokenizer& tokens, const json& c) {
  const auto text = c.at("text").get<std::string>();
  SCOPED_TRACE("text: " + text);
  const auto ids = c.at("ids").get<token_ids>();
  EXPECT_EQ(tokens.encode(text), ids);
  EXPECT_EQ(tokens.encode(text, false),
            c.contains("ids_without_template") ? c["ids_without_template"].get<token_ids>() : ids);
  const auto decoded = c.at("decoded").get<std::string>();
  EXPECT_EQ(tokens.decode(ids), decoded);
  EXPECT_EQ(streamed(tokens, ids, true), decoded);
  if (c.contains("decoded_all")) {
    const auto all = c.at("decoded_all").get<std::string>();
    EXPECT_EQ(tokens.decode(ids, false), all);
    EXPECT_EQ(streamed(tokens, ids, false), all);
  }
}

TEST(tokenizer, agrees_with_the_library) {
  for (const json& form : fixture().at("forms")) {
    SCOPED_TRACE("form: " + form.at("name").get<std::string>());
    const tokenizer tokens = load(document_of(form));
    for (const json& c : form.at("cases")) check_case(tokens, c);
    for (const json& c : form.at("cases")) check_case(tokens, c);  // now from the cache
  }
}

TEST(tokenizer, real_model) {
  const char* cache = std::getenv("RANKCAST_CACHE");
  const char* home = std::getenv("HOME");
  const std::filesystem::path base =
      cache != nullptr && *cache != '\0'
          ? std::filesystem::path(cache)
          : std::filesystem::path(home != nullptr ? home : ".") / ".cache/rankcast";
  const std::filesystem::path folder = base / "models" / "smollm2-135m";
  if (!std::filesystem::exists(folder / "tokenizer.json")) {
    GTEST_SKIP() << "no " << folder << "; tools/get-model smollm2-135m fetches it";
  }
  const tokenizer tokens = tokenizer::from_folder(folder);
  EXPECT_EQ(tokens.vocabulary_size(), 49152);
  EXPECT_EQ(tokens.find("<|im_end|>"), 2);
  const json reference = read_reference("smollm2_135m.json");
  for (const json& c : reference.at("tokenizer")) {
    const auto text = c.at("text").get<std::string>();
    SCOPED_TRACE("text: " + text);
    const auto ids = c.at("ids").get<token_ids>();
    EXPECT_EQ(tokens.encode(text), ids);
    EXPECT_EQ(tokens.decode(ids, false), c.at("decoded").get<std::string>());
    EXPECT_EQ(streamed(tokens, ids, false), c.at("decoded").get<std::string>());
  }
  for (const json& c : reference.at("prompts")) {
    EXPECT_EQ(tokens.encode(c.at("text").get<std::string>()), c.at("ids").get<token_ids>());
    if (!c.contains("greedy_text")) continue;
    EXPECT_EQ(tokens.decode(c.at("greedy").get<token_ids>()), c["greedy_text"].get<std::string>());
  }
}

TEST(tokenizer, every_text_comes_back) {
  const tokenizer tokens = load(document_named("llama3"));
  std::mt19937 generator(7);
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    const std::size_t length = generator() % 40;
    while (bytes.size() < length) bytes += static_cast<char>(generator() & 0xff);
    // Bytes that are no UTF-8 count as U+FFFD.
    const token_ids ids = tokens.encode(bytes);
    EXPECT_EQ(tokens.decode(ids), replace_invalid_utf8(bytes));
    EXPECT_EQ(streamed(tokens, ids, true), tokens.decode(ids));
  }
}

TEST(tokenizer, stream_holds_back_what_is_not_whole) {
  json document = document_named("gpt2");
  document["model"]["merges"] = json::array();  // so that each byte is a token
  const tokenizer tokens = load(document);
  const token_ids smile = tokens.encode("\xf0\x9f\x99\x82");
  ASSERT_EQ(smile.size(), 4u);
  stream_decoder decoder(tokens);
  EXPECT_EQ(decoder.push(smile[0]), "");
  EXPECT_EQ(decoder.push(smile[1]), "");
  EXPECT_EQ(decoder.push(smile[2]), "");
  EXPECT_EQ(decoder.push(smile[3]), "\xf0\x9f\x99\x82");
  EXPECT_EQ(decoder.finish(), "");
  // Cut off in the middle by a letter: one U+FFFD, at once.
  const int letter = tokens.encode("a").front();
  EXPECT_EQ(decoder.push(smile[0]), "");
  EXPECT_EQ(decoder.push(smile[1]), "");
  EXPECT_EQ(decoder.push(letter),
            "\xef\xbf\xbd"
            "a");
  // Cut off by the end.
  EXPECT_EQ(decoder.push(smile[0]), "");
  EXPECT_EQ(decoder.push(smile[1]), "");
  EXPECT_EQ(decoder.finish(), "\xef\xbf\xbd");
  EXPECT_EQ(decoder.finish(), "");
  // A byte that starts nothing.
  EXPECT_EQ(decoder.push(smile[3]), "\xef\xbf\xbd");
}

TEST(tokenizer, ids_that_no_token_has) {
  const tokenizer tokens = load(document_named("gpt2"));
  EXPECT_EQ(tokens.vocabulary_size(), 400);
  EXPECT_EQ(tokens.decode(token_ids{400, 1 << 30}), "");
  EXPECT_THROW(static_cast<void>(tokens.decode(token_ids{-1})), usage_error);
  EXPECT_TRUE(tokens.is_special(0));
  EXPECT_FALSE(tokens.is_special(50));
  EXPECT_FALSE(tokens.is_special(-1));
  EXPECT_FALSE(tokens.is_special(1 << 30));
  EXPECT_EQ(tokens.decode(token_ids{0}), "");
  EXPECT_EQ(tokens.decode(token_ids{0}, false), "<|endoftext|>");
  EXPECT_EQ(tokens.find("<|begin|>"), 1);
  EXPECT_EQ(tokens.find("no such token"), std::nullopt);
}

TEST(tokenizer, long_inputs_take_no_quadratic_time) {
  const tokenizer tokens = load(document_named("llama3"));
  const auto seconds = [&](const std::string& text) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(tokens.decode(tokens.encode(text)), text);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  constexpr std::size_t length = 400'000;
  std::string prose;
  while (prose.size() < length) prose += "the other weather 1234, and 5!\n";
  // One piece each: the merges and the regex see all of it at once.
  for (const std::string& text :
       {prose, std::string(length, 'a'), std::string(length, ' '), std::string(length, '\n'),
        std::string(length, '!'), std::string(length, ' ') + "a",
        "the" + std::string(length, 'h')}) {
    EXPECT_LT(seconds(text), 20.0) << text.substr(0, 10);  // a quadratic one takes minutes
  }
}

TEST(tokenizer, several_threads_share_one) {
  const tokenizer tokens = load(document_named("digits"));
  const std::string text = "the other weather, 2024: <tool> and <|end|>";
  const token_ids wanted = tokens.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string own = std::to_string(i) + text;
        const token_ids ids = tokens.encode(own);
        wrong[t] += tokens.encode(text) != wanted || tokens.decode(ids, false) != own ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

/// The form "qwen2" (or another) with a change is refused, and the message holds the words.
void refused(const std::function<void(json&)>& change, const std::vector<std::string>& words,
             const char* form = "qwen2") {
  json document = document_named(form);
  change(document);
  try {
    static_cast<void>(load(document));
    ADD_FAILURE() << "was read; wanted an error with " << words.front();
  } catch (const usage_error& e) {
    const std::string text = e.what();
    for (const std::string& word : words) {
      EXPECT_NE(text.find(word), std::string::npos) << "no " << word << " in: " << text;
    }
  } catch (const std::exception& e) {
    ADD_FAILURE() << "an error of another type: " << e.what();
  }
}

TEST(tokenizer, other_models_are_refused_by_name) {
  for (const char* type : {"Unigram", "WordPiece", "WordLevel"}) {
    refused(
        [&](json& d) {
          d["model"] = {{"type", type}, {"vocab", json::array()}};
        },
        {"tokenizer.json", "model.type", type, "--prompt-ids"});
  }
  refused([](json& d) { d["model"]["byte_fallback"] = true; },
          {"model.byte_fallback", "SentencePiece", "--prompt-ids"});
  refused([](json& d) { d["model"]["dropout"] = 0.1; }, {"model.dropout"});
  refused([](json& d) { d["model"]["end_of_word_suffix"] = "</w>"; }, {"end_of_word_suffix"});
  refused([](json& d) { d["model"]["continuing_subword_prefix"] = "##"; },
          {"continuing_subword_prefix"});
  refused([](json& d) { d["model"] = nullptr; }, {"\"model\""});
}

TEST(tokenizer, other_steps_are_refused_by_name) {
  refused(
      [](json& d) {
        d["pre_tokenizer"] = {{"type", "Metaspace"}};
      },
      {"pre_tokenizer.type", "Metaspace", "--prompt-ids"});
  refused([](json& d) { d["pre_tokenizer"] = nullptr; }, {"pre_tokenizer", "--prompt-ids"});
  refused([](json& d) { d["pre_tokenizer"]["pretokenizers"].erase(1); },
          {"pre_tokenizer.type", "ByteLevel"});
  refused(
      [](json& d) {
        d["pre_tokenizer"]["pretokenizers"].push_back({{"type", "Digits"}});
      },
      {"pre_tokenizer.pretokenizers[2].type", "Digits", "after ByteLevel"});
  refused([](json& d) { d["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; },
          {"pre_tokenizer.pretokenizers[0].behavior"});
  refused([](json& d) { d["pre_tokenizer"]["pretokenizers"][0]["invert"] = true; }, {"invert"});
  refused(
      [](json& d) {
        d["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", " "}};
      },
      {"pattern.Regex"});
  for (const char* type : {"NFKC", "NFD", "Lowercase", "Prepend", "Replace"}) {
    refused([&](json& d) { d["normalizer"] = {{"type", type}}; }, {"normalizer.type", type});
  }
  refused(
      [](json& d) {
        d["post_processor"] = {{"type", "BertProcessing"}};
      },
      {"post_processor.type", "BertProcessing"});
  refused([](json& d) { d["decoder"] = {{"type", "Metaspace"}}; }, {"decoder.type", "Metaspace"});
  refused([](json& d) { d["decoder"] = nullptr; }, {"decoder"});
}

TEST(tokenizer, patterns_that_two_libraries_read_differently_are_refused) {
  for (const char* regex :
       {"\\w+", "\\bx", "\\h+", "\\v", "[\\S]", "[[:alpha:]]", "[a&&b]", "(?m:.)", "(?x) a",
        "(*UTF)a", "^a", "a$", "\\1", "\\", "(", "a{2", "[]a]", "\\p{NoSuchScript}"}) {
    json document = document_named("qwen2");
    document["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = regex;
    if (std::string_view(regex) == "a{2") {  // a literal brace, to both
      EXPECT_NO_THROW(static_cast<void>(load(document)));
      continue;
    }
    try {
      static_cast<void>(load(document));
      ADD_FAILURE() << "was read: " << regex;
    } catch (const usage_error& e) {
      EXPECT_NE(std::string(e.what()).find("pattern"), std::string::npos) << e.what();
    }
  }
  for (const char* regex : {"a*", "\\p{L}*", "(?=a)", "a|"}) {
    refused([&](json& d) { d["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = regex; },
            {"nothing at all"});
  }
}

TEST(tokenizer, broken_vocabularies) {
  refused([](json& d) { d["model"]["vocab"]["x y"] = 5; }, {"model.vocab", "two tokens", "5"});
  refused([](json& d) { d["model"]["vocab"]["x y"] = -1; }, {"model.vocab", "-1"});
  refused([](json& d) { d["model"]["vocab"]["x y"] = 2000000000; }, {"model.vocab", "2000000000"});
  refused([](json& d) { d["model"]["vocab"]["x y"] = "5"; }, {"model.vocab"});
  refused([](json& d) { d["model"].erase("merges"); }, {"model.merges", "missing"});
  refused(
      [](json& d) {
        d["model"]["merges"].push_back({"qq", "zz"});
      },
      {"model.merges", "qq", "zz"});
  refused([](json& d) { d["model"]["merges"].push_back("a b c"); }, {"model.merges", "neither"});
  refused([](json& d) { d["model"]["merges"].push_back({"a"}); }, {"model.merges", "neither"});
  for (const char* key : {"lstrip", "rstrip", "single_word"}) {
    refused([&](json& d) { d["added_tokens"][3][key] = true; }, {key, "<tool>"});
  }
  refused([](json& d) { d["added_tokens"][3]["id"] = 7; }, {"added_tokens[3].id", "<tool>"});
  refused([](json& d) { d["added_tokens"][0]["id"] = 7; }, {"added_tokens[0].id"});
  refused([](json& d) { d["added_tokens"][3]["id"] = 2000000000; }, {"added_tokens[3].id"});
  refused([](json& d) { d["added_tokens"][3].erase("content"); }, {"content"});
  refused([](json& d) { d["post_processor"]["special_tokens"]["<|end|>"]["ids"] = {100000}; },
          {"post_processor.special_tokens.<|end|>.ids", "100000"}, "template_both");
  refused([](json& d) { d["post_processor"]["special_tokens"].erase("<|end|>"); },
          {"post_processor.single"}, "template_both");
  refused([](json& d) { d["post_processor"]["single"].erase(1); },
          {"post_processor.single", "no place"}, "template_both");
}

TEST(tokenizer, broken_files) {
  const scratch_folder folder;
  EXPECT_THROW(static_cast<void>(tokenizer::from_folder(folder.path())), transport_error);
  for (const char* text : {"", "[]", "{", R"({"model":{},"model":{}})"}) {
    folder.write("tokenizer.json", text);
    EXPECT_THROW(static_cast<void>(tokenizer::from_folder(folder.path())), decode_error) << text;
  }
}

TEST(unicode, steps) {
  using kind = utf8_step::kind;
  const auto check = [](std::string_view text, kind what, std::size_t bytes) {
    const utf8_step step = next_utf8(text);
    EXPECT_EQ(step.what, what) << ::testing::PrintToString(std::string(text));
    EXPECT_EQ(step.bytes, bytes) << ::testing::PrintToString(std::string(text));
  };
  check("a", kind::character, 1);
  check(std::string_view("\0", 1), kind::character, 1);
  check("\xc3\xa9x", kind::character, 2);
  check("\xe2\x82\xac", kind::character, 3);
  check("\xf4\x8f\xbf\xbf", kind::character, 4);
  check("\x80", kind::invalid, 1);
  check("\xc0\x80", kind::invalid, 1);      // overlong
  check("\xe0\x80\x80", kind::invalid, 1);  // overlong
  check("\xed\xa0\x80", kind::invalid, 1);  // a surrogate
  check("\xf4\x90\x80\x80", kind::invalid, 1);
  check("\xf5", kind::invalid, 1);
  check("\xe2\x82x", kind::invalid, 2);
  check("\xf0\x9f\x99x", kind::invalid, 3);
  check("\xc3", kind::incomplete, 1);
  check("\xe2\x82", kind::incomplete, 2);
  check("\xf0\x9f\x99", kind::incomplete, 3);
  EXPECT_EQ(replace_invalid_utf8("a\xf0\x9f\x99"), "a\xef\xbf\xbd");
  EXPECT_EQ(replace_invalid_utf8("\xff\xfe"), "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(unicode, byte_alphabet_is_one_to_one) {
  const byte_alphabet alphabet;
  for (unsigned b = 0; b < 256; ++b) {
    std::string bytes;
    ASSERT_TRUE(alphabet.to_bytes(alphabet.text(static_cast<unsigned char>(b)), bytes));
    EXPECT_EQ(bytes, std::string(1, static_cast<char>(b)));
  }
  std::string bytes;
  EXPECT_EQ(alphabet.text(' '), "\xc4\xa0");
  EXPECT_FALSE(alphabet.to_bytes(" ", bytes));
  EXPECT_FALSE(alphabet.to_bytes("\xe2\x82\xac", bytes));
  EXPECT_FALSE(alphabet.to_bytes("\xc4", bytes));
}

TEST(unicode, normalization) {
  EXPECT_EQ(normalize_nfc("plain"), "plain");
  EXPECT_EQ(normalize_nfc(""), "");
  EXPECT_EQ(normalize_nfc("e\xcc\x81"), "\xc3\xa9");
  EXPECT_EQ(normalize_nfc("\xe2\x84\xab"), "\xc3\x85");  // the angstrom sign is a letter
}

}  // namespace
}  // namespace rankcast::transformer
