// expected: wrap it, or the object that has it, as rankcast::tracked(x)
#include <memory>

#include "rankcast/object/codecs.hpp"

void use(std::vector<std::byte>& bytes) {
  std::vector<int> allowed;
  rankcast::save_object(allowed, bytes);
  rankcast::load_object(allowed, bytes);
#ifdef REFUSED
  std::vector<std::shared_ptr<int>> object{};
  rankcast::save_object(object, bytes);
  rankcast::load_object(object, bytes);
#endif
}
