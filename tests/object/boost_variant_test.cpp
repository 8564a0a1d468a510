// boost::variant, also of variants, without Boost's library.
#include "rankcast/object/codecs/boost_variant.hpp"

#include <boost/variant/recursive_variant.hpp>

#include "object/round_trip.hpp"

namespace {

using support::round_trip;

using value = boost::variant<int, std::string, std::vector<double>>;
using json =
    boost::make_recursive_variant<double, std::string, std::vector<boost::recursive_variant_>,
                                  std::map<std::string, boost::recursive_variant_>>::type;

TEST(boost_variant, plain) {
  round_trip(std::vector<value>{value(3), value("text"), value(std::vector<double>{1, 2})});
}

TEST(boost_variant, recursive) {
  std::map<std::string, json> object;
  object["list"] = std::vector<json>{json(1.5), json("two"), json(std::vector<json>{json(3.0)})};
  object["name"] = "x";
  round_trip(std::vector<json>{json(object), json(2.0)});
}

TEST(boost_variant, depth_and_alternatives_are_checked) {
  json deep(1.0);
  for (int i = 0; i < rankcast::max_object_depth + 1; ++i) deep = std::vector<json>{deep};
  EXPECT_THROW((void)support::encoded(deep), rankcast::usage_error);

  std::vector<std::uint32_t> link{2, 1, 0};  // a vector of one
  std::vector<std::uint32_t> chain;
  for (int i = 0; i < 100000; ++i) chain.insert(chain.end(), link.begin(), link.end());
  json to;
  EXPECT_THROW(rankcast::load_object(to, std::as_bytes(std::span(chain))), rankcast::decode_error);
  EXPECT_THROW(rankcast::load_object(to, support::encoded(std::uint32_t{255})),
               rankcast::decode_error);
}

}  // namespace
