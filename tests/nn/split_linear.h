#pragma once
// A Linear whose output rows are shared by ranks, column and row parallel: forward with the bits of one rank,
// gradients within rounding. The same tests run on 2 and 4 ranks (split_linear_mpi*_test.cpp).

#include <cstring>

#include "src/nn/linear.h"
#include "src/ops/backend.h"
#include "tests/support/check_op.h"
#include "tests/support/ranks.h"

namespace temper {

class SplitLinear : public OnRanks {
 protected:
  static constexpr int64_t kRows = 13, kIn = 24, kGate = 20, kUp = 12;

  /// A weight and a bias of two parts, whole or this rank's share, filled from the same numbers.
  struct Layer {
    Layer(DType dtype, const Splits& splits, Parallel parallel)
        : weight(store.add(spec("w", {kGate + kUp, kIn}, parallel), splits.place())),
          bias(store.add(spec("b", {kGate + kUp}, parallel), splits.place())),
          linear(weight, &bias, splits, parallel) {
      store.allocate(dtype, /*with_gradients=*/true);
      fill(weight, kIn, 1);
      fill(bias, 1, 2);
    }
    static ParamSpec spec(const std::string& name, const std::vector<int64_t>& shape, Parallel parallel) {
      std::vector<HfPart> parts{{"gate", kGate}, {"up", kUp}};
      if (parallel == Parallel::row) parts = {{"out", kGate + kUp}};
      return {.name = name, .parts = parts, .shape = shape, .shard = Shard::rows};
    }
    static void fill(const Parameter& p, int64_t width, uint64_t seed) {
      const Values all = normal_values((kGate + kUp) * width, seed);
      for (const RowSpan& span : p.spans)
        for (int64_t i = 0; i < span.rows * width; ++i)
          set(p.value, span.own * width + i, all[static_cast<size_t>(span.whole * width + i)]);
    }
    static void set(const Tensor& t, int64_t at, double x) {
      dispatch_storage(t.dtype, [&](auto s) {
        using S = decltype(s);
        t.as<S>()[at] = S(static_cast<Accumulate<S>>(x));
      });
    }

    ParameterStore store;
    Parameter &weight, &bias;
    Linear linear;
  };

  /// Rows of this rank, of the whole gradient.
  static Values own_rows(const Tensor& whole, int64_t width, const Parameter& own) {
    Values rows;
    for (const RowSpan& span : own.spans)
      for (int64_t i = span.whole * width; i < (span.whole + span.rows) * width; ++i)
        rows.push_back(whole.as<double>()[i]);
    return rows;
  }
  static Values values(const Tensor& t) { return {t.as<double>(), t.as<double>() + t.size()}; }
  Values to_values(const Tensor& t) { return decode(bytes_of(backend_.ctx(), t), t.dtype); }
  /// Columns of this rank where there are parts of them: an equal share of each.
  Values own_columns(const Values& whole, const std::vector<int64_t>& parts) const {
    int64_t width = 0;
    for (int64_t n : parts) width += n;
    Values own;
    for (int64_t row = 0; row < std::ssize(whole) / width; ++row) {
      int64_t first = row * width;
      for (int64_t n : parts) {
        const int64_t share = n / comm_->size();
        for (int64_t i = 0; i < share; ++i)
          own.push_back(whole[static_cast<size_t>(first + comm_->rank() * share + i)]);
        first += n;
      }
    }
    return own;
  }
  void expect_same_on_all_ranks(const Tensor& t) {
    const std::string mine(static_cast<const char*>(t.data), static_cast<size_t>(t.bytes()));
    for (const std::string& theirs : comm_->all_gather(mine, "test: a tensor of all ranks"))
      EXPECT_TRUE(theirs == mine);
  }
  Splits splits() const { return {tp_.get()}; }

  Backend backend_{Device::cpu};
  std::unique_ptr<Collectives> tp_ = collectives_of_all();
};

TEST_F(SplitLinear, ColumnParallelHasTheBitsOfOneRank) {
  for (const DType dtype : kStorageTypes) {
    Ctx& c = backend_.ctx();
    ArenaScope scope(c.scratch);
    const Layer whole(dtype, {}, Parallel::column), split(dtype, splits(), Parallel::column);
    TestTensor x(c, normal_values(kRows * kIn, 3), dtype, {kRows, kIn});
    const Tensor want = whole.linear.forward(c, x, c.scratch), got = split.linear.forward(c, x, c.scratch);
    expect_same_bits(dtype_name(dtype), to_values(got), own_columns(to_values(want), {kGate, kUp}));
  }
}

TEST_F(SplitLinear, RowParallelHasTheBitsOfOneRank) {
  for (const DType dtype : kStorageTypes) {
    Ctx& c = backend_.ctx();
    ArenaScope scope(c.scratch);
    const Layer whole(dtype, {}, Parallel::row), split(dtype, splits(), Parallel::row);
    const Values in = round_to(normal_values(kRows * kIn, 3), dtype);
    TestTensor x(c, in, dtype, {kRows, kIn}),
        own(c, own_columns(in, {kIn}), dtype, {kRows, kIn / comm_->size()});
    const Tensor want = whole.linear.forward(c, x, c.scratch), got = split.linear.forward(c, own, c.scratch);
    expect_same_bits(dtype_name(dtype), to_values(got), to_values(want));
  }
}

TEST_F(SplitLinear, GradientsAreThoseOfOneRankWithinRounding) {
  Ctx& c = backend_.ctx();
  for (const Parallel parallel : {Parallel::column, Parallel::row}) {
    const bool column = parallel == Parallel::column;
    const Layer whole(DType::f64, {}, parallel), split(DType::f64, splits(), parallel);
    const int64_t out = kGate + kUp, ranks = comm_->size();
    const Values in = normal_values(kRows * kIn, 3), up = normal_values(kRows * out, 4);
    TestTensor x(c, in, DType::f64, {kRows, kIn}), dy(c, up, DType::f64, {kRows, out}),
        own_x(c, own_columns(in, {kIn}), DType::f64, {kRows, kIn / ranks}),
        own_dy(c, own_columns(up, {kGate, kUp}), DType::f64, {kRows, out / ranks});
    const Tensor want = whole.linear.backward_input(c, dy),
                 got = split.linear.backward_input(c, column ? own_dy : dy);
    expect_near("dx", values(got), column ? values(want) : own_columns(values(want), {kIn}), 1e-12);
    if (column) expect_same_on_all_ranks(got);
    whole.linear.backward_weight(c, dy, x);
    split.linear.backward_weight(c, column ? own_dy : dy, column ? x : own_x);
    expect_near("dw", values(split.weight.grad), own_rows(whole.weight.grad, kIn, split.weight), 1e-12);
    expect_near("db", values(split.bias.grad), own_rows(whole.bias.grad, 1, split.bias), 1e-12);
  }
}

}  // namespace temper
