// expected: rankcast: a constant cannot be loaded

#include "rankcast/object/codecs.hpp"

struct fixed {
  const int value = 0;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& value;
  }
};

void use(std::vector<std::byte>& bytes) {
  std::vector<int> allowed;
  rankcast::save_object(allowed, bytes);
  rankcast::load_object(allowed, bytes);
#ifdef REFUSED
  fixed object{};
  rankcast::save_object(object, bytes);
  rankcast::load_object(object, bytes);
#endif
}
