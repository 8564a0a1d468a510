// Strided data on both sides of every call: columns, transposed, every second row, backwards. What
// lies between the elements must stay as it was.
#include "support/ranks.hpp"
#include "support/values.hpp"

namespace {

using rankcast::dtype;
using rankcast::layout;
using rankcast::tensor_view;
using support::run_ranks;
using support::oracle::by_rank;
using support::oracle::index;

constexpr int untouched = -99;

// A field of ints with a view of `n` elements in it; knows what the view does not cover.
class field {
 public:
  enum class kind { flat, column, transposed, backwards, apart };
  static constexpr kind kinds[] = {kind::flat, kind::column, kind::transposed, kind::backwards,
                                   kind::apart};

  field(kind k, std::int64_t n) : cells_(static_cast<std::size_t>(8 * n + 16), untouched) {
    layout l;
    std::int64_t first = 4;
    switch (k) {
      case kind::flat: l = layout::contiguous({n}); break;
      case kind::column:  // of a matrix of 5 columns
        l = layout::contiguous({n, 1});
        l.strides = {5, 1};
        break;
      case kind::transposed:  // (2, n / 2) read from (n / 2, 2)
        l = layout::contiguous({2, n / 2});
        l.strides = {1, 2};
        break;
      case kind::backwards:
        l = layout::contiguous({n});
        l.strides = {-1};
        first += n - 1;
        break;
      case kind::apart:  // pairs, far from each other, the last row first
        l = layout::contiguous({n / 2, 2});
        l.strides = {-7, 3};
        first += 7 * (n / 2);
        break;
    }
    view_ = tensor_view(cells_.data() + first, dtype::int32, l);
  }

  [[nodiscard]] tensor_view view() const { return view_; }

  void write(const std::vector<int>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) cell(i) = values[i];
  }
  [[nodiscard]] std::vector<int> read() {
    std::vector<int> values;
    for (std::int64_t i = 0; i < view_.elements(); ++i) values.push_back(cell(index(i)));
    return values;
  }
  // Every cell that is not of the view.
  [[nodiscard]] bool neighbours_untouched() {
    const std::vector<int> mine = read();
    write(std::vector<int>(mine.size(), untouched));
    const bool clean =
        std::all_of(cells_.begin(), cells_.end(), [](int c) { return c == untouched; });
    write(mine);
    return clean;
  }

 private:
  // Element i in row-major order, by index arithmetic of its own.
  int& cell(std::size_t i) {
    auto rest = static_cast<std::int64_t>(i);
    std::int64_t at = 0;
    for (int d = view_.dimensions(); d-- > 0;) {
      at += rest % view_.extent(d) * view_.layout().stride(d);
      rest /= view_.extent(d);
    }
    return view_.data<int>()[at];
  }

  std::vector<int> cells_;
  tensor_view view_;
};

by_rank<int> inputs(int ranks, std::int64_t n) {
  by_rank<int> in;
  for (const auto& v : support::pattern_by_rank(ranks, n)) in.emplace_back(v.begin(), v.end());
  return in;
}

// Calls f(world, kind of send, kind of receive, n) for all pairs of kinds.
template <class F>
void matrix(F&& f) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [&](rankcast::communicator& world) {
      for (const auto send : field::kinds) {
        for (const auto receive : field::kinds) {
          for (const std::int64_t n : {2, 16, 18, 90}) f(world, send, receive, n);
        }
      }
    });
  }
}

TEST(views, broadcast) {
  matrix([](auto& world, field::kind a, field::kind b, std::int64_t n) {
    support::step("broadcast");
    const auto in = inputs(world.size(), n);
    const int root = world.size() - 1;
    field data(world.rank() == root ? a : b, n);
    data.write(in[index(world.rank())]);
    rankcast::broadcast(world, data.view(), {.root = root});
    EXPECT_EQ(data.read(), in[index(root)]);
    EXPECT_TRUE(data.neighbours_untouched());
  });
}

TEST(views, gather_and_scatter) {
  matrix([](auto& world, field::kind a, field::kind b, std::int64_t n) {
    const auto in = inputs(world.size(), n);
    const int root = world.size() / 2;
    field mine(a, n);
    mine.write(in[index(world.rank())]);
    field all(b, n * world.size());
    support::step("gather");
    if (world.rank() == root) rankcast::gather(world, mine.view(), all.view(), {.root = root});
    else rankcast::gather(world, mine.view(), rankcast::nothing, {.root = root});
    if (world.rank() == root) {
      EXPECT_EQ(all.read(), support::oracle::gather(in));
      EXPECT_TRUE(all.neighbours_untouched());
    }
    support::step("scatter");
    field got(a, n);
    if (world.rank() == root) rankcast::scatter(world, all.view(), got.view(), {.root = root});
    else rankcast::scatter(world, rankcast::nothing, got.view(), {.root = root});
    EXPECT_EQ(got.read(), in[index(world.rank())]);
    EXPECT_TRUE(got.neighbours_untouched());
  });
}

TEST(views, all_gather_and_all_to_all) {
  matrix([](auto& world, field::kind a, field::kind b, std::int64_t n) {
    const auto ranks = index(world.size());
    auto in = inputs(world.size(), n);
    field mine(a, n);
    mine.write(in[index(world.rank())]);
    field all(b, n * world.size());
    support::step("all_gather");
    rankcast::all_gather(world, mine.view(), all.view());
    EXPECT_EQ(all.read(), support::oracle::gather(in));
    EXPECT_TRUE(all.neighbours_untouched());
    support::step("all_to_all");
    in = inputs(world.size(), n * world.size());
    field out(a, n * world.size());
    out.write(in[index(world.rank())]);
    const std::vector<support::oracle::counts> shares(ranks, support::oracle::counts(ranks, n));
    const auto wanted = support::oracle::all_to_all(in, shares)[index(world.rank())];
    rankcast::all_to_all(world, out.view(), all.view());
    EXPECT_EQ(all.read(), wanted);
    EXPECT_TRUE(all.neighbours_untouched());
    rankcast::all_to_all(world, out.view(), out.view());
    EXPECT_EQ(out.read(), wanted);
    EXPECT_TRUE(out.neighbours_untouched());
  });
}

TEST(views, reductions) {
  matrix([](auto& world, field::kind a, field::kind b, std::int64_t n) {
    const auto me = index(world.rank());
    const auto in = inputs(world.size(), n * world.size());
    const auto wanted = support::oracle::reduce(in, rankcast::sum);
    field mine(a, n * world.size());
    mine.write(in[me]);
    field got(b, n * world.size());
    support::step("all_reduce");
    rankcast::all_reduce(world, mine.view(), got.view());
    EXPECT_EQ(got.read(), wanted);
    EXPECT_TRUE(got.neighbours_untouched());
    support::step("reduce_scatter");
    field share(b, n);
    rankcast::reduce_scatter(world, mine.view(), share.view());
    EXPECT_EQ(share.read(), support::oracle::scatter(
                                wanted, support::oracle::counts(index(world.size()), n))[me]);
    EXPECT_TRUE(share.neighbours_untouched());
    support::step("in place");
    rankcast::all_reduce(world, mine.view());
    EXPECT_EQ(mine.read(), wanted);
    EXPECT_TRUE(mine.neighbours_untouched());
    mine.write(in[me]);
    rankcast::reduce(world, mine.view(), mine.view());
    EXPECT_EQ(mine.read(), world.rank() == 0 ? wanted : in[me]);
    EXPECT_TRUE(mine.neighbours_untouched());
  });
}

TEST(views, send_and_receive) {
  matrix([](auto& world, field::kind a, field::kind b, std::int64_t n) {
    if (world.size() < 2 || world.rank() > 1) return;
    support::step("send");
    const auto in = inputs(2, n);
    if (world.rank() == 1) {
      field mine(a, n);
      mine.write(in[1]);
      rankcast::send(world, mine.view(), 0);
    } else {
      field got(b, n);
      rankcast::receive(world, got.view(), 1);
      EXPECT_EQ(got.read(), in[1]);
      EXPECT_TRUE(got.neighbours_untouched());
    }
  });
}

}  // namespace
