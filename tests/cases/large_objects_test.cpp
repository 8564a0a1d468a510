// C04: an object above 2 GiB, whose length had become a negative number at the receiver.
#include <fstream>

#include "rankcast/object.hpp"
#include "support/ranks.hpp"

namespace {

using rankcast::communicator;

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RANKCAST_TEST_UNDER_TSAN
#endif
#elif defined(__SANITIZE_THREAD__)
#define RANKCAST_TEST_UNDER_TSAN
#endif

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
#if defined(RANKCAST_TEST_UNDER_TSAN)
constexpr std::uint64_t needed = 5 * 8 * gib;  // it keeps four bytes beside each
#else
constexpr std::uint64_t needed = 8 * gib;
#endif

std::uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::uint64_t kib = 0;
  for (std::string unit; file >> key >> kib; std::getline(file, unit)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

// byte i = i mod 251
std::vector<std::uint8_t> bytes_mod_251(std::size_t n) {
  std::vector<std::uint8_t> block(251 * 1000);
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::uint8_t>(i % 251);
  std::vector<std::uint8_t> bytes;
  bytes.reserve(n);
  while (bytes.size() < n) {
    const auto left = static_cast<std::ptrdiff_t>(std::min(block.size(), n - bytes.size()));
    bytes.insert(bytes.end(), block.begin(), block.begin() + left);
  }
  return bytes;
}

// The first place where they are not, or their number.
std::size_t first_wrong(const std::vector<std::uint8_t>& bytes) {
  std::size_t i = 0;
  for (std::uint8_t wanted = 0; i < bytes.size() && bytes[i] == wanted; ++i) {
    wanted = wanted == 250 ? std::uint8_t{0} : static_cast<std::uint8_t>(wanted + 1);
  }
  return i;
}

TEST(cases, C04_two_gib_and_five_bytes_between_ranks) {
  const std::uint64_t available = available_bytes();
  if (available < needed) {
    GTEST_SKIP() << "needs " << needed / gib << " GiB of memory, " << available / gib
                 << " GiB are available";
  }
  constexpr std::size_t n = 2 * gib + 5;
  support::world_options options;
  options.eager_bytes = 3 * 1024;
  options.chunk_bytes = 1024 * 1024;
  support::run_ranks(
      2,
      [&](communicator& world) {
        std::vector<std::uint8_t> bytes;
        if (world.rank() == 1) bytes = bytes_mod_251(n);
        rankcast::barrier(world);
        support::step("broadcast of 2 GiB");
        rankcast::broadcast_object(world, bytes, {.root = 1});
        ASSERT_EQ(bytes.size(), n);
        EXPECT_EQ(first_wrong(bytes), n);
      },
      options);
}

}  // namespace
