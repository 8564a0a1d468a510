/// Checkpoints that others have seen accepted and should not have been: C46 duplicate names, C47
/// dimensions whose product wraps, C49 ranges that alias or leave holes, C50 incomplete folders.
/// Each must fail on every rank alike, before anything is loaded.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "rankcast/core/communicator.hpp"
#include "rankcast/core/error.hpp"
#include "rankcast/transports/local/threads.hpp"
#include "support/checkpoint_writer.hpp"
#include "transformer/checkpoint/folder.hpp"

namespace rankcast::transformer {
namespace {

using rankcast::test::float_tensor;
using rankcast::test::header_entry;
using rankcast::test::safetensors_bytes;
using rankcast::test::scratch_folder;

constexpr const char* index_name = "model.safetensors.index.json";
const std::string shard_1 = "model-00001-of-00002.safetensors";
const std::string shard_2 = "model-00002-of-00002.safetensors";

/// What each rank of 1, 2 and 3 says when it opens the folder: all must throw decode_error with the
/// same text, and all the words must be in it.
void refused_on_every_rank(const std::filesystem::path& folder,
                           const std::vector<std::string>& words) {
  for (const int ranks : {1, 2, 3}) {
    std::vector<std::string> said(static_cast<std::size_t>(ranks));
    rankcast::run(ranks, [&](communicator& world) {
      std::string& own = said[static_cast<std::size_t>(world.rank())];
      try {
        const checkpoint weights(folder);
        own = "loaded " + std::to_string(weights.names().size()) + " tensors";
      } catch (const decode_error& e) {
        own = std::string("decode_error: ") + e.what();
      } catch (const std::exception& e) {
        own = std::string("another error: ") + e.what();
      }
    });
    for (const std::string& text : said) {
      EXPECT_EQ(text, said.front()) << "ranks differ";
      EXPECT_EQ(text.rfind("decode_error: ", 0), 0u) << text;
      for (const std::string& word : words) {
        EXPECT_NE(text.find(word), std::string::npos) << "no " << word << " in: " << text;
      }
    }
  }
}

void loads_on_every_rank(const std::filesystem::path& folder, std::size_t tensors) {
  rankcast::run(3, [&](communicator&) {
    const checkpoint weights(folder);
    EXPECT_EQ(weights.names().size(), tensors);
  });
}

void header_refused(const std::string& entries, const std::string& data,
                    const std::vector<std::string>& words) {
  const scratch_folder folder;
  folder.write("model.safetensors", safetensors_bytes("{" + entries + "}", data));
  refused_on_every_rank(folder.path(), words);
}

std::string index_of(const std::string& weight_map) {
  return "{\"metadata\":{\"total_size\":8},\"weight_map\":{" + weight_map + "}}";
}

// ---------------------------------------------------------------------------------------------

TEST(cases, C46_duplicate_name_in_one_header) {
  header_refused(
      header_entry("w", "F32", "[1]", 0, 4) + "," + header_entry("w", "F32", "[1]", 4, 8),
      "12345678", {"duplicate name", "\"w\"", "model.safetensors"});
  // Word for word the same entry twice is no better.
  header_refused(
      header_entry("w", "F32", "[1]", 0, 4) + "," + header_entry("w", "F32", "[1]", 0, 4), "1234",
      {"duplicate name", "\"w\""});
  // The same name, once written with an escape.
  header_refused(
      header_entry("w", "F32", "[1]", 0, 4) + "," + header_entry("\\u0077", "F32", "[1]", 4, 8),
      "12345678", {"duplicate name", "\"w\""});
}

TEST(cases, C46_duplicate_key_inside_an_entry) {
  header_refused("\"w\":{\"dtype\":\"F32\",\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}",
                 "1234", {"duplicate name", "\"dtype\"", "F32", "I32"});
  header_refused("\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}",
                 "1234", {"duplicate name", "\"shape\""});
}

TEST(cases, C46_two_metadata_entries) {
  header_refused("\"__metadata__\":{\"a\":\"1\"},\"__metadata__\":{\"b\":\"2\"}," +
                     header_entry("w", "F32", "[1]", 0, 4),
                 "1234", {"duplicate name", "__metadata__"});
}

TEST(cases, C46_same_name_in_two_shards) {
  const scratch_folder folder;
  folder.write(shard_1, safetensors_bytes({float_tensor("w", {1}, {1})}));
  folder.write(shard_2,
               safetensors_bytes({float_tensor("w", {1}, {2}), float_tensor("v", {1}, {3})}));
  folder.write(index_name, index_of("\"w\":\"" + shard_1 + "\",\"v\":\"" + shard_2 + "\""));
  refused_on_every_rank(folder.path(), {"duplicate tensor", "\"w\"", shard_1, shard_2});
}

// ---------------------------------------------------------------------------------------------

TEST(cases, C47_product_of_dimensions_wraps_to_zero) {
  header_refused(header_entry("huge", "F32", "[8589934592,2147483648]", 0, 0), "",
                 {"overflow", "\"huge\""});
  header_refused(header_entry("huge", "F32", "[8589934592,2147483648]", 0, std::uint64_t{1} << 40),
                 "1234", {"overflow", "\"huge\""});
}

TEST(cases, C47_other_products_that_wrap) {
  // Elements fit in 63 bits, bytes do not.
  header_refused(header_entry("huge", "F32", "[4611686018427387904]", 0, 0), "",
                 {"overflow", "\"huge\""});
  header_refused(header_entry("huge", "F64", "[2305843009213693952]", 0, 0), "",
                 {"overflow", "\"huge\""});
  // A zero does not excuse the other dimensions.
  header_refused(header_entry("huge", "F32", "[0,8589934592,2147483648]", 0, 0), "",
                 {"overflow", "\"huge\""});
  header_refused(header_entry("huge", "U8", "[4294967296,4294967296,0]", 0, 0), "",
                 {"overflow", "\"huge\""});
}

TEST(cases, C47_negative_and_fractional_dimensions) {
  header_refused(header_entry("w", "F32", "[-1,-1]", 0, 4), "1234", {"\"w\"", "-1"});
  header_refused(header_entry("w", "F32", "[-1]", 0, 0), "", {"\"w\"", "-1"});
  header_refused(header_entry("w", "F32", "[0.5,2]", 0, 4), "1234", {"\"w\"", "0.5"});
  header_refused(header_entry("w", "F32", "[1.0]", 0, 4), "1234", {"\"w\"", "1.0"});
}

TEST(cases, C47_true_empty_tensor_loads) {
  const scratch_folder folder;
  folder.write("model.safetensors",
               safetensors_bytes("{" + header_entry("w", "F32", "[1]", 0, 4) + "," +
                                     header_entry("empty", "F32", "[0,5]", 4, 4) + "}",
                                 "1234"));
  loads_on_every_rank(folder.path(), 2);
  checkpoint weights(folder.path());
  EXPECT_EQ(weights.find("empty").text(), "float32 (0,5)");
}

// ---------------------------------------------------------------------------------------------

TEST(cases, C49_two_tensors_in_one_range) {
  header_refused(
      header_entry("k", "F32", "[4]", 0, 16) + "," + header_entry("v", "F32", "[4]", 0, 16),
      std::string(16, 'x'), {"\"k\"", "\"v\"", "overlap", "0..16"});
}

TEST(cases, C49_ranges_that_overlap) {
  header_refused(
      header_entry("k", "F32", "[4]", 0, 16) + "," + header_entry("v", "F32", "[4]", 8, 24),
      std::string(24, 'x'), {"\"k\"", "\"v\"", "overlap", "8..24"});
}

TEST(cases, C49_hole_between_two) {
  header_refused(
      header_entry("k", "F32", "[4]", 0, 16) + "," + header_entry("v", "F32", "[4]", 20, 36),
      std::string(36, 'x'), {"16..20", "\"k\"", "\"v\"", "no tensor"});
  header_refused(header_entry("k", "F32", "[4]", 4, 20), std::string(20, 'x'),
                 {"0..4", "start", "no tensor"});
}

TEST(cases, C49_bytes_left_after_the_last) {
  header_refused(
      header_entry("k", "F32", "[4]", 0, 16) + "," + header_entry("v", "F32", "[4]", 16, 32),
      std::string(40, 'x'), {"32..40", "\"v\"", "no tensor"});
  header_refused("", std::string(8, 'x'), {"0..8", "no tensor"});
}

TEST(cases, C49_header_in_another_order_than_the_data) {
  const scratch_folder folder;
  folder.write("model.safetensors",
               safetensors_bytes("{" + header_entry("v", "F32", "[4]", 16, 32) + "," +
                                     header_entry("k", "F32", "[4]", 0, 16) + "}",
                                 std::string(16, 'k') + std::string(16, 'v')));
  loads_on_every_rank(folder.path(), 2);
  checkpoint weights(folder.path());
  EXPECT_EQ(static_cast<char>(*weights.find("k").address()), 'k');
  EXPECT_EQ(static_cast<char>(*weights.find("v").address()), 'v');
}

// ---------------------------------------------------------------------------------------------

/// A folder whose index maps a to the first shard and b to the second.
void write_first_shard(const scratch_folder& folder) {
  folder.write(shard_1, safetensors_bytes({float_tensor("a", {1}, {1})}));
  folder.write(index_name, index_of("\"a\":\"" + shard_1 + "\",\"b\":\"" + shard_2 + "\""));
}

TEST(cases, C50_shard_is_absent) {
  const scratch_folder folder;
  write_first_shard(folder);
  // On every rank, though a rank may need only the first.
  refused_on_every_rank(folder.path(), {shard_2, "\"b\"", "missing"});
}

TEST(cases, C50_all_that_is_missing_is_listed) {
  const scratch_folder folder;
  folder.write("s1", safetensors_bytes({float_tensor("a", {1}, {1})}));
  folder.write(index_name, index_of(R"("a":"s1","c":"s1","b":"s2","d":"s2","e":"s3")"));
  refused_on_every_rank(folder.path(), {"\"s2\"", "\"s3\"", "\"b\"", "\"c\"", "\"d\"", "\"e\""});
}

TEST(cases, C50_shard_lacks_its_tensor) {
  const scratch_folder folder;
  write_first_shard(folder);
  folder.write(shard_2, safetensors_bytes("{}", ""));
  refused_on_every_rank(folder.path(), {shard_2, "\"b\"", "missing"});
}

TEST(cases, C50_shard_is_cut_short) {
  const scratch_folder folder;
  write_first_shard(folder);
  const std::string whole = safetensors_bytes({float_tensor("b", {2}, {1, 2})});
  folder.write(shard_2, whole.substr(0, whole.size() - 1));
  refused_on_every_rank(folder.path(), {shard_2, "\"b\"", "cut short"});
}

TEST(cases, C50_shard_holds_more_than_the_index_lists) {
  const scratch_folder folder;
  write_first_shard(folder);
  folder.write(shard_2,
               safetensors_bytes({float_tensor("b", {1}, {1}), float_tensor("x", {1}, {1})}));
  refused_on_every_rank(folder.path(), {shard_2, "\"x\"", "not listed"});
}

TEST(cases, C50_tensors_are_in_each_others_files) {
  const scratch_folder folder;
  folder.write(shard_1, safetensors_bytes({float_tensor("b", {1}, {1})}));
  folder.write(shard_2, safetensors_bytes({float_tensor("a", {1}, {1})}));
  folder.write(index_name, index_of("\"a\":\"" + shard_1 + "\",\"b\":\"" + shard_2 + "\""));
  refused_on_every_rank(folder.path(), {shard_1, shard_2, "\"a\"", "\"b\""});
}

TEST(cases, C50_index_lists_a_tensor_twice) {
  const scratch_folder folder;
  folder.write(shard_1,
               safetensors_bytes({float_tensor("a", {1}, {1}), float_tensor("b", {1}, {1})}));
  folder.write(shard_2, safetensors_bytes({float_tensor("b", {1}, {1})}));
  folder.write(index_name, index_of("\"a\":\"" + shard_1 + "\",\"b\":\"" + shard_1 + "\",\"b\":\"" +
                                    shard_2 + "\""));
  refused_on_every_rank(folder.path(), {"duplicate name", "\"b\"", shard_1, shard_2});
}

TEST(cases, C50_index_is_not_what_it_should_be) {
  for (const char* text : {"not JSON", "", "[]", "{}", "{\"weight_map\":{}}", "{\"weight_map\":[]}",
                           "{\"weight_map\":{\"a\":1}}", "{\"weight_map\":{\"a\":\"x\"}"}) {
    const scratch_folder folder;
    folder.write(shard_1, safetensors_bytes({float_tensor("a", {1}, {1})}));
    folder.write(index_name, text);
    refused_on_every_rank(folder.path(), {index_name});
  }
}

TEST(cases, C50_paths_out_of_the_folder_are_refused) {
  const scratch_folder outside;
  outside.write(shard_1, safetensors_bytes({float_tensor("a", {1}, {1})}));
  const scratch_folder folder;
  // The files are there and right; only where they lie is not.
  const std::string sibling = "../" + outside.path().filename().string() + "/" + shard_1;
  const std::string absolute = (outside.path() / shard_1).string();
  for (const std::string& name :
       {sibling, absolute, std::string("sub/") + shard_1, std::string("./") + shard_1,
        std::string("..\\\\x"), std::string(".."), std::string("."), std::string()}) {
    folder.write(index_name, index_of("\"a\":\"" + name + "\""));
    refused_on_every_rank(folder.path(), {index_name, "\"a\"", "not the name of a file"});
  }
}

TEST(cases, C50_whole_folder_loads) {
  const scratch_folder folder;
  write_first_shard(folder);
  folder.write(shard_2, safetensors_bytes({float_tensor("b", {1}, {1})}));
  loads_on_every_rank(folder.path(), 2);
}

}  // namespace
}  // namespace rankcast::transformer
