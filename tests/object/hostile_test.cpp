// Bytes from somebody who means harm: every error says what and where, nothing is allocated beyond
// 16 times what has arrived, and nothing but data comes of it.
#include <random>

#include "object/delivery.hpp"
#include "object/everything.hpp"
#include "object/round_trip.hpp"
#include "support/allocations.hpp"

namespace {

using rankcast::decode_error;
using support::encoded;
using support::everything;

constexpr std::size_t little = 1024;  // what an error's own words may take

template <class T>
void expect_refused_cheaply(const std::vector<std::byte>& bytes, const char* what) {
  T object{};
  std::string message;
  const support::allocation_guard guard;
  try {
    rankcast::load_object(object, bytes);
  } catch (const decode_error& e) {
    const std::size_t largest = guard.largest();
    const std::size_t in_all = guard.in_all();
    EXPECT_LE(largest, 16 * bytes.size() + little) << what << rankcast::type_name<T>();
    EXPECT_LE(in_all, 32 * bytes.size() + 2 * little) << what << rankcast::type_name<T>();
    message = e.what();
  }
  EXPECT_NE(message.find("at byte "), std::string::npos)
      << what << rankcast::type_name<T>() << " gave '" << message << "'";
}

/// A count, and ten bytes.
std::vector<std::byte> forged(std::uint64_t count) {
  auto bytes = encoded(count);
  bytes.resize(bytes.size() + 10);
  return bytes;
}

template <class... T>
void expect_counts_refused() {
  const std::uint64_t one = 1;
  for (const std::uint64_t count :
       {one << 4, one << 32, one << 40, one << 60, one << 61, (one << 61) + 1, one << 63,
        (one << 63) + 1, ~std::uint64_t{0}}) {
    (expect_refused_cheaply<T>(forged(count), "a forged count of "), ...);
  }
}

TEST(C68_hostile_objects, forged_counts) {
  using support::empty;
  using support::leaf;
  expect_counts_refused<std::string, std::wstring, std::vector<char>, std::vector<double>,
                        std::vector<std::string>, std::vector<leaf>, std::vector<empty>,
                        std::vector<std::array<double, 100>>>();
  expect_counts_refused<std::deque<int>, std::list<std::string>, std::forward_list<int>,
                        std::deque<leaf>, std::vector<std::vector<std::vector<int>>>>();
  expect_counts_refused<std::map<int, int>, std::map<std::string, std::vector<int>>,
                        std::multimap<char, char>, std::set<char>, std::multiset<std::string>>();
  expect_counts_refused<std::unordered_map<char, char>, std::unordered_set<std::string>,
                        std::unordered_multimap<int, leaf>, std::map<int, leaf>>();
}

TEST(C68_hostile_objects, forged_counts_of_bits) {
  const std::uint64_t one = 1;
  for (const std::uint64_t count : {one << 7, one << 40, one << 60, one << 61, ~std::uint64_t{0}}) {
    expect_refused_cheaply<std::vector<bool>>(forged(count), "a forged count of bits: ");
  }
}

TEST(C68_hostile_objects, a_string_of_length_minus_one) {
  expect_refused_cheaply<std::string>(encoded(std::int64_t{-1}), "-1: ");
  expect_refused_cheaply<std::u32string>(encoded(std::int64_t{-1}), "-1: ");
}

TEST(C68_hostile_objects, tag_255) {
  using either = std::variant<int, std::string>;
  expect_refused_cheaply<either>(encoded(std::uint8_t{255}), "tag 255: ");
  expect_refused_cheaply<std::vector<either>>(encoded(std::vector<std::uint8_t>{255, 0, 0}),
                                              "tag 255: ");
  for (const std::uint8_t n : {std::uint8_t{2}, std::uint8_t{255}}) {
    expect_refused_cheaply<std::optional<int>>(encoded(n), "optional: ");
    expect_refused_cheaply<std::unique_ptr<int>>(encoded(n), "unique_ptr: ");
    expect_refused_cheaply<bool>(encoded(n), "bool: ");
    expect_refused_cheaply<std::vector<std::array<bool, 1>>>(encoded(std::vector{n}), "bools: ");
    expect_refused_cheaply<std::bitset<1>>(encoded(n), "bits: ");
  }
}

TEST(C68_hostile_objects, nested_100000_deep) {
  // branch: a count of kids (one), and so on
  std::vector<std::uint64_t> kids(100000, 1);
  expect_refused_cheaply<support::branch>(encoded(kids), "kids: ");
  std::vector<std::byte> chain;  // no kids, but a next
  for (int i = 0; i < 100000; ++i) {
    chain.resize(chain.size() + 8);
    chain.push_back(std::byte{1});
  }
  expect_refused_cheaply<support::branch>(chain, "chain: ");
}

TEST(C68_hostile_objects, forged_tensors) {
  using rankcast::dtype;
  rankcast::tensor t(dtype::float32, {2, 2});
  const auto bytes = encoded(t);
  const auto with = [&bytes](std::size_t at, auto value) {
    auto changed = bytes;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return changed;
  };
  expect_refused_cheaply<rankcast::tensor>(with(0, std::uint8_t{14}), "dtype 14: ");
  expect_refused_cheaply<rankcast::tensor>(with(0, std::uint8_t{255}), "dtype 255: ");
  expect_refused_cheaply<rankcast::tensor>(with(0, std::uint8_t{0}), "larger dtype: ");
  expect_refused_cheaply<rankcast::tensor>(with(1, std::uint8_t{9}), "9 dimensions: ");
  for (const std::int64_t n : {std::int64_t{-1}, std::int64_t{1} << 40, std::int64_t{1} << 62,
                               std::numeric_limits<std::int64_t>::min(), std::int64_t{3}}) {
    expect_refused_cheaply<rankcast::tensor>(with(2, n), "extent: ");
    expect_refused_cheaply<rankcast::tensor>(with(10, n), "extent: ");
    expect_refused_cheaply<rankcast::tensor>(with(18, n), "bytes: ");
  }
}

TEST(C68_hostile_objects, truncated_at_each_byte_and_trailing) {
  const auto bytes = encoded(support::sample_of_everything());
  everything object;
  rankcast::load_object(object, bytes);
  EXPECT_TRUE(encoded(object) == bytes);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    expect_refused_cheaply<everything>(
        {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)}, "truncated: ");
  }
  auto longer = bytes;
  longer.push_back(std::byte{});
  expect_refused_cheaply<everything>(longer, "trailing: ");
}

TEST(C68_hostile_objects, keys_out_of_order_or_twice) {
  using pairs = std::vector<std::pair<int, int>>;
  for (const pairs& bad :
       {pairs{{2, 0}, {1, 0}}, pairs{{1, 0}, {1, 0}}, pairs{{1, 0}, {3, 0}, {2, 0}}}) {
    const auto bytes = encoded(bad);
    // pair and map elements are written alike; pairs are not bitwise, so neither are these
    expect_refused_cheaply<std::map<int, int>>(bytes, "keys: ");
  }
  std::map<int, int> old{{1, 1}, {2, 2}, {3, 3}};
  EXPECT_THROW(rankcast::load_object(old, encoded(pairs{{3, 0}, {1, 0}})), decode_error);
  using ints = std::vector<int>;
  expect_refused_cheaply<std::set<int>>(encoded(ints{2, 2}), "set: ");
  expect_refused_cheaply<std::unordered_set<int>>(encoded(ints{2, 2}), "unordered_set: ");
}

TEST(C68_hostile_objects, mutations_are_refused_or_are_data) {
  const auto whole = encoded(support::sample_of_everything());
  std::mt19937_64 random(20240611);
  const auto below = [&random](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::uint64_t telling[] = {0,
                                   1,
                                   2,
                                   16,
                                   255,
                                   1u << 31,
                                   std::uint64_t{1} << 40,
                                   std::uint64_t{1} << 61,
                                   std::uint64_t{1} << 63,
                                   ~std::uint64_t{0}};
  int taken = 0;
  everything reused;
  for (int i = 0; i < 40000; ++i) {
    auto bytes = whole;
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      const std::size_t at = below(bytes.size());
      switch (below(5)) {
        case 0: bytes[at] ^= std::byte{1} << below(8); break;
        case 1: bytes[at] = static_cast<std::byte>(below(256)); break;
        case 2: {
          const std::uint64_t number = telling[below(std::size(telling))];
          std::memcpy(bytes.data() + at, &number, std::min<std::size_t>(8, bytes.size() - at));
          break;
        }
        case 3: bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at)); break;
        default: bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), std::byte{1}); break;
      }
    }
    const support::allocation_guard guard;
    try {
      rankcast::load_object(reused, bytes);
      ++taken;
    } catch (const decode_error&) {
    }
    ASSERT_LE(guard.largest(), 16 * bytes.size() + little) << i;
    if (i % 16 == 0) rankcast::load_object(reused, whole);
  }
  EXPECT_GT(taken, 1000) << "the mutations are too coarse to test much";
  rankcast::load_object(reused, whole);
  EXPECT_TRUE(encoded(reused).size() == whole.size());
}

TEST(C68_hostile_objects, mutated_frames) {
  const std::vector<std::vector<float>> rows{std::vector<float>(20000, 1.5f), {1, 2}};
  rankcast::message whole;
  rankcast::encode_frame(rows, whole);
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    rankcast::message m = whole;
    const std::size_t at = random() % m.header.size();
    m.header[at] = static_cast<std::byte>(random());
    const bool same = m.header == whole.header;
    std::vector<std::vector<float>> to;
    try {
      support::deliver(m, to);
      EXPECT_TRUE(same || at >= sizeof(rankcast::frame_header)) << at;
    } catch (const decode_error&) {
      EXPECT_FALSE(same);
    }
  }
}

}  // namespace
