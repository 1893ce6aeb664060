#pragma once
// A Linear whose output rows are shared by ranks: forward with the bits of one rank, gradients within
// rounding. The same tests run on 2 and 4 ranks (split_linear_mpi*_test.cpp).

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
    Layer(DType dtype, int rank, int ranks, const Splits& splits)
        : weight(store.add(spec("w", {kGate + kUp, kIn}), ranks)),
          bias(store.add(spec("b", {kGate + kUp}), ranks)),
          linear(weight, &bias, splits) {
      store.allocate(dtype, /*with_gradients=*/true);
      fill(weight, kIn, 1, rank, ranks);
      fill(bias, 1, 2, rank, ranks);
    }
    static ParamSpec spec(const std::string& name, const std::vector<int64_t>& shape) {
      return {.name = name, .parts = {{"gate", kGate}, {"up", kUp}}, .shape = shape, .shard = Shard::rows};
    }
    static void fill(const Parameter& p, int64_t width, uint64_t seed, int rank, int ranks) {
      const Values all = normal_values((kGate + kUp) * width, seed);
      int64_t to = 0, first = 0;
      for (const HfPart& part : p.spec.parts) {
        const int64_t share = part.rows / ranks * width, begin = first + rank * share;
        for (int64_t i = 0; i < share; ++i) set(p.value, to++, all[static_cast<size_t>(begin + i)]);
        first += part.rows * width;
      }
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

  /// Gradient rows of this rank, of the whole gradient.
  static Values own_rows(const Tensor& whole, int64_t width, int rank, int ranks) {
    Values own;
    int64_t first = 0;
    for (const int64_t rows : {kGate, kUp}) {
      const int64_t share = rows / ranks * width;
      for (int64_t i = 0; i < share; ++i) own.push_back(whole.as<double>()[first + rank * share + i]);
      first += rows * width;
    }
    return own;
  }
  static Values values(const Tensor& t) { return {t.as<double>(), t.as<double>() + t.size()}; }

  Backend backend_{Device::cpu};
  std::unique_ptr<Collectives> tp_ = collectives_of_all();
};

TEST_F(SplitLinear, ForwardHasTheBitsOfOneRank) {
  for (const DType dtype : kStorageTypes) {
    Ctx& c = backend_.ctx();
    ArenaScope scope(c.scratch);
    const Layer whole(dtype, 0, 1, {}), split(dtype, comm_->rank(), comm_->size(), {tp_.get()});
    TestTensor x(c, normal_values(kRows * kIn, 3), dtype, {kRows, kIn});
    const Tensor want = whole.linear.forward(c, x, c.scratch), got = split.linear.forward(c, x, c.scratch);
    ASSERT_EQ(got.shape_text(), want.shape_text());
    EXPECT_EQ(std::memcmp(got.data, want.data, static_cast<size_t>(want.bytes())), 0) << dtype_name(dtype);
  }
}

TEST_F(SplitLinear, GradientsAreThoseOfOneRankWithinRounding) {
  Ctx& c = backend_.ctx();
  const Layer whole(DType::f64, 0, 1, {}), split(DType::f64, comm_->rank(), comm_->size(), {tp_.get()});
  TestTensor x(c, normal_values(kRows * kIn, 3), DType::f64, {kRows, kIn}),
      dy(c, normal_values(kRows * (kGate + kUp), 4), DType::f64, {kRows, kGate + kUp});
  const Tensor want = whole.linear.backward_input(c, dy), got = split.linear.backward_input(c, dy);
  expect_near("dx", values(got), values(want), 1e-12);
  whole.linear.backward_weight(c, dy, x);
  split.linear.backward_weight(c, dy, x);
  expect_near("dw", values(split.weight.grad), own_rows(whole.weight.grad, kIn, comm_->rank(), comm_->size()),
              1e-12);
  expect_near("db", values(split.bias.grad), own_rows(whole.bias.grad, 1, comm_->rank(), comm_->size()),
              1e-12);
  // Every rank has the same dx, to the bit.
  const std::string mine(static_cast<const char*>(got.data), static_cast<size_t>(got.bytes()));
  for (const std::string& theirs : comm_->all_gather(mine, "test: dx of all ranks"))
    EXPECT_TRUE(theirs == mine);
}

}  // namespace temper
