// The same calls on whatever ranks there are, and what every rank got, as a line of digests for
// each call. bit_equal.sh compares the files of threads, of processes on one host and of processes
// on several.
//   bit_equal threads 4 FILE
//   mpiexec -n 4 bit_equal processes FILE      (rank 0 writes FILE)
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "rankcast/mpi.hpp"
#include "rankcast/object.hpp"

namespace {

using rankcast::bfloat16;
using rankcast::communicator;
using counts = std::vector<std::int64_t>;

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::uint64_t mixed(std::uint64_t x) {  // splitmix64's last steps
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// FNV-1a, of 64 bits.
template <class T>
std::uint64_t digest(const std::vector<T>& values) {
  std::uint64_t d = 0xcbf29ce484222325u;
  for (const std::byte b : std::as_bytes(std::span(values))) {
    d = (d ^ static_cast<std::uint64_t>(b)) * 0x100000001b3u;
  }
  return d;
}

// Rank r's n values. Their sizes lie 2^40 apart, so that every sum hangs on the order of its terms.
template <class T>
std::vector<T> values(int rank, std::int64_t n) {
  std::vector<T> v(index(n));
  for (std::size_t i = 0; i < v.size(); ++i) {
    const std::uint64_t bits = mixed((static_cast<std::uint64_t>(rank + 1) << 40) + i + 1);
    const auto mantissa = static_cast<float>(static_cast<std::int64_t>(bits >> 40) - (1 << 23));
    v[i] = static_cast<T>(std::ldexp(mantissa, static_cast<int>(bits % 40) - 43));
  }
  return v;
}

// One line per call: its name and the digest of every rank's result.
class report {
 public:
  explicit report(const communicator& world) : world_(world) {}

  template <class T>
  void add(const std::string& call, const std::vector<T>& result) {
    calls_.push_back(call);
    mine_.push_back(digest(result));
  }
  // Rank 0 writes it.
  void write(const std::string& path) const {
    std::vector<std::uint64_t> all;  // [ranks, calls]
    if (world_.rank() == 0) all.resize(mine_.size() * index(world_.size()));
    rankcast::gather(world_, mine_, all);
    if (world_.rank() != 0) return;
    std::ofstream file(path);
    for (std::size_t c = 0; c < calls_.size(); ++c) {
      file << calls_[c] << ':';
      for (std::size_t r = 0; r < index(world_.size()); ++r) {
        char text[20];
        std::snprintf(text, sizeof text, " %016llx",
                      static_cast<unsigned long long>(all[r * mine_.size() + c]));
        file << text;
      }
      file << '\n';
    }
    if (!file.flush()) throw rankcast::error("cannot write " + path);
  }

 private:
  communicator world_;
  std::vector<std::string> calls_;
  std::vector<std::uint64_t> mine_;
};

// With what travels with the call, what takes one frame, and what takes many.
template <class T>
void reductions(const communicator& world, report& out, const std::string& type) {
  const int n = world.size();
  for (const std::int64_t size : {1, 1'023, 40'009, 1'048'583}) {
    const std::string suffix = " of " + std::to_string(size) + " " + type;
    const std::vector<T> mine = values<T>(world.rank(), size);

    std::vector<T> all = mine;
    rankcast::all_reduce(world, all);
    out.add("all_reduce" + suffix, all);

    std::vector<T> at_root(world.rank() == n - 1 ? mine.size() : 0);
    rankcast::reduce(world, mine, at_root, rankcast::sum, {.root = n - 1});
    out.add("reduce" + suffix, at_root);

    const counts shares = rankcast::partition_counts(size, n);
    std::vector<T> share(index(shares[index(world.rank())]));
    rankcast::reduce_scatter(world, mine, share, rankcast::sum, {.counts = shares});
    out.add("reduce_scatter" + suffix, share);
  }
}

// Shares that grow with the rank, and one of nothing.
void gathers(const communicator& world, report& out) {
  for (const std::int64_t step : {5, 300'007}) {
    counts shares;
    std::int64_t total = 0;
    for (int r = 0; r < world.size(); ++r) {
      shares.push_back(r == 1 ? 0 : step * (r + 1));
      total += shares.back();
    }
    const auto mine = values<float>(world.rank(), shares[index(world.rank())]);
    const int root = world.size() - 1;
    std::vector<float> at_root(world.rank() == root ? index(total) : 0);
    rankcast::gather(world, mine, at_root, {.root = root, .counts = shares});
    out.add("gather of shares by " + std::to_string(step), at_root);

    std::vector<float> everywhere(index(total));
    rankcast::all_gather(world, mine, everywhere, {.counts = shares});
    out.add("all_gather of shares by " + std::to_string(step), everywhere);

    const auto to_all = values<float>(world.rank(), step * world.size());
    std::vector<float> of_all(to_all.size());
    rankcast::all_to_all(world, to_all, of_all);
    out.add("all_to_all of " + std::to_string(step), of_all);
  }
}

struct batch {
  std::map<std::string, std::vector<float>> parts;
  std::vector<std::string> prompts;
  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& parts& prompts;
  }
};

void broadcasts(const communicator& world, report& out) {
  const int root = world.size() / 2;
  for (const std::int64_t size : {3, 40'009, 2'000'003}) {
    auto v = values<float>(world.rank(), size);
    rankcast::broadcast(world, v, {.root = root});
    out.add("broadcast of " + std::to_string(size), v);

    batch b;
    if (world.rank() == root) {
      b.prompts.assign(7, "what does rank " + std::to_string(root) + " say?");
      for (int part = 0; part < 3; ++part) {  // an empty one, one in the message, one beside it
        b.parts["part " + std::to_string(part)] = values<float>(root, size * part / 2);
      }
    }
    rankcast::broadcast_object(world, b, {.root = root});
    std::vector<std::uint64_t> seen;
    for (const auto& [name, part] : b.parts) {
      seen.push_back(digest(std::vector<char>(name.begin(), name.end())));
      seen.push_back(digest(part));
    }
    for (const auto& p : b.prompts) seen.push_back(digest(std::vector<char>(p.begin(), p.end())));
    out.add("broadcast_object of " + std::to_string(size), seen);
  }
}

// Columns of a matrix, read and written where they are; from roots in no order.
void strided_broadcasts(const communicator& world, report& out) {
  std::uint64_t chance = 1;
  for (const std::int64_t rows : {7, 1'001, 100'003}) {
    for (int i = 0; i < 3; ++i) {
      chance = mixed(chance + static_cast<std::uint64_t>(rows));
      const int root = static_cast<int>(chance % static_cast<std::uint64_t>(world.size()));
      auto matrix = values<float>(world.rank(), rows * 5);
      auto column = rankcast::layout::contiguous({rows, 2});
      column.strides = {5, 1};
      const rankcast::tensor_view view(matrix.data() + 1, rankcast::dtype::float32, column);
      rankcast::broadcast(world, view, {.root = root});
      std::vector<float> got;
      for (std::int64_t r = 0; r < rows; ++r) {
        got.push_back(matrix[index(5 * r + 1)]);
        got.push_back(matrix[index(5 * r + 2)]);
      }
      out.add("broadcast of " + std::to_string(rows) + " strided, root " + std::to_string(root),
              got);
    }
  }
}

void everything(const communicator& world, const std::string& path) {
  report out(world);
  reductions<float>(world, out, "float32");
  reductions<bfloat16>(world, out, "bfloat16");
  gathers(world, out);
  broadcasts(world, out);
  strided_broadcasts(world, out);
  out.write(path);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 3 && arguments[0] == "threads") {
    rankcast::run(std::stoi(arguments[1]),
                  [&](communicator& world) { everything(world, arguments[2]); });
    return 0;
  }
  if (arguments.size() == 2 && arguments[0] == "processes") {
    const rankcast::mpi::environment mpi;
    everything(rankcast::mpi::world(), arguments[1]);
    return 0;
  }
  std::fputs("usage: bit_equal threads RANKS FILE | bit_equal processes FILE\n", stderr);
  return 2;
}
