/// A Hugging Face model folder: one `model.safetensors`, or `model.safetensors.index.json` and the
/// shards it names. The whole folder is checked before anything is loaded, by every rank alike, so
/// that all ranks of a group fail together and say the same.
#pragma once

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "rankcast/core/tensor.hpp"
#include "transformer/checkpoint/json.hpp"
#include "transformer/checkpoint/mapped_file.hpp"
#include "transformer/checkpoint/safetensors.hpp"

namespace rankcast::transformer {

/// The tensors of a model folder by name. Holds the files mapped; one object per rank. Remembers
/// which tensors were asked for, so that a loader can refuse a folder with weights it does not
/// know.
class checkpoint {
 public:
  /// Opens and checks the folder. Throws
  /// - usage_error: no such folder, no safetensors in it, or both forms at once;
  /// - decode_error: a broken file; or one message with ALL of: shards that are missing, tensors
  ///   that their shard lacks, tensors the index does not list, tensors that two files hold;
  /// - transport_error: a file that the system does not let read.
  /// Cost: reads the index and every header, no weights.
  explicit checkpoint(std::filesystem::path folder) : folder_(std::move(folder)) {
    if (!std::filesystem::is_directory(folder_)) {
      throw usage_error(folder_.string() + " is not a folder");
    }
    const bool is_single = exists(folder_ / single_name);
    const bool is_sharded = exists(folder_ / index_name);
    if (is_single && is_sharded) {
      throw usage_error(folder_.string() + " holds both " + single_name + " and " + index_name +
                        ": remove the one that is not meant");
    }
    if (is_single) {
      open_single();
    } else if (is_sharded) {
      open_sharded();
    } else {
      throw usage_error(folder_.string() + " holds neither " + single_name + " nor " + index_name);
    }
  }

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

  [[nodiscard]] bool has(std::string_view name) const {
    return tensors_.find(name) != tensors_.end();
  }

  /// The tensor with its file, and marks it used. Throws decode_error where there is none.
  [[nodiscard]] const stored_tensor& stored(std::string_view name) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      throw decode_error(folder_.string() + ": tensor " + in_quotes(name) +
                         " is missing: the checkpoint holds " + std::to_string(tensors_.size()) +
                         " tensors, and none of that name");
    }
    found->second.is_used = true;
    return *found->second.tensor;
  }

  /// The same as a view of the mapped file; its address need not be aligned for its type.
  [[nodiscard]] const_tensor_view find(std::string_view name) { return stored(name).view(); }

  /// Counts a tensor as used without reading it (a buffer that old versions stored, for one).
  void mark_used(std::string_view name) { static_cast<void>(stored(name)); }

  /// All names, sorted.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& t : tensors_) result.emplace_back(t.first);
    return result;
  }

  /// The names that neither `find`, `stored` nor `mark_used` was called with, sorted.
  [[nodiscard]] std::vector<std::string> unused() const {
    std::vector<std::string> result;
    for (const auto& [name, entry] : tensors_) {
      if (!entry.is_used) result.emplace_back(name);
    }
    return result;
  }

 private:
  static constexpr const char* single_name = "model.safetensors";
  static constexpr const char* index_name = "model.safetensors.index.json";

  struct held {
    const stored_tensor* tensor = nullptr;
    bool is_used = false;
  };

  using weight_map = std::map<std::string, std::string, std::less<>>;  // tensor -> file

  /// False only where nothing is there: a file that may not be read is an error of its opening.
  static bool exists(const std::filesystem::path& path) {
    std::error_code code;
    return std::filesystem::exists(path, code) || (code && code.value() != ENOENT);
  }

  void open_single() {
    files_.emplace_back(folder_ / single_name);
    for (const stored_tensor& t : files_.back().tensors()) tensors_.emplace(t.name, held{&t});
  }

  void open_sharded() {
    const weight_map wanted = read_index();
    std::set<std::string> shards;
    for (const auto& [tensor, file] : wanted) shards.insert(file);

    std::string problems;
    std::size_t missing_files = 0;
    std::set<std::string> missing;
    for (const std::string& shard : shards) {
      if (exists(folder_ / shard)) continue;
      missing.insert(shard);
      problems += "\n  file " + in_quotes(shard) + " is missing";
      ++missing_files;
    }
    files_.reserve(shards.size());  // tensors_ points into it
    for (const std::string& shard : shards) {
      if (missing.count(shard) != 0) continue;
      files_.emplace_back(folder_ / shard);
      problems += add_shard(files_.back(), shard, wanted);
    }
    for (const auto& [tensor, file] : wanted) {
      if (missing.count(file) != 0) {
        problems += "\n  tensor " + in_quotes(tensor) + " is missing with file " + in_quotes(file);
      } else if (!has(tensor)) {
        problems += "\n  tensor " + in_quotes(tensor) + " is missing: the index names file " +
                    in_quotes(file) + ", which lacks it";
      }
    }
    if (!problems.empty()) {
      throw decode_error(folder_.string() + ": the checkpoint is not whole" +
                         (missing_files != 0 ? " (an incomplete download?)" : "") + problems);
    }
  }

  /// Takes up the tensors of one shard; returns what does not fit the index.
  std::string add_shard(const safetensors_file& file, const std::string& shard,
                        const weight_map& wanted) {
    std::string problems;
    for (const stored_tensor& t : file.tensors()) {
      const auto [other, is_new] = tensors_.emplace(t.name, held{&t});
      const auto listed = wanted.find(t.name);
      if (!is_new) {
        problems +=
            "\n  duplicate tensor " + in_quotes(t.name) + ": in " +
            in_quotes(std::filesystem::path(other->second.tensor->file).filename().string()) +
            " and in " + in_quotes(shard);
      } else if (listed == wanted.end()) {
        problems += "\n  tensor " + in_quotes(t.name) + " of file " + in_quotes(shard) +
                    " is not listed in the index";
      } else if (listed->second != shard) {
        problems += "\n  tensor " + in_quotes(t.name) + " is in file " + in_quotes(shard) +
                    ", but the index names " + in_quotes(listed->second);
      }
    }
    return problems;
  }

  [[nodiscard]] weight_map read_index() const {
    const mapped_file file(folder_ / index_name);
    const std::string where = file.path().string();
    const json index = parse_json(file.text(), where);
    const auto map = index.is_object() ? index.find("weight_map") : index.end();
    if (map == index.end() || !map->is_object() || map->empty()) {
      throw decode_error(where + ": \"weight_map\" is missing, empty or no object");
    }
    weight_map wanted;
    for (const auto& [tensor, shard] : map->items()) {
      if (!shard.is_string()) {
        throw decode_error(where + ": the file of tensor " + in_quotes(tensor) + " is no string");
      }
      check_shard_name(shard.get_ref<const std::string&>(), tensor, where);
      wanted.emplace(tensor, shard.get<std::string>());
    }
    return wanted;
  }

  /// A shard lies in the folder itself: whatever could lead out of it is refused. (What a symbolic
  /// link of that name points to is the user's own affair: download caches are made of links.)
  static void check_shard_name(const std::string& shard, const std::string& tensor,
                               const std::string& where) {
    if (shard.empty() || shard == "." || shard == ".." ||
        shard.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      throw decode_error(where + ": tensor " + in_quotes(tensor) + " is in " + in_quotes(shard) +
                         ", which is not the name of a file in this folder");
    }
  }

  std::filesystem::path folder_;
  std::vector<safetensors_file> files_;
  std::map<std::string_view, held, std::less<>> tensors_;  // into files_
};

}  // namespace rankcast::transformer
