#include <cstdio>
#include <map>
#include <rankcast/object.hpp>
#include <string>
#include <vector>

struct request {  // any class with a Boost.Serialization serialize()
  std::string prompt;
  std::map<std::string, double> options;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& prompt& options;
  }
};

int main() {
  rankcast::run(3, [](rankcast::communicator& world) {
    request r;
    if (world.rank() == 0) r = {"Once upon a time", {{"temperature", 0.7}}};
    rankcast::broadcast_object(world, r);

    rankcast::coordinator session(world);  // one leader, whose workers serve it
    auto length = session.wrap([&](const std::string& text) {
      auto share = static_cast<int>(text.size()) / world.size();  // a model's forward, say
      rankcast::all_reduce(world, share);
      return share;
    });
    if (session.is_leader()) std::printf("%s: %d\n", r.prompt.c_str(), length(r.prompt));
    else session.serve();
  });
}
