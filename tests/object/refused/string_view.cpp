// expected: rankcast: this type has no serialize()
#include <string_view>

#include "rankcast/object/codecs.hpp"

void use(std::vector<std::byte>& bytes) {
  std::vector<int> allowed;
  rankcast::save_object(allowed, bytes);
  rankcast::load_object(allowed, bytes);
#ifdef REFUSED
  std::string_view object{};
  rankcast::save_object(object, bytes);
  rankcast::load_object(object, bytes);
#endif
}
