/// Memory that the processes of a job share: a file without a name, which no other process can
/// open and which is gone when the last of them is. Parts of it are reserved before they are used,
/// so that a lack of memory is an error with a text and not a signal.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "rankcast/core/error.hpp"

namespace rankcast::inline v0::local {

/// An open file, closed at the end.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) noexcept : fd_(fd) {}
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  void swap(descriptor& other) noexcept { std::swap(fd_, other.fd_); }

 private:
  int fd_ = -1;
};

[[noreturn]] inline void throw_system_error(const std::string& what, int code) {
  throw transport_error(what + ": " + std::strerror(code), code);
}

/// A part of a file in this process's memory.
class mapping {
 public:
  mapping() = default;
  mapping(int fd, std::size_t offset, std::size_t bytes) : bytes_(bytes) {
    void* p =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (p == MAP_FAILED) {
      throw_system_error("cannot map " + std::to_string(bytes) + " bytes of shared memory", errno);
    }
    address_ = static_cast<std::byte*>(p);
  }
  mapping(mapping&& other) noexcept
      : bytes_(other.bytes_), address_(std::exchange(other.address_, nullptr)) {}
  mapping& operator=(mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(address_, other.address_);
    return *this;
  }
  ~mapping() {
    if (address_ != nullptr) munmap(address_, bytes_);
  }
  [[nodiscard]] std::byte* address() const noexcept { return address_; }

 private:
  std::size_t bytes_ = 0;
  std::byte* address_ = nullptr;
};

class shared_file {
 public:
  /// A new one, of no memory yet.
  [[nodiscard]] static shared_file make() {
    descriptor fd(memfd_create("rankcast", MFD_CLOEXEC));
    if (!fd.valid()) throw_system_error("cannot make shared memory (memfd_create)", errno);
    // It has no name, but a link in /proc that must not open it for others.
    if (fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) {
      throw_system_error("cannot make shared memory private", errno);
    }
    // Room for all groups to come; pages exist when they are reserved. Beyond the limit on files
    // the system would end this process.
    rlimit files{};
    if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < most_bytes) {
      throw_system_error("shared memory needs room for a file of " + std::to_string(most_bytes) +
                             " bytes, this process may have " + std::to_string(files.rlim_cur) +
                             "; raise its limit (ulimit -f)",
                         EFBIG);
    }
    if (ftruncate(fd.get(), static_cast<off_t>(most_bytes)) != 0) {
      throw_system_error("cannot make shared memory of " + std::to_string(most_bytes) + " bytes",
                         errno);
    }
    return shared_file(std::move(fd));
  }
  /// The one that another process of the job made.
  explicit shared_file(descriptor fd) noexcept : fd_(std::move(fd)) {}

  [[nodiscard]] int get() const noexcept { return fd_.get(); }
  [[nodiscard]] mapping map(std::size_t offset, std::size_t bytes) const {
    return {fd_.get(), offset, bytes};
  }

  /// Throws transport_error with bytes needed and available. What the machine does not have is not
  /// asked for: the system would end some process, this one or another, to make room.
  void reserve(std::size_t offset, std::size_t bytes) const {
    require(offset, bytes);
    int code = 0;
    do {
      code = fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0
                 ? 0
                 : errno;
    } while (code == EINTR);
    if (code != 0) throw_no_memory(bytes, available_bytes(), code);
  }
  /// Throws as `reserve`, which does it as well, where more is going to be reserved than this.
  void require(std::size_t offset, std::size_t bytes) const {
    if (offset > most_bytes || bytes > most_bytes - offset) {
      throw_no_memory(bytes, offset > most_bytes ? 0 : most_bytes - offset, EFBIG);
    }
    if (const std::size_t free = available_bytes(); bytes > free) {
      throw_no_memory(bytes, free, ENOMEM);
    }
  }
  /// Gives memory back that nobody uses any more.
  void release(std::size_t offset, std::size_t bytes) const noexcept {
    (void)fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(offset), static_cast<off_t>(bytes));
  }

  static constexpr std::size_t most_bytes = std::size_t{1} << 40;

 private:
  [[noreturn]] static void throw_no_memory(std::size_t needed, std::size_t available, int code) {
    throw_system_error("shared memory: " + std::to_string(needed) + " bytes are needed, " +
                           std::to_string(available) +
                           " are available; use fewer ranks or smaller rings (local::settings), or "
                           "raise the memory limit of the job",
                       code);
  }

  // Of the machine, and of the container where it has a limit.
  [[nodiscard]] static std::size_t available_bytes() {
    std::size_t bytes = most_bytes;
    std::ifstream machine("/proc/meminfo");
    for (std::string word; machine >> word;) {
      std::size_t kilobytes = 0;
      if (word != "MemAvailable:") continue;
      if (machine >> kilobytes) bytes = kilobytes * 1024;
      break;
    }
    std::ifstream container("/sys/fs/cgroup/memory.max");
    if (std::size_t limit = 0; container >> limit) bytes = std::min(bytes, limit);
    return bytes;
  }

  descriptor fd_;
};

}  // namespace rankcast::inline v0::local
