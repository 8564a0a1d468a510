// expected: rankcast: a pointer cannot be sent by itself
#include <memory>

#include "rankcast/object/codecs.hpp"

struct animal {
  virtual ~animal() = default;
  template <class Archive>
  void serialize(Archive&, unsigned) {}
};

void use(std::vector<std::byte>& bytes) {
  std::vector<int> allowed;
  rankcast::save_object(allowed, bytes);
  rankcast::load_object(allowed, bytes);
#ifdef REFUSED
  std::unique_ptr<animal> object{};
  rankcast::save_object(object, bytes);
  rankcast::load_object(object, bytes);
#endif
}
