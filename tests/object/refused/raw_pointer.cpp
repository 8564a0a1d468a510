// expected: rankcast: a pointer cannot be sent by itself, for it may be shared

#include "rankcast/object/codecs.hpp"

struct list {
  int value = 0;
  list* next = nullptr;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& value& next;
  }
};

void use(std::vector<std::byte>& bytes) {
  std::vector<int> allowed;
  rankcast::save_object(allowed, bytes);
  rankcast::load_object(allowed, bytes);
#ifdef REFUSED
  list object{};
  rankcast::save_object(object, bytes);
  rankcast::load_object(object, bytes);
#endif
}
