/// A folder for files that are needed for a while.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "rankcast/core/error.hpp"

namespace rankcast::transformer {

/// A new folder of its own, removed with all it holds at the end.
class scratch_folder {
 public:
  /// Throws transport_error when none can be made.
  scratch_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "rankcast-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw transport_error("cannot make " + name, errno);
    path_ = name;
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace rankcast::transformer
