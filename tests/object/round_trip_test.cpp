// Every type of the standard library's that has a codec, to bytes and back.
#include "object/round_trip.hpp"

#include <boost/array.hpp>
#include <boost/optional.hpp>
#include <boost/serialization/boost_array.hpp>
#include <boost/serialization/boost_unordered_map.hpp>
#include <boost/serialization/optional.hpp>
#include <boost/serialization/valarray.hpp>
#include <boost/unordered_map.hpp>

#include <limits>

namespace {

using namespace std::string_literals;
using namespace std::chrono_literals;
using support::round_trip;

enum class colour : std::int8_t { red = -1, blue = 100 };
enum class flag : bool { off, on };

TEST(round_trip, numbers) {
  round_trip<std::int8_t>(-3);
  round_trip<std::uint64_t>(std::numeric_limits<std::uint64_t>::max());
  round_trip('x');
  round_trip(L'\x1234');
  round_trip(1.5f);
  round_trip(-2.25);
  round_trip(3.0L);
  round_trip(true);
  round_trip(colour::blue);
  round_trip(flag::on);
  round_trip(std::byte{200});
  round_trip(std::complex<double>(1, -1));
  round_trip(1234567ns);
  round_trip(std::chrono::duration<float>(2.5f));
  round_trip(std::chrono::system_clock::time_point(77s));
  round_trip(rankcast::bfloat16(1.5f));
  round_trip(rankcast::float16(-0.5f));
}

TEST(round_trip, strings) {
  round_trip(std::vector<std::string>{"", "short", std::string(1000, 'x'), "zero\0inside"s});
  round_trip(std::vector<std::wstring>{L"", L"wide", std::wstring(100, L'w')});
  round_trip(u"sixteen"s);
  round_trip(u8"eight"s);
}

TEST(round_trip, rows) {
  round_trip(std::vector<std::vector<int>>{{}, {1}, {1, 2, 3}, std::vector<int>(300, 7)});
  round_trip(std::vector<std::vector<std::string>>{{}, {"a"}, {"b", "c", std::string(99, 'd')}});
  round_trip(std::vector<std::vector<bool>>{
      {}, {true}, std::vector<bool>(8, true), {0, 1, 0, 1, 1, 0, 1, 1, 1}});
  round_trip(std::vector<std::array<float, 3>>{{1, 2, 3}, {4, 5, 6}});
  round_trip(std::array<bool, 5>{true, false, true});
  round_trip(std::array<std::string, 2>{"p", "q"});
  round_trip(std::array<int, 0>{});
  round_trip(std::vector<std::array<std::string, 0>>(3));
  round_trip(std::vector<std::deque<int>>{{}, {1, 2}, std::deque<int>(1000, 5)});
  round_trip(std::vector<std::list<std::string>>{{}, {"a"}, {"b", "c", "d"}});
  round_trip(std::vector<std::forward_list<int>>{{}, {1}, {2, 3, 4}});
  round_trip(std::vector<std::deque<bool>>{{true}, {false, true}});
  round_trip(std::bitset<0>());
  round_trip(std::bitset<8>(0xa5));
  round_trip(std::bitset<77>("1011101"));
}

TEST(round_trip, arrays_of_c) {
  struct {
    int numbers[2][3] = {{1, 2, 3}, {4, 5, 6}};
    std::string words[2] = {"a", "b"};
    bool flags[2] = {true, false};
  } from, to{{}, {}, {}};
  std::vector<std::byte> bytes;
  rankcast::oarchive out(bytes);
  out << from.numbers << from.words << from.flags;
  out.finish();
  rankcast::iarchive in(bytes);
  in >> to.numbers >> to.words >> to.flags;
  in.finish();
  EXPECT_EQ(to.numbers[1][2], 6);
  EXPECT_EQ(to.words[1], "b");
  EXPECT_TRUE(to.flags[0]);
}

TEST(round_trip, maps_and_sets) {
  using names = std::map<std::string, std::vector<float>>;
  round_trip(std::vector<names>{
      {}, {{"a", {1}}, {"c", {2, 3}}}, {{"b", {}}}, {{"a", {4}}, {"b", {5}}, {"d", {6}}}});
  round_trip(std::vector<std::map<int, bool>>{
      {}, {{1, true}, {3, false}}, {{2, true}, {3, true}, {9, true}}});
  round_trip(
      std::vector<std::map<double, int, std::greater<>>>{{{1, 1}, {2, 2}}, {{3, 3}, {1, 5}}});
  round_trip(std::vector<std::multimap<int, std::string>>{{{1, "a"}, {1, "b"}, {0, "c"}}, {}});
  round_trip(std::vector<std::set<std::string>>{{}, {"a", "c"}, {"b", "c", "d"}});
  round_trip(
      std::vector<std::set<std::pair<int, std::string>>>{{}, {{1, "a"}}, {{0, "b"}, {1, "a"}}});
  round_trip(std::multiset<int>{3, 3, 1});
  round_trip(std::unordered_map<std::string, int>{{"a", 1}, {"b", 2}});
  round_trip(std::unordered_multimap<int, int>{{1, 1}, {1, 2}});
  round_trip(std::unordered_set<std::string>{"x", "y"});
  round_trip(std::unordered_multiset<int>{1, 1, 2});
  std::unordered_map<int, int> roomy{{1, 2}};
  roomy.reserve(100000);  // its buckets are not elements
  round_trip(roomy);
}

TEST(round_trip, sums_and_products) {
  round_trip(std::pair<int, std::string>(1, "one"));
  round_trip(std::tuple<int, std::string, double>(1, "two", 3.0));
  round_trip(std::tuple<>());
  round_trip(std::vector<std::optional<std::string>>{std::nullopt, "there", ""});
  using either = std::variant<std::monostate, int, std::string, std::vector<int>>;
  round_trip(
      std::vector<either>{either(), either(5), either("text"), either(std::vector<int>{1, 2})});
}

TEST(round_trip, unique_ptr) {
  using chain = std::unique_ptr<std::pair<std::string, std::unique_ptr<int>>>;
  const auto link = [](std::string s, int i) {
    return std::make_unique<chain::element_type>(std::move(s), std::make_unique<int>(i));
  };
  const chain full = link("a", 1);
  const auto bytes = support::encoded(full);
  for (const bool used : {false, true}) {
    chain to = used ? link("b", 2) : nullptr;
    rankcast::load_object(to, bytes);
    ASSERT_NE(to, nullptr);
    EXPECT_EQ(to->first, "a");
    ASSERT_NE(to->second, nullptr);
    EXPECT_EQ(*to->second, 1);
    rankcast::load_object(to, support::encoded(chain()));
    EXPECT_EQ(to, nullptr);
  }
  support::expect_only_whole<chain>(bytes);
}

TEST(round_trip, tensors) {
  using rankcast::dtype;
  using rankcast::tensor;
  tensor t(dtype::float32, {3, 4});
  float v = 0;
  for (float& f : t.values<float>()) f = v++;
  const auto bytes = support::encoded(t);
  tensor u(dtype::int8, {100});
  const auto* memory = u.view().address();
  rankcast::load_object(u, bytes);
  EXPECT_EQ(u.view().text(), "float32 (3,4)");
  EXPECT_EQ((u.at<float>(2, 3)), 11.0f);
  EXPECT_EQ(u.view().address(), memory) << "48 of 100 bytes need no other memory";
  support::expect_only_whole<tensor>(bytes);
  for (const auto& shape :
       {std::vector<std::int64_t>{}, {0}, {2, 0, 3}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    const tensor empty(dtype::bfloat16, shape);
    if (empty.bytes() != 0)
      std::memset(const_cast<std::byte*>(empty.view().address()), 1, empty.bytes());
    rankcast::load_object(u, support::encoded(empty));
    EXPECT_EQ(u.view().text(), empty.view().text());
  }
  tensor flags(dtype::boolean, {2});
  flags.at<bool>(0) = true;
  flags.at<bool>(1) = false;
  auto forged = support::encoded(flags);
  rankcast::load_object(u, forged);
  EXPECT_TRUE(u.at<bool>(0));
  forged.back() = std::byte{2};
  EXPECT_THROW(rankcast::load_object(u, forged), rankcast::decode_error);
}

TEST(round_trip, types_of_boost_through_its_own_headers) {
  round_trip(boost::unordered_map<int, std::string>{{1, "a"}, {2, "b"}});
  round_trip(std::vector<boost::optional<int>>{boost::none, 5});
  round_trip(boost::array<int, 3>{{1, 2, 3}});
  const std::valarray<double> from{1, 2, 3};
  std::valarray<double> to;
  rankcast::load_object(to, support::encoded(from));
  ASSERT_EQ(to.size(), 3u);
  EXPECT_EQ(to[2], 3);
}

}  // namespace
