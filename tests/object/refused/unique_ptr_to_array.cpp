// expected: rankcast: a unique_ptr to an array does not know its length: use a std::vector
#include <memory>

#include "rankcast/object/codecs.hpp"

void use(std::vector<std::byte>& bytes) {
  std::vector<int> allowed;
  rankcast::save_object(allowed, bytes);
  rankcast::load_object(allowed, bytes);
#ifdef REFUSED
  std::unique_ptr<int[]> object{};
  rankcast::save_object(object, bytes);
  rankcast::load_object(object, bytes);
#endif
}
