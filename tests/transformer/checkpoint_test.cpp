/// safetensors files, model folders and the reading of slices.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/error.hpp"
#include "rankcast/core/partition.hpp"
#include "rankcast/core/tensor.hpp"
#include "support/checkpoint_writer.hpp"
#include "transformer/checkpoint/folder.hpp"
#include "transformer/checkpoint/mapped_file.hpp"
#include "transformer/checkpoint/safetensors.hpp"
#include "transformer/checkpoint/slices.hpp"

namespace rankcast::transformer {
namespace {

using rankcast::test::bytes_of;
using rankcast::test::float_tensor;
using rankcast::test::header_entry;
using rankcast::test::safetensors_bytes;
using rankcast::test::scratch_folder;

std::vector<stored_tensor> parse(const std::string& bytes) {
  return parse_safetensors({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
                           "test.safetensors");
}

/// Expects an Error whose message holds all the words.
template <class Error>
void expect_error(const std::function<void()>& call, const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; wanted a message with " << words.front();
  } catch (const Error& e) {
    for (const std::string& word : words) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos)
          << "no " << word << " in: " << e.what();
    }
  } catch (const std::exception& e) {
    ADD_FAILURE() << "an error of another type: " << e.what();
  }
}

void refused(const std::string& bytes, const std::vector<std::string>& words) {
  expect_error<decode_error>([&] { static_cast<void>(parse(bytes)); }, words);
}

void header_refused(const std::string& header, const std::string& data,
                    const std::vector<std::string>& words) {
  refused(safetensors_bytes(header, data), words);
}

TEST(mapped_file, maps_and_reports) {
  const scratch_folder folder;
  const mapped_file file(folder.write("a", "hello"));
  EXPECT_EQ(file.text(), "hello");
  EXPECT_EQ(mapped_file(folder.write("empty", "")).bytes().size(), 0u);
  expect_error<transport_error>([&] { mapped_file f(folder.path() / "none"); },
                                {"none", "No such file"});
  expect_error<usage_error>([&] { mapped_file f(folder.path()); }, {"not a regular file"});
}

TEST(mapped_file, does_not_wait_for_a_fifo) {
  const scratch_folder folder;
  const std::filesystem::path path = folder.path() / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_error<usage_error>([&] { mapped_file f(path); }, {"not a regular file"});
}

TEST(safetensors, reads_all_dtypes) {
  const std::vector<std::pair<std::string, dtype>> all = {
      {"F64", dtype::float64}, {"F32", dtype::float32}, {"BF16", dtype::bfloat16},
      {"F16", dtype::float16}, {"I64", dtype::int64},   {"I32", dtype::int32},
      {"I16", dtype::int16},   {"I8", dtype::int8},     {"U64", dtype::uint64},
      {"U32", dtype::uint32},  {"U16", dtype::uint16},  {"U8", dtype::uint8},
      {"BOOL", dtype::boolean}};
  std::vector<rankcast::test::tensor_to_write> tensors;
  for (const auto& [text, type] : all) {
    tensors.push_back({"t." + text, text, {3}, std::string(3 * size_of(type), '\1')});
  }
  const std::string bytes = safetensors_bytes(tensors);
  const auto found = parse(bytes);
  ASSERT_EQ(found.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(found[i].name, "t." + all[i].first);
    EXPECT_EQ(found[i].dtype, all[i].second);
    EXPECT_EQ(found[i].layout.text(), "(3)");
  }
}

TEST(safetensors, reads_values_scalars_and_an_empty_file) {
  const std::string bytes =
      safetensors_bytes({float_tensor("a", {2, 2}, {1, 2, 3, 4}), float_tensor("scalar", {}, {7})});
  const auto found = parse(bytes);
  EXPECT_EQ(found[0].view().text(), "float32 (2,2)");
  tensor copy(dtype::float32, {2, 2});
  copy_whole(found[0], {2, 2}, copy);
  EXPECT_EQ(copy.at<float>(1, 0), 3.0F);
  EXPECT_EQ(found[1].layout.dimensions, 0);
  EXPECT_EQ(found[1].layout.elements(), 1);
  EXPECT_TRUE(parse(safetensors_bytes("{}", "")).empty());
  EXPECT_TRUE(parse(safetensors_bytes("{}   ", "")).empty());
}

TEST(safetensors, refuses_broken_frames) {
  refused("", {"too few"});
  refused("1234567", {"too few"});
  const std::string good = safetensors_bytes({float_tensor("a", {2}, {1, 2})});
  for (std::size_t n = 0; n < good.size(); ++n) {
    EXPECT_THROW(static_cast<void>(parse(good.substr(0, n))), decode_error) << n;
  }
  EXPECT_NO_THROW(static_cast<void>(parse(good)));
  EXPECT_THROW(static_cast<void>(parse(good + "x")), decode_error);
  refused(std::string(8, '\xff') + "{}", {"18446744073709551615", "bound"});
  refused(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8) + "{}", {"100000001"});
  header_refused(" {}", "", {"start with '{'"});
  header_refused("[]", "", {"start with '{'"});
  header_refused("{\"a\":", "", {"not JSON"});
  header_refused("{}x", "", {"not JSON"});
  header_refused("{\"a\xff\":1}", "", {"not JSON"});
  std::string zeros = "0";
  for (int i = 0; i < 100; ++i) zeros += ",0";
  header_refused("{\"a\":[" + zeros + "]}", "", {"an array of more than 64"});
  header_refused("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}", "", {"deeper"});
}

TEST(safetensors, refuses_broken_entries) {
  const auto entry = [](const std::string& body) { return "{\"the.name\":" + body + "}"; };
  header_refused(entry("1"), "", {"the.name", "no JSON object"});
  header_refused(entry("{\"shape\":[1],\"data_offsets\":[0,4]}"), "1234", {"the.name", "dtype"});
  header_refused(entry("{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}"), "1234",
                 {"the.name", "dtype"});
  for (const char* type : {"F8_E4M3", "F8_E5M2", "F4", "C64", "f32", ""}) {
    header_refused("{" + header_entry("the.name", type, "[1]", 0, 4) + "}", "1234",
                   {"the.name", std::string("\"") + type + "\"", "not supported"});
  }
  header_refused(entry("{\"dtype\":\"F32\",\"data_offsets\":[0,4]}"), "1234",
                 {"the.name", "shape"});
  for (const char* shape : {"[1.0]", "[true]", "[-1]", "[-0]", "[\"1\"]", "[null]", "[[1]]",
                            "[1e0]", "[0.5,2]", "[18446744073709551616]", "[9223372036854775808]",
                            "4", "{}", "null", "[1,1,1,1,1,1,1,1,1]"}) {
    header_refused("{" + header_entry("the.name", "F32", shape, 0, 4) + "}", "1234",
                   {"test.safetensors", "the.name"});
  }
  for (const char* offsets : {"[0]", "[0,4,8]", "[]", "4", "[0,4.0]", "[-4,0]", "[0,\"4\"]"}) {
    header_refused(
        entry("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + std::string(offsets) + "}"),
        "1234", {"the.name", "data_offsets"});
  }
  header_refused("{" + header_entry("the.name", "F32", "[1]", 4, 0) + "}", "1234",
                 {"the.name", "4..0"});
  header_refused("{" + header_entry("the.name", "F32", "[2]", 0, 8) + "}", "1234",
                 {"the.name", "0..8", "outside", "4 bytes"});
  header_refused("{" + header_entry("the.name", "F32", "[2]", 0, 4) + "}", "1234",
                 {"the.name", "8 bytes", "0..4"});
  header_refused("{\"__metadata__\":{\"a\":1}}", "", {"__metadata__"});
  header_refused("{\"__metadata__\":[]}", "", {"__metadata__"});
}

TEST(safetensors, long_and_odd_names_stay_short_in_messages) {
  const std::string name(5000, 'n');
  try {
    static_cast<void>(
        parse(safetensors_bytes("{" + header_entry(name, "F32", "[-1]", 0, 4) + "}", "1234")));
    FAIL();
  } catch (const decode_error& e) {
    EXPECT_LT(std::string(e.what()).size(), 500u);
  }
}

TEST(safetensors, empty_tensors_lie_between_others_only) {
  const std::string good = "{" + header_entry("a", "F32", "[1]", 0, 4) + "," +
                           header_entry("e", "F32", "[0,5]", 4, 4) + "," +
                           header_entry("f", "F32", "[7,0]", 0, 0) + "," +
                           header_entry("b", "F32", "[1]", 4, 8) + "}";
  EXPECT_EQ(parse(safetensors_bytes(good, "12345678")).size(), 4u);
  header_refused("{" + header_entry("a", "F32", "[1]", 0, 4) + "," +
                     header_entry("e", "F32", "[0]", 2, 2) + "}",
                 "1234", {"\"a\"", "\"e\"", "overlap"});
}

TEST(safetensors, many_tensors_take_linear_time) {
  std::string header = "{";
  const int count = 50'000;
  for (int i = 0; i < count; ++i) {
    header += (i == 0 ? "" : ",") + header_entry("t" + std::to_string(i), "U8", "[1]",
                                                 static_cast<std::uint64_t>(i),
                                                 static_cast<std::uint64_t>(i) + 1);
  }
  const std::string bytes = safetensors_bytes(header + "}", std::string(count, 'x'));
  EXPECT_EQ(parse(bytes).size(), static_cast<std::size_t>(count));
}

TEST(folder, finds_tensors_and_tells_the_unused) {
  const scratch_folder folder;
  folder.write("model.safetensors",
               safetensors_bytes({float_tensor("b", {1}, {2}), float_tensor("a", {1}, {1}),
                                  float_tensor("c", {1}, {3})}));
  checkpoint weights(folder.path());
  EXPECT_EQ(weights.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(weights.has("a"));
  EXPECT_FALSE(weights.has("d"));
  EXPECT_EQ(weights.unused().size(), 3u);  // has() does not use
  EXPECT_EQ(weights.find("b").text(), "float32 (1)");
  weights.mark_used("c");
  EXPECT_EQ(weights.unused(), (std::vector<std::string>{"a"}));
  expect_error<decode_error>([&] { static_cast<void>(weights.find("d")); }, {"\"d\"", "missing"});
  checkpoint moved = std::move(weights);  // the views go on
  EXPECT_EQ(moved.unused(), (std::vector<std::string>{"a"}));
}

TEST(folder, reads_shards) {
  const scratch_folder folder;
  folder.write("one.safetensors", safetensors_bytes({float_tensor("a", {1}, {1})}));
  folder.write("two.safetensors", safetensors_bytes({float_tensor("b", {1}, {2})}));
  folder.write("model.safetensors.index.json",
               R"({"metadata":{},"weight_map":{"b":"two.safetensors","a":"one.safetensors"}})");
  checkpoint weights(folder.path());
  tensor value(dtype::float32, {1});
  copy_whole(weights.stored("b"), {1}, value);
  EXPECT_EQ(value.at<float>(0), 2.0F);
  EXPECT_NE(weights.stored("a").file.find("one.safetensors"), std::string::npos);
}

TEST(folder, refuses_what_is_no_checkpoint) {
  const scratch_folder folder;
  expect_error<usage_error>([&] { checkpoint c(folder.path()); }, {"holds neither"});
  expect_error<usage_error>([&] { checkpoint c(folder.path() / "none"); }, {"not a folder"});
  folder.write("model.safetensors", safetensors_bytes({float_tensor("a", {1}, {1})}));
  folder.write("model.safetensors.index.json", "{}");
  expect_error<usage_error>([&] { checkpoint c(folder.path()); }, {"both"});
}

/// Element [row][column] of the matrix that the slice tests read.
float element_at(std::int64_t row, std::int64_t column) {
  return static_cast<float>(row * 100 + column) + 0.5F;
}

stored_tensor matrix(std::vector<float>& values, std::int64_t rows, std::int64_t columns) {
  values.clear();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) values.push_back(element_at(r, c));
  }
  return {"w", dtype::float32, layout::contiguous({rows, columns}),
          reinterpret_cast<const std::byte*>(values.data()), "f.safetensors"};
}

TEST(slices, rows_and_columns_of_several_parts) {
  std::vector<float> values;
  const stored_tensor source = matrix(values, 7, 5);
  tensor rows(dtype::float32, {4, 5});
  copy_slices(source, {7, 5}, 0, {{1, 1}, {3, 0}, {4, 3}}, rows);
  const std::int64_t wanted_rows[] = {1, 4, 5, 6};
  for (std::int64_t r = 0; r < 4; ++r) {
    for (std::int64_t c = 0; c < 5; ++c) {
      EXPECT_EQ(rows.at<float>(r, c), element_at(wanted_rows[r], c));
    }
  }
  tensor columns(dtype::float32, {7, 3});
  copy_slices(source, {7, 5}, 1, {{4, 1}, {0, 2}}, columns);
  const std::int64_t wanted_columns[] = {4, 0, 1};
  for (std::int64_t r = 0; r < 7; ++r) {
    for (std::int64_t c = 0; c < 3; ++c) {
      EXPECT_EQ(columns.at<float>(r, c), element_at(r, wanted_columns[c]));
    }
  }
}

TEST(slices, target_rows_may_lie_apart) {
  std::vector<float> values;
  const stored_tensor source = matrix(values, 4, 6);
  tensor whole(dtype::float32, {4, 8});
  std::fill(whole.values<float>().begin(), whole.values<float>().end(), -1.0F);
  copy_slices(source, {4, 6}, 1, {{2, 3}}, whole.view().slice(1, 4, 3));
  copy_slices(source, {4, 6}, 0, {{3, 1}}, whole.view().slice(0, 0, 1).slice(1, 1, 6));
  EXPECT_EQ(whole.at<float>(3, 3), -1.0F);
  EXPECT_EQ(whole.at<float>(3, 4), element_at(3, 2));
  EXPECT_EQ(whole.at<float>(3, 6), element_at(3, 4));
  EXPECT_EQ(whole.at<float>(3, 7), -1.0F);
  EXPECT_EQ(whole.at<float>(0, 0), -1.0F);
  EXPECT_EQ(whole.at<float>(0, 1), element_at(3, 0));
}

TEST(slices, every_rank_together_is_the_whole) {
  std::vector<float> values;
  const stored_tensor source = matrix(values, 10, 11);
  for (const int dimension : {0, 1}) {
    for (const int ranks : {1, 2, 3, 4, 12}) {
      const std::int64_t total = source.layout.extent(dimension);
      tensor whole(dtype::float32, {10, 11});
      for (int r = 0; r < ranks; ++r) {
        const slice own = partition(total, ranks, r);
        copy_slices(source, {10, 11}, dimension, {own},
                    whole.view().slice(dimension, own.first, own.count));
      }
      EXPECT_TRUE(std::equal(values.begin(), values.end(), whole.values<float>().begin()));
    }
  }
}

TEST(slices, vectors) {
  const std::vector<float> values = {0, 1, 2, 3, 4};
  const stored_tensor source{"bias", dtype::float32, layout::contiguous({5}),
                             reinterpret_cast<const std::byte*>(values.data()), "f"};
  tensor part(dtype::float32, {3});
  copy_slices(source, {5}, 0, {{3, 2}, {0, 1}}, part);
  EXPECT_EQ(part.at<float>(0), 3.0F);
  EXPECT_EQ(part.at<float>(1), 4.0F);
  EXPECT_EQ(part.at<float>(2), 0.0F);
  tensor none(dtype::float32, {0});
  copy_slices(source, {5}, 0, {}, none);
}

template <class Source, class Target>
void check_conversion(const std::vector<float>& numbers) {
  // One byte off: the data of a safetensors file need not be aligned.
  std::string bytes = "x";
  std::vector<Source> values;
  for (const float n : numbers) values.push_back(Source(n));
  bytes += bytes_of(values);
  const auto count = static_cast<std::int64_t>(values.size());
  const stored_tensor source{"w", dtype_of<Source>(), layout::contiguous({count}),
                             reinterpret_cast<const std::byte*>(bytes.data()) + 1, "f"};
  tensor target(dtype_of<Target>(), {count});
  copy_whole(source, {count}, target);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto wanted =
        static_cast<float>(Target(static_cast<float>(values[static_cast<std::size_t>(i)])));
    const auto got = static_cast<float>(target.at<Target>(i));
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(got)) << i;
    } else {
      EXPECT_EQ(got, wanted) << numbers[static_cast<std::size_t>(i)];
      EXPECT_EQ(std::signbit(got), std::signbit(wanted));
    }
  }
}

TEST(slices, converts_with_rounding_to_nearest_even) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> numbers = {0.0F,        -0.0F,
                                1.0F,        -2.5F,
                                65504.0F,    65520.0F,
                                0x1p-24F,    0x1.8p-24F,
                                0x1p-14F,    3.4e38F,
                                infinity,    -infinity,
                                1e-40F,      std::numeric_limits<float>::quiet_NaN(),
                                1.00390625F,   // halfway between two bfloat16: to the even one, 1
                                1.01171875F};  // halfway: to the even one, 1.015625
  for (int i = 0; i < 1000; ++i) numbers.push_back(std::sin(static_cast<float>(i)) * 3.0F);
  check_conversion<float, float>(numbers);
  check_conversion<float, bfloat16>(numbers);
  check_conversion<bfloat16, float>(numbers);
  check_conversion<bfloat16, bfloat16>(numbers);
  check_conversion<float16, float>(numbers);
  check_conversion<float16, bfloat16>(numbers);
  EXPECT_EQ(static_cast<float>(bfloat16(1.00390625F)), 1.0F);
  EXPECT_EQ(static_cast<float>(bfloat16(1.01171875F)), 1.015625F);
}

TEST(slices, widens_every_float16) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float16 value = float16::from_bits(static_cast<std::uint16_t>(bits));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(detail::widen(value)),
              std::bit_cast<std::uint32_t>(static_cast<float>(value)))
        << bits;
  }
}

TEST(slices, misuse_and_wrong_shapes_name_the_tensor) {
  std::vector<float> values;
  stored_tensor source = matrix(values, 4, 6);
  tensor target(dtype::float32, {2, 6});
  expect_error<decode_error>(
      [&] {
        copy_slices(source, {6, 4}, 0, {{0, 2}}, target);
      },
      {"f.safetensors", "\"w\"", "(6,4)", "(4,6)"});
  const auto misuse = [&](int dimension, std::vector<slice> parts, tensor_view to) {
    const std::vector<std::int64_t> wanted = {4, 6};
    expect_error<usage_error>([&] { copy_slices(source, wanted, dimension, parts, to); },
                              {"f.safetensors", "\"w\""});
  };
  misuse(2, {{0, 2}}, target);
  misuse(-1, {{0, 2}}, target);
  misuse(0, {{3, 2}}, target);
  misuse(0, {{-1, 2}}, target);
  misuse(0, {{0, -1}, {0, 3}}, target);
  misuse(0, {{std::numeric_limits<std::int64_t>::max(), 2}}, target);
  misuse(0, {{0, 1}}, target);
  misuse(1, {{0, 2}}, target);
  tensor transposed(dtype::float32, {6, 2});
  misuse(0, {{0, 2}}, transposed.view().transpose(0, 1));
  tensor flat(dtype::float32, {12});
  misuse(0, {{0, 2}}, flat);
  tensor integers(dtype::int32, {2, 6});
  expect_error<decode_error>(
      [&] {
        copy_slices(source, {4, 6}, 0, {{0, 2}}, integers);
      },
      {"int32"});
  source.dtype = dtype::int8;
  expect_error<decode_error>(
      [&] {
        copy_slices(source, {4, 6}, 0, {{0, 2}}, target);
      },
      {"\"w\"", "int8", "float32"});
}

}  // namespace
}  // namespace rankcast::transformer
