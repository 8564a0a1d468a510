// tracked(x): what is shared stays shared, cycles close, classes keep their kind.
#include "rankcast/object/tracked.hpp"

#include <boost/serialization/base_object.hpp>
#include <boost/serialization/export.hpp>
#include <boost/serialization/map.hpp>
#include <boost/serialization/shared_ptr.hpp>
#include <boost/serialization/string.hpp>
#include <boost/serialization/vector.hpp>
#include <boost/serialization/weak_ptr.hpp>

#include "object/delivery.hpp"
#include "object/round_trip.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace zoo {

struct animal {
  virtual ~animal() = default;
  int legs = 0;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& legs;
  }
};
struct dog : animal {
  std::string name;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& boost::serialization::base_object<animal>(*this);
    ar& name;
  }
};
struct stranger : animal {  // not exported
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& boost::serialization::base_object<animal>(*this);
  }
};

struct word {
  std::string text;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& text;
  }
};

struct person {
  std::string name;
  std::shared_ptr<person> friend_;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& name& friend_;
  }
};

/// Mostly plain, with one member that needs tracking.
struct cage {
  std::vector<float> sizes;
  std::shared_ptr<animal> first, second;
  std::string label;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& sizes& rankcast::tracked(first) & rankcast::tracked(second) & label;
  }
};

}  // namespace zoo

BOOST_CLASS_EXPORT(zoo::dog)

namespace {

using rankcast::tracked;
using support::encoded;

std::shared_ptr<zoo::animal> rex() {
  auto dog = std::make_shared<zoo::dog>();
  dog->legs = 4;
  dog->name = "rex";
  return dog;
}

TEST(tracked, shared_ownership) {
  std::vector<std::shared_ptr<zoo::word>> from(3, std::make_shared<zoo::word>(zoo::word{"once"}));
  from.push_back(nullptr);
  decltype(from) to;
  auto into = tracked(to);
  rankcast::load_object(into, encoded(tracked(std::as_const(from))));
  ASSERT_EQ(to.size(), 4u);
  EXPECT_EQ(to[0]->text, "once");
  EXPECT_EQ(to[0], to[2]);
  EXPECT_EQ(to[0].use_count(), 3);
  EXPECT_EQ(to[3], nullptr);
}

TEST(tracked, cycles) {
  auto a = std::make_shared<zoo::person>();
  auto b = std::make_shared<zoo::person>();
  a->name = "a";
  b->name = "b";
  a->friend_ = b;
  b->friend_ = a;
  std::shared_ptr<zoo::person> to;
  auto into = tracked(to);
  rankcast::load_object(into, encoded(tracked(a)));
  ASSERT_NE(to, nullptr);
  EXPECT_EQ(to->friend_->name, "b");
  EXPECT_EQ(to->friend_->friend_, to);
  for (const auto& p : {a, to}) p->friend_->friend_ = nullptr;
}

TEST(tracked, exported_classes_keep_their_kind) {
  const auto from = rex();
  std::shared_ptr<zoo::animal> to;
  auto into = tracked(to);
  rankcast::load_object(into, encoded(tracked(from)));
  const auto* dog = dynamic_cast<zoo::dog*>(to.get());
  ASSERT_NE(dog, nullptr);
  EXPECT_EQ(dog->name, "rex");
  EXPECT_EQ(dog->legs, 4);
}

TEST(tracked, as_a_member_and_in_a_frame) {
  zoo::cage from;
  from.sizes.assign(rankcast::out_of_band_bytes, 2.0f);
  from.first = from.second = rex();
  from.label = "cage";
  rankcast::message m;
  rankcast::encode_frame(from, m);
  EXPECT_EQ(m.segments.size(), 1u);
  zoo::cage to;
  support::deliver(m, to);
  EXPECT_TRUE(to.sizes == from.sizes);
  EXPECT_EQ(to.label, "cage");
  ASSERT_NE(dynamic_cast<zoo::dog*>(to.second.get()), nullptr);

  zoo::cage whole;  // the same serialize() within Boost's archive: there both are one dog
  auto into = tracked(whole);
  rankcast::encode_frame(tracked(std::as_const(from)), m);
  const auto constant = tracked(whole);
  support::deliver(m, into);
  support::deliver(m, constant);
  EXPECT_EQ(whole.first, whole.second);
  EXPECT_EQ(whole.label, "cage");
}

TEST(tracked, boosts_errors_become_ours) {
  const std::shared_ptr<zoo::animal> unknown = std::make_shared<zoo::stranger>();
  EXPECT_THROW((void)encoded(tracked(unknown)), rankcast::usage_error);

  const std::vector<std::shared_ptr<zoo::word>> from(
      2, std::make_shared<zoo::word>(zoo::word{"text"}));
  const auto bytes = encoded(tracked(from));
  std::vector<std::shared_ptr<zoo::word>> to;
  auto into = tracked(to);
#ifdef __SANITIZE_ADDRESS__
  const __lsan::ScopedDisabler boost_loses_the_object_it_was_reading;
#endif
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    auto cut = bytes;
    cut.resize(n);
    EXPECT_THROW(rankcast::load_object(into, cut), rankcast::decode_error);
    if (n >= 8) {  // shorter, but consistently so
      const std::uint64_t inner = n - 8;
      std::memcpy(cut.data(), &inner, sizeof inner);
      EXPECT_THROW(rankcast::load_object(into, cut), rankcast::decode_error);
    }
  }
  auto longer = bytes;
  longer.push_back(std::byte{});
  EXPECT_THROW(rankcast::load_object(into, longer), rankcast::decode_error);
  const std::uint64_t inner = longer.size() - 8;
  std::memcpy(longer.data(), &inner, sizeof inner);
  EXPECT_THROW(rankcast::load_object(into, longer), rankcast::decode_error);
}

}  // namespace
