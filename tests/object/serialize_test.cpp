// Classes with a Boost serialize() of every kind run on rankcast's archives unchanged.
#include <boost/serialization/base_object.hpp>
#include <boost/serialization/binary_object.hpp>
#include <boost/serialization/split_free.hpp>
#include <boost/serialization/split_member.hpp>
#include <boost/serialization/version.hpp>

#include "object/round_trip.hpp"

namespace shapes {

/// Private, through Boost's friend.
class hidden {
 public:
  hidden() = default;
  explicit hidden(int n) : n_(n), v_(static_cast<std::size_t>(n), 1.5) {}
  bool operator==(const hidden&) const = default;

 private:
  friend class boost::serialization::access;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& n_& v_;
  }
  int n_ = 0;
  std::vector<double> v_;
};

struct open_final final {
  int n = 0;
  bool operator==(const open_final&) const = default;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& n;
  }
};

/// A free function beside the class ...
struct free_here {
  std::string s;
  bool operator==(const free_here&) const = default;
};
template <class Archive>
void serialize(Archive& ar, free_here& f, unsigned) {
  ar& boost::serialization::make_nvp("s", f.s);
}

/// ... and in Boost's namespace, below.
template <class T>
struct free_there {
  T a{}, b{};
  bool operator==(const free_there&) const = default;
};

/// Members of its own for each direction.
struct split {
  std::vector<int> kept;
  int derived = 0;
  bool operator==(const split&) const = default;
  template <class Archive>
  void save(Archive& ar, unsigned) const {
    ar << kept;
  }
  template <class Archive>
  void load(Archive& ar, unsigned) {
    ar >> kept;
    derived = static_cast<int>(kept.size());
  }
  BOOST_SERIALIZATION_SPLIT_MEMBER()
};

struct split_outside {
  int n = 0;
  bool operator==(const split_outside&) const = default;
};

struct versioned {
  unsigned seen = 0;
  int n = 0;
  bool operator==(const versioned& o) const { return n == o.n; }
  template <class Archive>
  void serialize(Archive& ar, unsigned version) {
    seen = version;
    ar& n;
  }
};

struct base {
  int b = 0;
  bool operator==(const base&) const = default;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& b;
  }
};
struct derived : base {
  std::string d;
  bool operator==(const derived&) const = default;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& boost::serialization::base_object<base>(*this);
    ar& BOOST_SERIALIZATION_NVP(d);
  }
};

struct with_arrays {
  double numbers[3] = {};
  std::string words[2];
  std::uint32_t raw[4] = {};
  bool operator==(const with_arrays& o) const {
    return std::equal(numbers, numbers + 3, o.numbers) && std::equal(words, words + 2, o.words) &&
           std::equal(raw, raw + 4, o.raw);
  }
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& boost::serialization::make_array(numbers, 3);
    ar& boost::serialization::make_array(words, 2);
    ar& boost::serialization::make_binary_object(raw, sizeof raw);
  }
};

/// Bytes by declaration.
struct pixel {
  float r = 0, g = 0, b = 0;
  bool operator==(const pixel&) const = default;
};
struct token {
  int id = 0;
  bool operator==(const token&) const = default;
};

/// No default constructor: begins with what save_construct_data wrote.
class account {
 public:
  explicit account(std::string name) : name_(std::move(name)) {}
  bool operator==(const account&) const = default;
  const std::string& name() const { return name_; }
  int balance = 0;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& balance;
  }

 private:
  std::string name_;
};
template <class Archive>
void save_construct_data(Archive& ar, const account* a, unsigned) {
  ar << a->name();
}
template <class Archive>
void load_construct_data(Archive& ar, account* a, unsigned) {
  std::string name;
  ar >> name;
  ::new (static_cast<void*>(a)) account(std::move(name));
}

/// Takes no bytes at all.
struct nothing {
  bool operator==(const nothing&) const = default;
  template <class Archive>
  void serialize(Archive&, unsigned) {}
};

/// Nests in itself.
struct tree {
  int value = 0;
  std::vector<tree> kids;
  std::map<std::string, tree> named;
  std::unique_ptr<tree> left;
  bool operator==(const tree& o) const {
    return value == o.value && kids == o.kids && named == o.named && !left == !o.left &&
           (!left || *left == *o.left);
  }
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& value& kids& named& left;
  }
};

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
    ar& static_cast<animal&>(*this);
    ar& name;
  }
};

/// A codec of its own wins over its serialize().
struct both_ways {
  int n = 0;
  bool operator==(const both_ways&) const = default;
  template <class Archive>
  void serialize(Archive&, unsigned) {
    throw std::logic_error("the codec was not asked");
  }
};

/// What serialize() is called with, and what has none.
struct plain_struct {
  int* p = nullptr;
};
struct derived_from_vector : std::vector<int> {};

}  // namespace shapes

namespace boost::serialization {

template <class Archive, class T>
void serialize(Archive& ar, shapes::free_there<T>& f, unsigned) {
  ar& f.a& f.b;
}
template <class Archive>
void save(Archive& ar, const shapes::split_outside& s, unsigned) {
  const int twice = 2 * s.n;
  ar << twice;
}
template <class Archive>
void load(Archive& ar, shapes::split_outside& s, unsigned) {
  int twice = 0;
  ar >> twice;
  s.n = twice / 2;
}

}  // namespace boost::serialization

BOOST_SERIALIZATION_SPLIT_FREE(shapes::split_outside)
BOOST_CLASS_VERSION(shapes::versioned, 7)
BOOST_IS_BITWISE_SERIALIZABLE(shapes::pixel)
BOOST_CLASS_IMPLEMENTATION(shapes::token, boost::serialization::primitive_type)

template <>
struct rankcast::codec<shapes::both_ways> {
  static void save(oarchive& out, const shapes::both_ways& b) { out << b.n; }
  static void load(iarchive& in, shapes::both_ways& b) { in >> b.n; }
};

namespace {

using support::encoded;
using support::round_trip;

TEST(serialize, is_found_wherever_it_is) {
  round_trip(shapes::hidden(3));
  round_trip(shapes::open_final{4});
  round_trip(shapes::free_here{"free"});
  round_trip(shapes::free_there<std::string>{"a", "b"});
  round_trip(shapes::split{{1, 2, 3}, 3});
  round_trip(shapes::split_outside{21});
  round_trip(shapes::both_ways{8});
  EXPECT_TRUE(rankcast::has_serialize<shapes::hidden>);
  EXPECT_TRUE(rankcast::has_serialize<shapes::free_there<int>>);
  EXPECT_FALSE(rankcast::has_serialize<shapes::plain_struct>);
  EXPECT_FALSE(rankcast::has_serialize<shapes::derived_from_vector>);
}

TEST(serialize, version_is_the_macros_and_takes_no_bytes) {
  const auto bytes = encoded(shapes::versioned{0, 5});
  EXPECT_EQ(bytes.size(), sizeof(int));
  shapes::versioned to;
  rankcast::load_object(to, bytes);
  EXPECT_EQ(to.seen, 7u);
  EXPECT_EQ(to.n, 5);
}

TEST(serialize, wrappers_and_bases) {
  shapes::derived d;
  d.b = 1;
  d.d = "two";
  round_trip(d);
  shapes::with_arrays a;
  a.numbers[2] = 2.5;
  a.words[1] = "word";
  a.raw[3] = 9;
  round_trip(a);
}

TEST(serialize, declared_bytes) {
  EXPECT_TRUE(rankcast::bitwise<shapes::pixel>);
  EXPECT_TRUE(rankcast::bitwise<shapes::token>);
  EXPECT_FALSE(rankcast::bitwise<shapes::plain_struct>);
  EXPECT_TRUE((rankcast::native<std::map<std::string, std::vector<shapes::pixel>>>));
  EXPECT_FALSE((rankcast::native<std::map<std::string, shapes::free_here>>));
  round_trip(std::vector<shapes::pixel>{{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(encoded(std::vector<shapes::token>(5)).size(), 8 + 5 * sizeof(int));
  round_trip(shapes::token{3});
}

TEST(serialize, without_default_constructor) {
  shapes::account a("ada");
  a.balance = 5;
  shapes::account b("bob");
  b.balance = -5;
  using accounts = std::vector<shapes::account>;
  round_trip(std::vector<accounts>{{}, {a}, {b, a, b}});
  round_trip(std::list<shapes::account>{a, b});
  round_trip(std::forward_list<shapes::account>{a, b});
  round_trip(std::deque<shapes::account>{a, b});
  round_trip(std::optional<shapes::account>(a));
  round_trip(std::map<std::string, shapes::account>{{"a", a}, {"b", b}});
  round_trip(std::variant<int, shapes::account>(a));
  std::unique_ptr<shapes::account> p;
  rankcast::load_object(p, encoded(std::make_unique<shapes::account>(b)));
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(*p, b);
}

TEST(serialize, classes_of_no_bytes_are_counted_all_the_same) {
  round_trip(std::vector<shapes::nothing>(5));
  round_trip(shapes::nothing{});
  EXPECT_EQ(encoded(shapes::nothing{}).size(), 1u);
}

TEST(serialize, classes_within_themselves) {
  const auto grown = [] {
    shapes::tree t{1, {}, {}, std::make_unique<shapes::tree>()};
    t.kids.resize(2);
    t.kids[1].value = 5;
    t.named["x"].value = 6;
    t.left->value = 7;
    return t;
  };
  const shapes::tree t = grown();
  const auto bytes = encoded(t);
  shapes::tree fresh;
  support::expect_loads(t, bytes, fresh);
  support::expect_loads(t, bytes, fresh);
  support::expect_only_whole<shapes::tree>(bytes);
}

TEST(serialize, polymorphic_by_value_but_not_cut) {
  shapes::dog rex;
  rex.legs = 4;
  rex.name = "rex";
  shapes::dog to;
  rankcast::load_object(to, encoded(rex));
  EXPECT_EQ(to.legs, 4);
  EXPECT_EQ(to.name, "rex");
  EXPECT_THROW((void)encoded<shapes::animal>(rex), rankcast::usage_error);
}

TEST(serialize, depth_is_limited_where_it_is_written) {
  const auto chain = [](int links) {
    shapes::tree t;
    shapes::tree* at = &t;
    for (int i = 1; i < links; ++i) {
      at->left = std::make_unique<shapes::tree>();
      at = at->left.get();
    }
    return t;
  };
  const shapes::tree deepest = chain(rankcast::max_object_depth);
  shapes::tree to;
  support::expect_loads(deepest, encoded(deepest), to);
  EXPECT_THROW((void)encoded(chain(rankcast::max_object_depth + 1)), rankcast::usage_error);
}

TEST(serialize, slots_and_what_spills_out_of_them) {
  std::byte slot[64];
  rankcast::oarchive out{std::span<std::byte>(slot)};
  out.root(std::string(50, 'x'));
  EXPECT_FALSE(out.spilled());
  EXPECT_EQ(out.bytes().data(), slot);
  EXPECT_EQ(out.size(), 58u);
  out.clear();
  out.root(std::vector<std::string>{std::string(10, 'a'), std::string(100, 'b')});
  EXPECT_TRUE(out.spilled());
  std::vector<std::string> to;
  rankcast::load_object(to, out.bytes());
  ASSERT_EQ(to.size(), 2u);
  EXPECT_EQ(to[1], std::string(100, 'b'));
}

}  // namespace
