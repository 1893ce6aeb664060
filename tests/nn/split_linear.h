#pragma once
// A Linear whose output rows are shared by ranks, column and row parallel: forward with the bits of one rank,
// gradients within rounding; with whole inputs and outputs, and with own tokens of them. The same tests run
// on 2 and 4 ranks (split_linear_mpi*_test.cpp).

#include <cstring>

#include "src/nn/linear.h"
#include "src/nn/parallel/tensor_parallel.h"
#include "src/ops/backend.h"
#include "tests/support/check_op.h"
#include "tests/support/ranks.h"

namespace temper {

class SplitLinear : public OnRanks {
 protected:
  static constexpr int64_t kIn = 24, kGate = 20, kUp = 12;
  /// Some ranks have none of a stream of one token.
  static constexpr StreamRows kStreams[] = {{13, false}, {13, true}, {1, true}};

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
  /// Rows of this rank, of the stream: all where it is not shared.
  FlatRange own_tokens(const StreamRows& stream) const {
    return stream.shared ? token_share(stream.tokens, comm_->rank(), comm_->size())
                         : FlatRange{0, stream.tokens};
  }
  Values own_tokens(const Values& whole, const StreamRows& stream) const {
    const FlatRange own = own_tokens(stream);
    const int64_t width = std::ssize(whole) / stream.tokens;
    return {whole.begin() + own.begin * width, whole.begin() + own.end * width};
  }
  static std::string text(const StreamRows& stream, DType dtype) {
    return fmt::format("{} tokens{}, {}", stream.tokens, stream.shared ? ", shared" : "", dtype_name(dtype));
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
  for (const StreamRows& stream : kStreams)
    for (const DType dtype : kStorageTypes) {
      Ctx& c = backend_.ctx();
      ArenaScope scope(c.scratch);
      const Layer whole(dtype, {}, Parallel::column), split(dtype, splits(), Parallel::column);
      const Values in = round_to(normal_values(stream.tokens * kIn, 3), dtype);
      TestTensor x(c, in, dtype, {stream.tokens, kIn}),
          own(c, own_tokens(in, stream), dtype, {own_tokens(stream).size(), kIn});
      const Tensor want = whole.linear.forward(c, x, c.scratch),
                   got = split.linear.forward(c, own, c.scratch, stream);
      expect_same_bits(text(stream, dtype), to_values(got), own_columns(to_values(want), {kGate, kUp}));
    }
}

TEST_F(SplitLinear, RowParallelHasTheBitsOfOneRank) {
  for (const StreamRows& stream : kStreams)
    for (const DType dtype : kStorageTypes) {
      Ctx& c = backend_.ctx();
      ArenaScope scope(c.scratch);
      const Layer whole(dtype, {}, Parallel::row), split(dtype, splits(), Parallel::row);
      const Values in = round_to(normal_values(stream.tokens * kIn, 3), dtype);
      TestTensor x(c, in, dtype, {stream.tokens, kIn}),
          own(c, own_columns(in, {kIn}), dtype, {stream.tokens, kIn / comm_->size()});
      const Tensor want = whole.linear.forward(c, x, c.scratch),
                   got = split.linear.forward(c, own, c.scratch, stream);
      expect_same_bits(text(stream, dtype), to_values(got), own_tokens(to_values(want), stream));
    }
}

TEST_F(SplitLinear, GradientsAreThoseOfOneRankWithinRounding) {
  Ctx& c = backend_.ctx();
  for (const StreamRows& stream : kStreams)
    for (const Parallel parallel : {Parallel::column, Parallel::row}) {
      SCOPED_TRACE(text(stream, DType::f64));
      const bool column = parallel == Parallel::column;
      const Layer whole(DType::f64, {}, parallel), split(DType::f64, splits(), parallel);
      const int64_t out = kGate + kUp, ranks = comm_->size(), all = stream.tokens,
                    own = own_tokens(stream).size();
      const Values in = normal_values(all * kIn, 3), up = normal_values(all * out, 4);
      TestTensor x(c, in, DType::f64, {all, kIn}), dy(c, up, DType::f64, {all, out});
      TestTensor own_x = column ? TestTensor(c, own_tokens(in, stream), DType::f64, {own, kIn})
                                : TestTensor(c, own_columns(in, {kIn}), DType::f64, {all, kIn / ranks}),
                 own_dy = column
                              ? TestTensor(c, own_columns(up, {kGate, kUp}), DType::f64, {all, out / ranks})
                              : TestTensor(c, own_tokens(up, stream), DType::f64, {own, out});
      const Tensor want = whole.linear.backward(c, dy, x),
                   got = split.linear.backward(c, own_dy, own_x, stream);
      expect_near("dx", values(got),
                  column ? own_tokens(values(want), stream) : own_columns(values(want), {kIn}), 1e-12);
      if (column && !stream.shared) expect_same_on_all_ranks(got);
      if (!column) place_gradient(c, *splits().tp, split.weight);
      expect_near("dw", values(split.weight.grad), own_rows(whole.weight.grad, kIn, split.weight), 1e-12);
      expect_near("db", values(split.bias.grad), own_rows(whole.bias.grad, 1, split.bias), 1e-12);
    }
}

}  // namespace temper
