/// The words of messages about calls: which call, and what a rank did last.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "rankcast/transports/local/group.hpp"

namespace rankcast::inline v0::local {

/// "0.25 s"
[[nodiscard]] inline std::string seconds_text(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

/// "broadcast #12 on group 'world' [0,1] at train.cpp:31"
[[nodiscard]] inline std::string call_text(const group& g, const operation& op,
                                           std::uint64_t sequence) {
  std::string text = std::string(name(op.code)) + " #" + std::to_string(sequence) + " on " + g.name;
  if (op.where.line != 0) {
    text += std::string(" at ") + op.where.file + ":" + std::to_string(op.where.line);
  }
  return text;
}

/// "its last call was gather #11 at eval.cpp:40, 3.1 s ago"
[[nodiscard]] inline std::string last_call_text(const group& g, int rank) {
  const member& m = g.of(rank);
  const std::uint64_t calls = m.last_sequence.load(std::memory_order_relaxed);
  if (calls == 0) return "it has made no call yet";
  const auto since = steady_clock::now().time_since_epoch() -
                     std::chrono::nanoseconds(m.last_time.load(std::memory_order_relaxed));
  std::string text = "its last call was " +
                     std::string(name(m.last_code.load(std::memory_order_relaxed))) + " #" +
                     std::to_string(calls - 1);
  const char* file = m.last_file.load(std::memory_order_relaxed);
  const int line = m.last_line.load(std::memory_order_relaxed);
  if (file != nullptr && line != 0) {
    text += std::string(" at ") + file + ":" + std::to_string(line);
  }
  return text + ", " + seconds_text(since) + " ago";
}

}  // namespace rankcast::inline v0::local
