/// One safetensors file: 8 bytes of header length (little-endian), a JSON header, the data. The
/// header is not believed: every size is computed and checked, and the tensors must tile the data
/// exactly, so that no weight aliases another and no byte of the file is left unexplained.
/// Format: https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rankcast/core/tensor.hpp"
#include "transformer/checkpoint/json.hpp"
#include "transformer/checkpoint/mapped_file.hpp"

namespace rankcast::transformer {

/// One tensor as it lies in a file. `data` need not be aligned for its type: read it with
/// `copy_slices`.
struct stored_tensor {
  std::string name;
  rankcast::dtype dtype = rankcast::dtype::float32;
  rankcast::layout layout = rankcast::layout::contiguous({0});
  const std::byte* data = nullptr;
  std::string file;  // for messages

  [[nodiscard]] const_tensor_view view() const noexcept { return {data, dtype, layout}; }
};

/// The largest header that is read: the bound of the reference implementation.
inline constexpr std::uint64_t largest_safetensors_header = 100'000'000;

namespace detail {

struct header_entry {
  std::string name;
  rankcast::dtype dtype;
  rankcast::layout layout;
  std::uint64_t first;  // bytes of the data section
  std::uint64_t end;
};

inline std::string byte_range(std::uint64_t first, std::uint64_t end) {
  return std::to_string(first) + ".." + std::to_string(end);
}

/// Throws decode_error for a name that rankcast has no type for (the float8 family, for one).
inline dtype safetensors_dtype(std::string_view text, const std::string& where) {
  struct row {
    std::string_view name;
    dtype type;
  };
  static constexpr std::array<row, 13> rows{{{"F64", dtype::float64},
                                             {"F32", dtype::float32},
                                             {"BF16", dtype::bfloat16},
                                             {"F16", dtype::float16},
                                             {"I64", dtype::int64},
                                             {"I32", dtype::int32},
                                             {"I16", dtype::int16},
                                             {"I8", dtype::int8},
                                             {"U64", dtype::uint64},
                                             {"U32", dtype::uint32},
                                             {"U16", dtype::uint16},
                                             {"U8", dtype::uint8},
                                             {"BOOL", dtype::boolean}}};
  for (const row& r : rows) {
    if (r.name == text) return r.type;
  }
  throw decode_error(where + ": dtype " + in_quotes(text) +
                     " is not supported; known are F64 F32 BF16 F16 I64 I32 I16 I8 U64 U32 U16 U8 "
                     "BOOL");
}

/// A JSON array of integers that are not negative. Fractions, booleans, strings and numbers over
/// 2^63 - 1 are refused: each has been read as something else by some loader.
inline std::vector<std::int64_t> natural_numbers(const json& entry, const char* key,
                                                 const std::string& where) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) {
    throw decode_error(where + ": \"" + key + "\" is missing or no array");
  }
  std::vector<std::int64_t> numbers;
  for (const json& number : *found) {
    constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > largest) {
      throw decode_error(where + ": \"" + key + "\" holds " + number.dump().substr(0, 40) +
                         ", which is not an integer in [0, 2^63)");
    }
    numbers.push_back(number.get<std::int64_t>());
  }
  return numbers;
}

inline header_entry read_header_entry(const std::string& name, const json& entry,
                                      std::uint64_t data_bytes, const std::string& file) {
  const std::string where = file + ": tensor " + in_quotes(name);
  if (!entry.is_object()) throw decode_error(where + ": its entry is no JSON object");
  const auto type = entry.find("dtype");
  if (type == entry.end() || !type->is_string()) {
    throw decode_error(where + ": \"dtype\" is missing or no string");
  }
  header_entry result{
      name, safetensors_dtype(type->get_ref<const std::string&>(), where), {}, 0, 0};
  const std::vector<std::int64_t> shape = natural_numbers(entry, "shape", where);
  try {
    result.layout = layout::contiguous(shape);
  } catch (const usage_error& e) {  // too many dimensions, or their product overflows
    throw decode_error(where + ": overflow or too many dimensions: " + e.what());
  }
  const auto elements = static_cast<std::uint64_t>(result.layout.elements());
  const std::uint64_t element_bytes = size_of(result.dtype);
  const auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (elements > largest / element_bytes) {
    throw decode_error(where + ": overflow: shape " + result.layout.text() +
                       " has more than 2^63 - 1 bytes");
  }
  const std::vector<std::int64_t> offsets = natural_numbers(entry, "data_offsets", where);
  if (offsets.size() != 2) {
    throw decode_error(where + ": \"data_offsets\" holds " + std::to_string(offsets.size()) +
                       " numbers, not two");
  }
  result.first = static_cast<std::uint64_t>(offsets[0]);
  result.end = static_cast<std::uint64_t>(offsets[1]);
  const std::string range = byte_range(result.first, result.end);
  if (result.first > result.end || result.end > data_bytes) {
    throw decode_error(where + ": bytes " + range + " are outside of the data section of " +
                       std::to_string(data_bytes) + " bytes (is the file cut short?)");
  }
  if (result.end - result.first != elements * element_bytes) {
    throw decode_error(where + ": " + std::string(rankcast::name(result.dtype)) + " " +
                       result.layout.text() + " takes " + std::to_string(elements * element_bytes) +
                       " bytes, but bytes " + range + " are " +
                       std::to_string(result.end - result.first));
  }
  return result;
}

/// The ranges, sorted, must follow one another without overlap or hole and end with the data.
inline void check_tiling(std::span<const header_entry> sorted, std::uint64_t data_bytes,
                         const std::string& file) {
  std::uint64_t at = 0;
  const header_entry* previous = nullptr;
  const auto refuse_hole = [&](std::uint64_t end, const std::string& after) {
    throw decode_error(
        file + ": bytes " + byte_range(at, end) + " of the data belong to no tensor (" +
        (previous == nullptr ? "at the start" : "after " + in_quotes(previous->name)) + after +
        ")");
  };
  for (const header_entry& e : sorted) {
    if (e.first < at) {  // at > 0, so there is a previous
      throw decode_error(file + ": tensors " + in_quotes(previous->name) + " (bytes " +
                         byte_range(previous->first, previous->end) + ") and " + in_quotes(e.name) +
                         " (bytes " + byte_range(e.first, e.end) + ") overlap");
    }
    if (e.first > at) refuse_hole(e.first, ", before " + in_quotes(e.name));
    at = e.end;
    previous = &e;
  }
  if (at != data_bytes) refuse_hole(data_bytes, ", to the end of the file");
}

inline void check_metadata(const json& metadata, const std::string& file) {
  bool is_good = metadata.is_object();
  if (is_good) {
    for (const json& value : metadata) is_good = is_good && value.is_string();
  }
  if (!is_good) throw decode_error(file + ": __metadata__ is not an object of strings");
}

}  // namespace detail

/// The tensors of a safetensors file that lies in memory, in the order of their data. `file` is
/// for messages; the tensors point into `bytes`.
/// Throws decode_error, naming the file and the tensor(s), for a header that is too long, no JSON
/// or holds a name twice, for a dtype that is not known, dimensions that are no natural numbers or
/// whose product overflows, byte counts that do not fit, ranges that overlap, leave holes or go
/// past the end.
/// Cost: linear in the header, no reading of the data.
[[nodiscard]] inline std::vector<stored_tensor> parse_safetensors(std::span<const std::byte> bytes,
                                                                  const std::string& file) {
  constexpr std::uint64_t prefix = 8;
  if (bytes.size() < prefix) {
    throw decode_error(file + ": " + std::to_string(bytes.size()) +
                       " bytes are too few for a safetensors file");
  }
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < prefix; ++i) {
    header_bytes |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  if (header_bytes > largest_safetensors_header || header_bytes > bytes.size() - prefix) {
    throw decode_error(file + ": its header would have " + std::to_string(header_bytes) +
                       " bytes; the file has " + std::to_string(bytes.size()) +
                       " and the bound is " + std::to_string(largest_safetensors_header) +
                       " (not a safetensors file, or cut short)");
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + prefix,
                              static_cast<std::size_t>(header_bytes));
  if (text.empty() || text.front() != '{') {
    throw decode_error(file + ": its header does not start with '{'");
  }
  // Its arrays are shapes and offsets: short. An element takes 2 bytes of text, but 16 of memory.
  constexpr std::size_t longest_array = 64;
  const json header = parse_json(text, file, longest_array);
  const std::span<const std::byte> data =
      bytes.subspan(static_cast<std::size_t>(prefix + header_bytes));

  std::vector<detail::header_entry> entries;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      detail::check_metadata(entry, file);
    } else {
      entries.push_back(detail::read_header_entry(name, entry, data.size(), file));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.end) < std::pair(b.first, b.end);
  });
  detail::check_tiling(entries, data.size(), file);

  std::vector<stored_tensor> tensors;
  tensors.reserve(entries.size());
  for (detail::header_entry& e : entries) {
    tensors.push_back({std::move(e.name), e.dtype, e.layout, data.data() + e.first, file});
  }
  return tensors;
}

/// A mapped safetensors file and its tensors.
class safetensors_file {
 public:
  /// Throws what `mapped_file` and `parse_safetensors` throw.
  explicit safetensors_file(const std::filesystem::path& path)
      : file_(path), tensors_(parse_safetensors(file_.bytes(), path.string())) {}

  [[nodiscard]] const std::vector<stored_tensor>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return file_.path(); }

 private:
  mapped_file file_;
  std::vector<stored_tensor> tensors_;
};

}  // namespace rankcast::transformer
