/// A file mapped read-only: its pages are read when touched, and ranks that are threads or
/// processes of one machine share them.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "rankcast/core/error.hpp"

namespace rankcast::transformer {

/// Owns the mapping; move only. The file must not be cut short while it is mapped: the system
/// answers a read past its end with SIGBUS.
class mapped_file {
 public:
  mapped_file() = default;

  /// Maps the whole file. Throws transport_error with the path and errno where the system refuses,
  /// usage_error where the path is no regular file. Cost: three system calls, no reading.
  explicit mapped_file(std::filesystem::path path) : path_(std::move(path)) {
    // Not blocking: a FIFO of that name would otherwise hang here.
    const descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file.number < 0) fail("cannot open");
    struct stat status {};
    if (::fstat(file.number, &status) != 0) fail("cannot stat");
    if (!S_ISREG(status.st_mode)) throw usage_error(path_.string() + " is not a regular file");
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ == 0) return;  // mmap refuses empty ranges
    void* const data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number, 0);
    if (data == map_failed()) fail("cannot map");
    data_ = static_cast<const std::byte*>(data);
  }

  mapped_file(mapped_file&& other) noexcept { swap(other); }
  mapped_file& operator=(mapped_file&& other) noexcept {
    mapped_file(std::move(other)).swap(*this);
    return *this;
  }
  ~mapped_file() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  [[nodiscard]] std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(data_), size_};
  }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  void swap(mapped_file& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

 private:
  struct descriptor {
    explicit descriptor(int value) noexcept : number(value) {}
    descriptor(const descriptor&) = delete;
    descriptor& operator=(const descriptor&) = delete;
    ~descriptor() {
      if (number >= 0) ::close(number);
    }
    int number;
  };

  /// MAP_FAILED without the C cast of the system's macro.
  static void* map_failed() noexcept { return reinterpret_cast<void*>(~std::uintptr_t{0}); }

  [[noreturn]] void fail(const char* what) const {
    const int code = errno;
    throw transport_error(
        std::string(what) + " " + path_.string() + ": " + std::generic_category().message(code),
        code);
  }

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace rankcast::transformer
