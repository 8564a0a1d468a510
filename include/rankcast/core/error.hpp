/// The errors of rankcast: one base class, one derived class per cause a caller may want to tell
/// apart. Every message says what happened, in which call of which group, and who was involved.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/core/config.hpp"

namespace rankcast::inline v0 {

/// Base of everything rankcast throws.
class RANKCAST_API error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller asked for something that cannot be: a root outside the group, a buffer of the wrong
/// size, a call on a group it is not a member of. Found before any data moved.
class RANKCAST_API usage_error : public error {
 public:
  using error::error;
};

/// Ranks made calls that do not fit together. Names the argument and what each rank gave.
class RANKCAST_API mismatch_error : public error {
 public:
  mismatch_error(const std::string& what, std::string argument, std::vector<int> odd_ranks)
      : error(what), argument_(std::move(argument)), odd_ranks_(std::move(odd_ranks)) {}

  /// The argument the ranks disagree on: "call", "root", "dtype", "elements", ...
  [[nodiscard]] const std::string& argument() const noexcept { return argument_; }
  /// The ranks in the minority; on a tie, every rank that was compared.
  [[nodiscard]] const std::vector<int>& odd_ranks() const noexcept { return odd_ranks_; }

 private:
  std::string argument_;
  std::vector<int> odd_ranks_;
};

/// A call's deadline passed before its peers took part.
class RANKCAST_API timeout_error : public error {
 public:
  timeout_error(const std::string& what, std::vector<int> missing, std::chrono::nanoseconds waited)
      : error(what), missing_(std::move(missing)), waited_(waited) {}

  /// Ranks (of the group) that had not arrived.
  [[nodiscard]] const std::vector<int>& missing() const noexcept { return missing_; }
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept { return waited_; }

 private:
  std::vector<int> missing_;
  std::chrono::nanoseconds waited_;
};

/// A peer that is needed has gone: its thread left, its process died, its link ended.
class RANKCAST_API peer_lost_error : public error {
 public:
  peer_lost_error(const std::string& what, int rank) : error(what), rank_(rank) {}
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// The group was revoked earlier; the message is the first cause, the same on every rank.
class RANKCAST_API revoked_error : public error {
 public:
  revoked_error(const std::string& what, int by) : error(what), by_(by) {}
  /// The rank (of the group) that revoked it.
  [[nodiscard]] int by() const noexcept { return by_; }

 private:
  int by_;
};

/// Bytes that came from a peer or a file are not what they claim to be.
class RANKCAST_API decode_error : public error {
 public:
  using error::error;
};

/// Another rank failed inside the call (its arguments, encoder, decoder or handler). The group
/// goes on.
class RANKCAST_API remote_error : public error {
 public:
  remote_error(const std::string& what, int rank) : error(what), rank_(rank) {}
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// The system or the library below a transport failed.
class RANKCAST_API transport_error : public error {
 public:
  transport_error(const std::string& what, int code) : error(what), code_(code) {}
  /// The native code: errno, an MPI or an NCCL error code.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

}  // namespace rankcast::inline v0
