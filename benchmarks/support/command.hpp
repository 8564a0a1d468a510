// The command line that all drivers share, and how their failures end:
//
//   driver --stage FILE --ranks N --budget-ms MS --points broadcast:64,all_reduce:4096
//          [--rank R --store FOLDER]          processes that no MPI starts
//          [--completion local|everyone]      rankcast
//          [--transport threads|processes]    rankcast without MPI
//
// An operation that a driver does not have is left out of its output.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

struct point {
  std::string operation;
  std::size_t bytes = 0;  // what one rank ends up with
};

struct command {
  std::string stage, store, completion = "local", transport = "threads";
  int rank = 0, ranks = 1;
  std::chrono::duration<double> budget{};
  std::vector<point> points;

  command(int argc, char** argv) {
    std::map<std::string, std::string> given;
    for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
    const auto number = [&](const char* name, int otherwise) {
      return given.contains(name) ? std::stoi(given[name]) : otherwise;
    };
    if (!given.contains("--stage")) throw std::runtime_error("--stage FILE is missing");
    stage = given["--stage"];
    store = given["--store"];
    if (given.contains("--completion")) completion = given["--completion"];
    if (given.contains("--transport")) transport = given["--transport"];
    rank = number("--rank", 0);
    ranks = number("--ranks", 1);
    budget = std::chrono::milliseconds(number("--budget-ms", 100));
    add_points(given["--points"]);
  }

 private:
  void add_points(const std::string& list) {
    for (std::size_t at = 0; at < list.size();) {
      const std::size_t end = std::min(list.find(',', at), list.size());
      const std::string one = list.substr(at, end - at);
      const std::size_t colon = one.find(':');
      if (colon == std::string::npos) throw std::runtime_error("not OPERATION:BYTES: " + one);
      points.push_back({one.substr(0, colon), std::stoull(one.substr(colon + 1))});
      at = end + 1;
    }
  }
};

/// A rank that fails says why and ends with 1, so that whoever started the ranks ends the others.
template <class Body>
int guarded(Body body) {
  try {
    body();
    return EXIT_SUCCESS;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return EXIT_FAILURE;
  }
}

}  // namespace bench
