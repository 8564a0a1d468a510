/// Objects in a stranger's program: its classes have Boost's serialize(), and nothing is linked.
#include <cstdio>
#include <map>
#include <rankcast/object/frame.hpp>
#include <string>

struct settings {
  std::map<std::string, double> values;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& values;
  }
};

int main() {
  settings from;
  from.values["temperature"] = 0.5;
  rankcast::message message;
  rankcast::encode_frame(from, message);
  settings to;
  rankcast::decode_frame(to, message.header, nullptr);
  std::printf("%g\n", to.values.at("temperature"));
}
