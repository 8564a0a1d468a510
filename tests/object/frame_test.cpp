// The frame of a message with an object: what goes out of band and what must not, what a reader
// refuses, and that nothing is allocated the second time.
#include "rankcast/object/frame.hpp"

#include <boost/serialization/split_member.hpp>

#include "object/delivery.hpp"
#include "object/round_trip.hpp"
#include "support/allocations.hpp"

namespace {

using rankcast::decode_error;
using rankcast::message;
using support::deliver;

constexpr std::size_t bulk_floats = rankcast::out_of_band_bytes / sizeof(float);

std::vector<float> floats(std::size_t n, float first = 0) {
  std::vector<float> v(n);
  for (float& f : v) f = first++;
  return v;
}

struct state {
  std::string name;
  std::map<std::string, std::vector<float>> weights;
  std::vector<std::vector<float>> rows;
  std::unique_ptr<std::vector<float>> extra;
  std::optional<std::variant<int, std::string>> note;
  std::list<std::string> texts;
  rankcast::tensor table;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& name& weights& rows& extra& note& texts& table;
  }
};

state full_state() {
  state s;
  s.name = "state";
  s.weights["small"] = floats(10);
  s.weights["large"] = floats(bulk_floats);
  s.rows = {floats(bulk_floats + 1, 5), floats(3)};
  s.extra = std::make_unique<std::vector<float>>(floats(2 * bulk_floats, 7));
  s.note = std::string(rankcast::out_of_band_bytes, 'n');
  s.texts = {std::string(rankcast::out_of_band_bytes + 3, 't')};
  s.table.resize(rankcast::dtype::int32, {256, 64});
  for (int& i : s.table.values<int>()) i = 3;
  return s;
}

void expect_equal(const state& a, const state& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_TRUE(a.weights == b.weights);
  EXPECT_TRUE(a.rows == b.rows);
  ASSERT_TRUE(a.extra && b.extra);
  EXPECT_TRUE(*a.extra == *b.extra);
  EXPECT_TRUE(a.note == b.note);
  EXPECT_TRUE(a.texts == b.texts);
  EXPECT_EQ(a.table.view().text(), b.table.view().text());
  EXPECT_EQ(std::memcmp(a.table.view().address(), b.table.view().address(), a.table.bytes()), 0);
}

TEST(frame, bulk_data_that_the_object_owns_stay_where_they_are) {
  const state s = full_state();
  message m;
  rankcast::encode_frame(s, m);
  ASSERT_EQ(m.segments.size(), 6u);
  EXPECT_EQ(static_cast<const void*>(m.segments[0].data()), s.weights.at("large").data());
  EXPECT_EQ(static_cast<const void*>(m.segments[1].data()), s.rows[0].data());
  EXPECT_EQ(static_cast<const void*>(m.segments[2].data()), s.extra->data());
  EXPECT_EQ(static_cast<const void*>(m.segments[4].data()), s.texts.front().data());
  EXPECT_EQ(static_cast<const void*>(m.segments[5].data()), s.table.view().address());
  EXPECT_LT(m.header.size(), 1000u);
  state to;
  deliver(m, to);
  expect_equal(s, to);
  deliver(m, to);
  expect_equal(s, to);
}

TEST(frame, an_object_that_is_nothing_but_bulk) {
  const std::vector<float> v = floats(bulk_floats);
  message m;
  rankcast::encode_frame(v, m);
  ASSERT_EQ(m.segments.size(), 1u);
  std::vector<float> to;
  deliver(m, to);
  EXPECT_TRUE(v == to);
  const std::vector<float> less = floats(bulk_floats - 1);
  rankcast::encode_frame(less, m);
  EXPECT_TRUE(m.segments.empty());
  rankcast::decode_frame(to, m.header, nullptr);
  EXPECT_TRUE(less == to);
}

/// Saves what lives no longer than its save(), and looks at what it has loaded while loading.
struct conjurer {
  std::vector<std::vector<float>> rows;
  double sum = 0;
  template <class Archive>
  void save(Archive& ar, unsigned) const {
    const std::vector<std::vector<float>> local = rows;
    const std::vector<float> flat = floats(bulk_floats, 1);
    ar << local << flat;
    const std::unique_ptr<std::vector<float>> owned = std::make_unique<std::vector<float>>(flat);
    ar << owned;
  }
  template <class Archive>
  void load(Archive& ar, unsigned) {
    std::vector<std::vector<float>> temporary;
    ar >> temporary;
    sum = 0;
    for (const auto& row : temporary) {
      for (const float f : row) sum += static_cast<double>(f);
    }
    rows = temporary;
    std::vector<float> flat;
    std::unique_ptr<std::vector<float>> owned;
    ar >> flat >> owned;
    EXPECT_TRUE(flat == floats(bulk_floats, 1));
    EXPECT_TRUE(*owned == flat);
  }
  BOOST_SERIALIZATION_SPLIT_MEMBER()
};

TEST(frame, local_data_of_a_save_are_copied) {
  std::map<int, conjurer> objects;
  objects[1].rows = {std::vector<float>(bulk_floats, 1.0f), floats(2)};
  message m;
  rankcast::encode_frame(objects, m);
  EXPECT_TRUE(m.segments.empty());
  decltype(objects) to;
  deliver(m, to);
  EXPECT_TRUE(to.at(1).rows == objects.at(1).rows);
}

/// Owns what it saves, and loads it into a temporary.
struct onlooker {
  std::vector<float> values;
  float last = 0;
  template <class Archive>
  void save(Archive& ar, unsigned) const {
    ar << values;
  }
  template <class Archive>
  void load(Archive& ar, unsigned) {
    std::vector<float> temporary;
    ar >> temporary;
    last = temporary.empty() ? -1 : temporary.back();
    values = std::move(temporary);
  }
  BOOST_SERIALIZATION_SPLIT_MEMBER()
};

TEST(frame, a_load_sees_its_data_at_once) {
  const std::vector<onlooker> objects{{floats(bulk_floats), 0}, {floats(5), 0}};
  message m;
  rankcast::encode_frame(objects, m);
  EXPECT_EQ(m.segments.size(), 1u);
  std::vector<onlooker> to;
  deliver(m, to);
  ASSERT_EQ(to.size(), 2u);
  EXPECT_TRUE(to[0].values == objects[0].values);
  EXPECT_EQ(to[0].last, static_cast<float>(bulk_floats - 1));
}

TEST(frame, memory_is_reused) {
  const state s = full_state();
  state to;
  message m;
  rankcast::encode_frame(s, m);
  deliver(m, to);
  const auto* node = &*to.weights.find("large");
  const void* places[] = {to.weights["large"].data(), to.rows[0].data(),         to.extra->data(),
                          to.texts.front().data(),    to.table.view().address(), m.header.data()};
  support::delivery segments(m);
  std::size_t allocations = 0;
  {
    const support::allocation_guard guard;
    rankcast::encode_frame(s, m);
    rankcast::decode_frame(to, m.header, &segments);
    allocations = guard.count();
  }
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(node, &*to.weights.find("large"));
  const void* again[] = {to.weights["large"].data(), to.rows[0].data(),         to.extra->data(),
                         to.texts.front().data(),    to.table.view().address(), m.header.data()};
  EXPECT_TRUE(std::equal(std::begin(places), std::end(places), std::begin(again)));
  expect_equal(s, to);
}

TEST(frame, maps_keep_the_nodes_of_keys_in_both) {
  std::map<std::string, std::vector<int>> from{{"b", {1}}, {"c", {2}}, {"e", {3}}};
  std::map<std::string, std::vector<int>> to{{"a", {9}}, {"b", {8, 8}}, {"d", {7}}, {"e", {}}};
  const auto* b = &*to.find("b");
  const auto* e = &*to.find("e");
  const int* data = to["b"].data();
  message m;
  rankcast::encode_frame(from, m);
  deliver(m, to);
  EXPECT_TRUE(from == to);
  EXPECT_EQ(b, &*to.find("b"));
  EXPECT_EQ(e, &*to.find("e"));
  EXPECT_EQ(data, to["b"].data());
}

// --- what is refused -----------------------------------------------------------------------------

template <class F>
void expect_refused(F&& f, const std::string& sentence) {
  try {
    f();
    ADD_FAILURE() << "not refused; expected: " << sentence;
  } catch (const decode_error& e) {
    EXPECT_NE(std::string(e.what()).find(sentence), std::string::npos) << e.what();
  }
}

message sample() {
  static const std::vector<std::vector<float>> rows{floats(bulk_floats), floats(3)};
  message m;
  rankcast::encode_frame(rows, m);
  return m;
}
using sample_type = std::vector<std::vector<float>>;

TEST(frame, every_part_of_the_header_is_checked) {
  const message whole = sample();
  sample_type to;
  deliver(whole, to);
  for (std::size_t n = 0; n < whole.header.size(); ++n) {
    message cut = whole;
    cut.header.resize(n);
    EXPECT_THROW(deliver(cut, to), decode_error) << n;
  }
  for (std::size_t i = 0; i < sizeof(rankcast::frame_header); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      message damaged = whole;
      damaged.header[i] ^= std::byte{1} << bit;
      EXPECT_THROW(deliver(damaged, to), decode_error) << i;
    }
  }
  message longer = whole;
  longer.header.push_back(std::byte{});
  EXPECT_THROW(deliver(longer, to), decode_error);
  longer.header.resize(longer.header.size() + 7);
  EXPECT_THROW(deliver(longer, to), decode_error);
}

TEST(frame, another_type_or_kind_is_named) {
  const message m = sample();
  support::delivery segments(m);
  std::vector<int> other;
  expect_refused([&] { rankcast::decode_frame(other, m.header, &segments); },
                 "another type than " + std::string(rankcast::type_name<std::vector<int>>()));
  sample_type to;
  expect_refused(
      [&] {
        rankcast::decode_frame(to, m.header, &segments, static_cast<rankcast::frame_kind>(9));
      },
      "of kind 1 where kind 9 is expected");
  expect_refused([&] { (void)rankcast::parse_frame({}); }, "0 bytes");
}

TEST(frame, segments_are_those_announced) {
  const message m = sample();
  sample_type to;
  expect_refused([&] { rankcast::decode_frame(to, m.header, nullptr); }, "1 segments");
  support::false_announcement two({rankcast::out_of_band_bytes, 4});
  expect_refused([&] { rankcast::decode_frame(to, m.header, &two); }, "are 2");
  support::false_announcement huge({std::uint64_t{1} << 62});
  expect_refused([&] { rankcast::decode_frame(to, m.header, &huge); }, "other sizes");
}

TEST(frame, an_archive_takes_no_segment_of_another_size) {
  const std::uint64_t mark = std::uint64_t{1} << 63;
  for (const std::uint64_t n : {std::uint64_t{5}, std::uint64_t{1} << 40, std::uint64_t{1} << 61,
                                (std::uint64_t{1} << 61) + 4, ~mark}) {
    const std::vector<std::byte> bytes = support::encoded(n | mark);
    std::vector<float> to;
    expect_refused([&] { rankcast::load_object(to, bytes); }, "none did");
    support::false_announcement sixteen({16});
    rankcast::iarchive in(bytes, &sixteen);
    expect_refused([&] { in.root(to); }, "segment 0 has 16 bytes");
    support::false_announcement none({});
    rankcast::iarchive without(bytes, &none);
    expect_refused([&] { without.root(to); }, "there are only 0");
    EXPECT_LE(to.capacity(), 0u);
  }
  const std::uint64_t huge = std::uint64_t{1} << 60;
  support::false_announcement as_asked({huge * sizeof(float)});
  const auto bytes = support::encoded(huge | mark);
  rankcast::iarchive in(bytes, &as_asked);
  std::vector<float> to;
  expect_refused([&] { in.root(to); }, "more than any memory");
  support::false_announcement spare({16, 16});
  const auto four = support::encoded(std::uint64_t{4} | mark);
  rankcast::iarchive one(four, &spare);
  expect_refused([&] { one.root(to); }, "1 segments have not been asked for");
}

TEST(frame, bools_out_of_band_are_checked_too) {
  rankcast::tensor t(rankcast::dtype::boolean, {1 << 16});
  std::memset(t.view().address(), 1, t.bytes());
  message m;
  rankcast::encode_frame(t, m);
  ASSERT_EQ(m.segments.size(), 1u);
  rankcast::tensor to;
  deliver(m, to);
  std::memset(t.view().address(), 2, 1);
  expect_refused([&] { deliver(m, to); }, "neither 0 nor 1");
}

TEST(frame, type_names) {
  EXPECT_EQ(rankcast::type_name<int>(), "int");
  EXPECT_EQ(rankcast::type_name<std::vector<int>>(), "std::vector<int>");
  constexpr auto a = rankcast::message_type_of<std::vector<int>>();
  constexpr auto b = rankcast::message_type_of<std::vector<unsigned>>();
  static_assert(a.hash != 0 && a.hash != b.hash);
  EXPECT_EQ(a.name, "std::vector<int>");
}

}  // namespace
