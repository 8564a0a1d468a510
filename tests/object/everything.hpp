/// One type with codecs of every kind, for tests that throw bytes at decoders.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rankcast/object/codecs.hpp"

namespace support {

enum class shade : std::uint8_t { light, dark };

struct leaf {
  std::int32_t id = 0;
  bool ripe = false;
  std::string name;
  bool operator==(const leaf&) const = default;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& id& ripe& name;
  }
};

struct branch {
  std::vector<branch> kids;
  std::unique_ptr<branch> next;
  std::map<std::int16_t, branch> named;
  bool operator==(const branch& o) const {
    return kids == o.kids && named == o.named && !next == !o.next && (!next || *next == *o.next);
  }
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& kids& next& named;
  }
};

struct empty {
  bool operator==(const empty&) const = default;
  template <class Archive>
  void serialize(Archive&, unsigned) {}
};

struct everything {
  std::string text;
  std::vector<std::uint16_t> numbers;
  std::vector<bool> bits;
  std::vector<leaf> leaves;
  std::map<std::string, std::vector<std::int32_t>> table;
  std::map<std::int32_t, leaf> leaf_of;
  std::multimap<std::int8_t, bool> many;
  std::set<std::string> words;
  std::unordered_map<std::string, leaf> hashed;
  std::unordered_set<std::int64_t> ids;
  std::deque<std::int32_t> queue;
  std::list<std::string> list;
  std::forward_list<bool> flags;
  std::array<bool, 3> array{};
  std::bitset<13> set;
  std::optional<std::pair<shade, std::string>> maybe;
  std::variant<std::monostate, std::int32_t, std::string, leaf> one_of;
  std::tuple<std::int8_t, std::string> both{};
  std::chrono::milliseconds time{};
  std::unique_ptr<leaf> owned;
  std::vector<empty> empties;
  branch tree;
  rankcast::tensor tensor;
  std::int16_t fixed[2] = {};

  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& text& numbers& bits& leaves& table& leaf_of& many& words& hashed& ids& queue& list& flags&
        array& set& maybe& one_of& both& time& owned& empties& tree& tensor& fixed;
  }
};

inline everything sample_of_everything() {
  everything e;
  e.text = "some text";
  e.numbers = {1, 2, 65535};
  e.bits = {true, false, true, true, false, false, true, false, true};
  e.leaves = {{1, true, "one"}, {2, false, ""}};
  e.table = {{"a", {1, 2}}, {"b", {}}, {"c", {3}}};
  e.leaf_of = {{-1, {3, true, "three"}}, {5, {}}};
  e.many = {{1, true}, {1, false}};
  e.words = {"x", "y"};
  e.hashed = {{"key", {4, false, "four"}}};
  e.ids = {std::int64_t{1} << 40};  // one: their order is not kept
  e.queue = {1, 2, 3};
  e.list = {"p", "q"};
  e.flags = {true, false};
  e.array = {true, false, true};
  e.set = std::bitset<13>(0x155);
  e.maybe.emplace(shade::dark, "maybe");
  e.one_of = leaf{5, true, "five"};
  e.both = {std::int8_t{7}, "both"};
  e.time = std::chrono::milliseconds(99);
  e.owned = std::make_unique<leaf>(leaf{6, false, "six"});
  e.empties.resize(3);
  e.tree.kids.resize(2);
  e.tree.kids[1].next = std::make_unique<branch>();
  e.tree.named[7].kids.resize(1);
  e.tensor.resize(rankcast::dtype::float32, {2, 2});
  for (float& f : e.tensor.values<float>()) f = 1.5f;
  e.fixed[1] = -2;
  return e;
}

}  // namespace support
