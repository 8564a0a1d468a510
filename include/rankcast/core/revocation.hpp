/// Why a group ended, what a rank did last, and the words in which both reach a user: the same on
/// every transport.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "rankcast/core/agreement.hpp"
#include "rankcast/core/error.hpp"
#include "rankcast/core/operation.hpp"
#include "rankcast/core/timeout.hpp"

namespace rankcast::inline v0 {

/// The cause of a revocation, as the rank saw it that revoked the group.
struct revocation {
  enum class kind : std::uint8_t { timeout, mismatch, peer_lost, failure, system };

  kind why = kind::failure;
  std::string text;
  std::uint64_t sequence = 0;
  std::vector<int> ranks;  // missing, odd or lost
  std::string argument;    // of a mismatch
  int code = 0;            // of the system, as errno
  std::chrono::nanoseconds waited{0};
};

/// "0.25 s"
[[nodiscard]] inline std::string seconds_text(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

/// " at train.cpp:31", or nothing where the place is not known
[[nodiscard]] inline std::string place_text(const char* file, int line) {
  if (file == nullptr || line == 0) return {};
  return std::string(" at ") + file + ":" + std::to_string(line);
}

/// "broadcast #12 on group 'world' [0,1] at train.cpp:31"
[[nodiscard]] inline std::string call_text(const std::string& group, const operation& op,
                                           std::uint64_t sequence) {
  return std::string(name(op.code)) + " #" + std::to_string(sequence) + " on " + group +
         place_text(op.where.file, op.where.line);
}

/// The revocation that a disagreement of ranks leads to.
[[nodiscard]] inline revocation mismatch(const std::string& group, const operation& op,
                                         std::uint64_t sequence, const disagreement& difference) {
  revocation r;
  r.why = revocation::kind::mismatch;
  r.text = call_text(group, op, sequence) + ": " + difference.text;
  r.sequence = sequence;
  r.ranks = difference.odd_ranks;
  r.argument = difference.argument;
  return r;
}

/// "send on group 'world' [0,1], rank 0 to rank 1, tag 5 at train.cpp:31"
[[nodiscard]] inline std::string letter_text(const std::string& group, const operation& op,
                                             int rank) {
  return std::string(name(op.code)) + " on " + group + ", rank " + std::to_string(rank) +
         (op.code == opcode::send ? " to" : " from") + " rank " + std::to_string(op.root) +
         ", tag " + std::to_string(op.tag) + place_text(op.where.file, op.where.line);
}

/// The last collective a rank is known to have begun.
struct last_call {
  bool any = false;
  std::uint64_t sequence = 0;
  opcode code = opcode::barrier;
  const char* file = nullptr;
  int line = 0;
  steady_clock::time_point when{};
};

/// "its last call was gather #11 at eval.cpp:40, 3.1 s ago"
[[nodiscard]] inline std::string last_call_text(const last_call& call) {
  if (!call.any) return "it has made no call yet";
  return "its last call was " + std::string(name(call.code)) + " #" +
         std::to_string(call.sequence) + place_text(call.file, call.line) + ", " +
         seconds_text(steady_clock::now() - call.when) + " ago";
}

/// The text of what is being handled; call inside a catch block.
[[nodiscard]] inline std::string current_exception_text() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "something that is not a std::exception";
  }
}

/// The first cause, for calls made after the group was revoked by rank `by`.
[[nodiscard]] inline std::exception_ptr later_error(const revocation& cause,
                                                    const std::string& group, int by) {
  return std::make_exception_ptr(revoked_error(
      cause.text + " (" + group + " was revoked by rank " + std::to_string(by) + ")", by));
}

/// The error of call `sequence` of rank `rank`, which was in flight when the group was revoked: the
/// cause itself where it is this call's, the first cause elsewhere and for those who came late.
[[nodiscard]] inline std::exception_ptr error_of_call(const revocation& cause,
                                                      const std::string& group, int by,
                                                      std::uint64_t sequence, int rank) {
  const bool late = cause.why == revocation::kind::timeout &&
                    std::find(cause.ranks.begin(), cause.ranks.end(), rank) != cause.ranks.end();
  if (cause.sequence == sequence && !late) {
    switch (cause.why) {
      case revocation::kind::timeout:
        return std::make_exception_ptr(timeout_error(cause.text, cause.ranks, cause.waited));
      case revocation::kind::mismatch:
        return std::make_exception_ptr(mismatch_error(cause.text, cause.argument, cause.ranks));
      case revocation::kind::peer_lost:
        return std::make_exception_ptr(peer_lost_error(cause.text, cause.ranks.front()));
      case revocation::kind::system:
        return std::make_exception_ptr(transport_error(cause.text, cause.code));
      case revocation::kind::failure: break;
    }
  }
  return later_error(cause, group, by);
}

}  // namespace rankcast::inline v0
