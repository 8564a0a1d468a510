/// What the processes of a test other than the first have to say: failures.
#pragma once

#include <cstdio>

#include <gtest/gtest.h>

namespace support {

class failures_only final : public testing::EmptyTestEventListener {
 public:
  explicit failures_only(int process) : process_(process) {}

 private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "%s:%d: process %d: %s\n", result.file_name() ? result.file_name() : "?",
                 result.line_number(), process_, result.message());
  }
  int process_;
};

inline void print_failures_only(int process) {
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new failures_only(process));
}

}  // namespace support
