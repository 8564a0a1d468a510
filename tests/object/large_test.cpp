// Sizes beyond 31 and 32 bits: on the wire they have 64.
#include <unistd.h>

#include "object/delivery.hpp"
#include "object/round_trip.hpp"

namespace {

constexpr std::uint64_t two_gib = std::uint64_t{1} << 31;

TEST(C04_large_objects, the_size_alone) {
  for (const std::uint64_t n : {two_gib - 1, two_gib, 2 * two_gib, 2 * two_gib + 7}) {
    // As the encoder writes it, in the archive and in the frame:
    rankcast::oarchive out;
    out.count(static_cast<std::size_t>(n));
    ASSERT_EQ(out.size(), 8u);
    std::uint64_t written = 0;
    std::memcpy(&written, out.bytes().data(), 8);
    EXPECT_EQ(written, n);
    rankcast::frame_header h;
    h.segments = 1;
    h.segment_bytes = n;
    h.checksum = rankcast::detail::frame_checksum(h, std::as_bytes(std::span(&n, 1)));
    std::vector<std::byte> frame = support::encoded(std::array<std::uint64_t, 7>{});
    std::memcpy(frame.data(), &h, sizeof h);
    std::memcpy(frame.data() + sizeof h, &n, sizeof n);
    EXPECT_EQ(rankcast::parse_frame(frame).header.segment_bytes, n);
    EXPECT_EQ(rankcast::parse_frame(frame).segment_bytes(0), n);

    // As the decoder takes it: too much for these bytes, and said so with the number unchanged ...
    std::vector<char> to;
    try {
      rankcast::load_object(to, out.bytes());
      ADD_FAILURE() << n;
    } catch (const rankcast::decode_error& e) {
      EXPECT_NE(std::string(e.what()).find("a count of " + std::to_string(n) + " elements"),
                std::string::npos)
          << e.what();
    }
    // ... and what is asked of the segment is compared in 64 bits.
    const auto marked = support::encoded(n | (std::uint64_t{1} << 63));
    support::false_announcement less({n & 0xffffffffu});
    rankcast::iarchive in(marked, &less);
    if ((n & 0xffffffffu) != n) {
      EXPECT_THROW(in.root(to), rankcast::decode_error);
    }
    support::false_announcement same({n});
    rankcast::iarchive asking(marked, &same);
    const rankcast::iarchive::extent extent = asking.bulk<std::byte>();
    EXPECT_EQ(extent.elements, n);
    EXPECT_TRUE(extent.apart);
  }
}

std::uint64_t free_bytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST(C04_large_objects, two_gib_and_five_bytes) {
  if (free_bytes() < 3 * two_gib) GTEST_SKIP() << "needs 6 GiB of free memory";
  constexpr std::size_t n = two_gib + 5;
  std::vector<std::uint8_t> block(251 * 1000);
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::uint8_t>(i % 251);
  std::vector<std::uint8_t> bytes;  // byte i = i mod 251
  bytes.reserve(n);
  while (bytes.size() < n) {
    const auto left = static_cast<std::ptrdiff_t>(std::min(block.size(), n - bytes.size()));
    bytes.insert(bytes.end(), block.begin(), block.begin() + left);
  }
  rankcast::message m;
  rankcast::encode_frame(bytes, m);
  ASSERT_EQ(m.segments.size(), 1u);
  EXPECT_EQ(m.segments[0].size(), n);
  EXPECT_EQ(static_cast<const void*>(m.segments[0].data()), bytes.data());
  std::vector<std::uint8_t> to;
  support::deliver(m, to);
  ASSERT_EQ(to.size(), n);
  EXPECT_EQ(to.back(), (n - 1) % 251);
  EXPECT_EQ(std::memcmp(to.data(), bytes.data(), n), 0);
}

}  // namespace
