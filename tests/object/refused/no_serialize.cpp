// expected: rankcast: this type has no serialize(): give it a Boost.Serialization
// serialize(archive, version)

#include "rankcast/object/codecs.hpp"

struct point {
  double x = 0, y = 0;  // trivially copyable, which could as well be two pointers
};

void use(std::vector<std::byte>& bytes) {
  std::vector<int> allowed;
  rankcast::save_object(allowed, bytes);
  rankcast::load_object(allowed, bytes);
#ifdef REFUSED
  std::vector<point> object{};
  rankcast::save_object(object, bytes);
  rankcast::load_object(object, bytes);
#endif
}
