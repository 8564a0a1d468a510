// Serialization alone, on one thread: rankcast's archives against Boost's binary archives on a
// stringstream, over the same objects and the same serialize(). Names are library/action/object;
// tools/bench makes a table of ratios of them.
//
//   micro_archive [--benchmark_filter=small]
#include <benchmark/benchmark.h>

#include <boost/archive/binary_iarchive.hpp>
#include <boost/archive/binary_oarchive.hpp>
#include <rankcast/object/archive.hpp>
#include <rankcast/object/codecs.hpp>
#include <sstream>
#include <stdexcept>

#include "objects.hpp"

namespace {

/// Keeps its bytes from call to call, as a sender does.
struct rankcast_archive {
  std::vector<std::byte> bytes;

  template <class T>
  void save(const T& object) {
    rankcast::save_object(object, bytes);
  }
  template <class T>
  void load(T& object) {
    rankcast::load_object(object, bytes);
  }
};

struct boost_archive {
  std::string bytes;

  template <class T>
  void save(const T& object) {
    std::stringstream stream;
    {
      boost::archive::binary_oarchive archive(stream, boost::archive::no_header);
      archive << object;
    }
    bytes = stream.str();
  }
  template <class T>
  void load(T& object) {
    std::stringstream stream(bytes);
    boost::archive::binary_iarchive archive(stream, boost::archive::no_header);
    archive >> object;
  }
};

template <class Archive, class T>
void save(benchmark::State& state) {
  T object;
  bench::renew(object, 1);
  Archive archive;
  archive.save(object);  // its bytes have grown
  for (auto turn : state) {
    static_cast<void>(turn);
    archive.save(object);
    benchmark::DoNotOptimize(archive.bytes.data());
  }
}

/// Into a new object each time.
template <class Archive, class T>
void load_fresh(benchmark::State& state) {
  T wanted;
  bench::renew(wanted, 1);
  Archive archive;
  archive.save(wanted);
  for (auto turn : state) {
    static_cast<void>(turn);
    T object;
    archive.load(object);
    benchmark::DoNotOptimize(&object);
  }
}

/// Over an object of other values, whose memory may be reused.
template <class Archive, class T>
void load_over(benchmark::State& state) {
  T wanted, object;
  bench::renew(wanted, 1);
  bench::renew(object, 2);
  Archive archive;
  archive.save(wanted);
  for (auto turn : state) {
    static_cast<void>(turn);
    archive.load(object);
    benchmark::DoNotOptimize(&object);
  }
  if (object != wanted) throw std::runtime_error("WRONG: load over an object");
}

/// There and back again: what a pair of ranks does, but for the moving.
template <class Archive, class T>
void save_and_load(benchmark::State& state) {
  T wanted, object;
  bench::renew(wanted, 1);
  Archive archive;
  archive.save(wanted);
  archive.load(object);
  for (auto turn : state) {
    static_cast<void>(turn);
    archive.save(wanted);
    archive.load(object);
    benchmark::DoNotOptimize(&object);
  }
  if (object != wanted) throw std::runtime_error("WRONG: save and load");
}

template <class Archive, class T>
void add(const std::string& library, const std::string& object) {
  const auto one = [&](const char* action, void (*run)(benchmark::State&)) {
    const std::string name = library + "/" + action + "/" + object;
    benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMicrosecond);
  };
  one("save", save<Archive, T>);
  one("load fresh", load_fresh<Archive, T>);
  one("load over", load_over<Archive, T>);
  one("save and load", save_and_load<Archive, T>);
}

template <class Archive>
void add_all(const std::string& library) {
  add<Archive, bench::small_object>(library, "small");
  add<Archive, bench::batch_object>(library, "batch");
  add<Archive, bench::tensors_object>(library, "tensors");
  add<Archive, bench::records_object>(library, "records");
}

[[maybe_unused]] const bool added = [] {
  add_all<rankcast_archive>("rankcast");
  add_all<boost_archive>("boost");
  return true;
}();

}  // namespace
