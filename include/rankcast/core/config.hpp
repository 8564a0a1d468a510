/// What every header of rankcast shares: the version, symbol visibility, and where a call was made.
#pragma once

#define RANKCAST_VERSION_MAJOR 0
#define RANKCAST_VERSION_MINOR 1
#define RANKCAST_VERSION_PATCH 0

/// Types that cross shared-library borders (errors, interfaces, inline globals) have one copy in
/// the process, also when it was built with hidden visibility.
#define RANKCAST_API __attribute__((visibility("default")))

/// Before a loop whose iterations do not depend on each other, whatever its pointers are: compilers
/// that cannot see this for themselves carry out one at a time. (Clang takes it for a demand and
/// warns of loops that have no wide form; RANKCAST_INDEPENDENT_BEGIN and _END keep it quiet.)
#if defined(__clang__)
#define RANKCAST_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define RANKCAST_INDEPENDENT_BEGIN \
  _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wpass-failed\"")
#define RANKCAST_INDEPENDENT_END _Pragma("clang diagnostic pop")
#else
#define RANKCAST_INDEPENDENT _Pragma("GCC ivdep")
#define RANKCAST_INDEPENDENT_BEGIN
#define RANKCAST_INDEPENDENT_END
#endif

namespace rankcast::inline v0 {

/// The line of user code a collective was called from; printed with every error about the call.
/// (`std::source_location` is missing in clang 14 with libstdc++ 12.)
struct call_site {
  const char* file = "";
  int line = 0;

  static constexpr call_site here(const char* file = __builtin_FILE(),
                                  int line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

}  // namespace rankcast::inline v0
