/// What a test says of a scenario: that it holds in every order, or that the explorer finds what
/// is wrong with it.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "model/explorer.hpp"

namespace model {

/// What is said when somebody sleeps or waits for ever.
inline const std::string lost_wake_up = "no thread can go on";

template <class Scenario>
void expect_holds(const limits& l = {}) {
  const report r = explore<Scenario>(l);
  EXPECT_FALSE(r.failed) << r.why << "\n" << r.schedule;
  std::printf("  %llu states, %llu runs\n", static_cast<unsigned long long>(r.states),
              static_cast<unsigned long long>(r.runs));
}

/// `why`: a part of what it must say.
template <class Scenario>
void expect_found(const std::string& why, const limits& l = {}) {
  const report r = explore<Scenario>(l);
  EXPECT_TRUE(r.failed) << "not found in " << r.states << " states";
  EXPECT_NE(r.why.find(why), std::string::npos) << r.why << "\n" << r.schedule;
  std::printf("  found after %llu states: %s\n", static_cast<unsigned long long>(r.states),
              r.why.c_str());
}

}  // namespace model
