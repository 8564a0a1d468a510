// expected: rankcast: a pointer cannot be sent by itself

#include "rankcast/object/codecs.hpp"

using callback = void (*)(int);

void use(std::vector<std::byte>& bytes) {
  std::vector<int> allowed;
  rankcast::save_object(allowed, bytes);
  rankcast::load_object(allowed, bytes);
#ifdef REFUSED
  callback object{};
  rankcast::save_object(object, bytes);
  rankcast::load_object(object, bytes);
#endif
}
