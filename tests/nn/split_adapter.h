#pragma once
// A Linear with adapters whose rows are shared by ranks, column and row parallel: forward with the bits of
// one rank, gradients within rounding, with whole inputs and outputs and with own tokens of them; where all
// or some of the modules have adapters. The same tests run on 2 and 4 ranks (split_adapter_mpi*_test.cpp).

#include "src/nn/linear.h"
#include "src/nn/parallel/tensor_parallel.h"
#include "src/ops/backend.h"
#include "tests/support/check_op.h"
#include "tests/support/ranks.h"

namespace temper {

class SplitAdapter : public OnRanks {
 protected:
  static constexpr int64_t kIn = 24, kGate = 20, kUp = 12, kRank = 3;
  static constexpr StreamRows kStreams[] = {{13, false}, {13, true}, {1, true}};

  /// Adapters of both parts, or of the second one alone; row parallel there is one part.
  struct Layer {
    Layer(DType dtype, const Splits& splits, Parallel parallel, bool both)
        : parts(parallel == Parallel::row ? std::vector<HfPart>{{"out.weight", kGate + kUp}}
                                          : std::vector<HfPart>{{"gate.weight", kGate}, {"up.weight", kUp}}),
          weight(store.add({.name = "w",
                            .parts = parts,
                            .shape = {kGate + kUp, kIn},
                            .shard = Shard::rows,
                            .trained = false},
                           splits.place())),
          a(store.add(spec_of_a(parallel, both), splits.place())),
          b(store.add(spec_of_b(both), splits.place())) {
      store.allocate(dtype, /*with_gradients=*/true);
      store.clear_grads();
      fill(weight, 1);
      fill(a, 2);
      fill(b, 3);
      linear.emplace(weight, nullptr, splits, parallel, Adapter(a, b, weight, 0.7, on));
    }
    ParamSpec spec_of_a(Parallel parallel, bool both) const {
      ParamSpec spec{.name = "a",
                     .parts = {},
                     .shape = {0, kIn},
                     .partial_grad = parallel == Parallel::column,
                     .grad_by_columns = parallel == Parallel::row};
      for (size_t i = both ? 0 : parts.size() - 1; i < parts.size(); ++i, spec.shape[0] += kRank)
        spec.parts.push_back({module(parts[i]) + ".lora_A.weight", kRank});
      return spec;
    }
    ParamSpec spec_of_b(bool both) const {
      ParamSpec spec{.name = "b", .parts = {}, .shape = {0, kRank}, .shard = Shard::rows};
      for (size_t i = both ? 0 : parts.size() - 1; i < parts.size(); spec.shape[0] += parts[i++].rows)
        spec.parts.push_back({module(parts[i]) + ".lora_B.weight", parts[i].rows});
      return spec;
    }
    static std::string module(const HfPart& part) { return part.name.substr(0, part.name.find('.')); }
    static void fill(const Parameter& p, uint64_t seed) {
      const int64_t width = p.spec.shape[1];
      const Values all = normal_values(p.spec.size(), seed);
      for (const RowSpan& span : p.spans)
        for (int64_t i = 0; i < span.rows * width; ++i)
          dispatch_storage(p.value.dtype, [&](auto s) {
            using S = decltype(s);
            p.value.as<S>()[span.own * width + i] =
                S(static_cast<Accumulate<S>>(all[static_cast<size_t>(span.whole * width + i)]));
          });
    }

    const bool on = true;
    ParameterStore store;
    std::vector<HfPart> parts;
    Parameter &weight, &a, &b;
    std::optional<Linear> linear;
  };

  static Values values(const Tensor& t) { return {t.as<double>(), t.as<double>() + t.size()}; }
  Values to_values(const Tensor& t) { return decode(bytes_of(backend_.ctx(), t), t.dtype); }
  /// Columns of this rank: an equal share of each part.
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
  FlatRange own_tokens(const StreamRows& stream) const {
    return stream.shared ? token_share(stream.tokens, comm_->rank(), comm_->size())
                         : FlatRange{0, stream.tokens};
  }
  Values own_tokens(const Values& whole, const StreamRows& stream) const {
    const FlatRange own = own_tokens(stream);
    const int64_t width = std::ssize(whole) / stream.tokens;
    return {whole.begin() + own.begin * width, whole.begin() + own.end * width};
  }
  /// Rows of this rank, of a whole gradient.
  static Values own_rows(const Tensor& whole, const Parameter& own) {
    const int64_t width = own.spec.shape[1];
    Values rows;
    for (const RowSpan& span : own.spans)
      for (int64_t i = span.whole * width; i < (span.whole + span.rows) * width; ++i)
        rows.push_back(whole.as<double>()[i]);
    return rows;
  }
  Splits splits() const { return {tp_.get()}; }

  Backend backend_{Device::cpu};
  std::unique_ptr<Collectives> tp_ = collectives_of_all();
};

TEST_F(SplitAdapter, ForwardHasTheBitsOfOneRank) {
  for (const StreamRows& stream : kStreams)
    for (const DType dtype : kStorageTypes)
      for (const Parallel parallel : {Parallel::column, Parallel::row})
        for (const bool both : {true, false}) {
          Ctx& c = backend_.ctx();
          ArenaScope scope(c.scratch);
          const bool column = parallel == Parallel::column;
          const Layer whole(dtype, {}, parallel, both), split(dtype, splits(), parallel, both);
          const Values in = round_to(normal_values(stream.tokens * kIn, 3), dtype);
          TestTensor x(c, in, dtype, {stream.tokens, kIn});
          TestTensor own =
              column ? TestTensor(c, own_tokens(in, stream), dtype, {own_tokens(stream).size(), kIn})
                     : TestTensor(c, own_columns(in, {kIn}), dtype, {stream.tokens, kIn / comm_->size()});
          const Values want = to_values(whole.linear->forward(c, x, c.scratch)),
                       got = to_values(split.linear->forward(c, own, c.scratch, stream));
          expect_same_bits(fmt::format("{} tokens, {}", stream.tokens, dtype_name(dtype)), got,
                           column ? own_columns(want, {kGate, kUp}) : own_tokens(want, stream));
        }
}

TEST_F(SplitAdapter, GradientsAreThoseOfOneRankWithinRounding) {
  Ctx& c = backend_.ctx();
  for (const StreamRows& stream : kStreams)
    for (const Parallel parallel : {Parallel::column, Parallel::row})
      for (const bool both : {true, false}) {
        const bool column = parallel == Parallel::column;
        Layer whole(DType::f64, {}, parallel, both), split(DType::f64, splits(), parallel, both);
        const int64_t out = kGate + kUp, ranks = comm_->size(), all = stream.tokens,
                      own = own_tokens(stream).size();
        const Values in = normal_values(all * kIn, 3), up = normal_values(all * out, 4);
        TestTensor x(c, in, DType::f64, {all, kIn}), dy(c, up, DType::f64, {all, out});
        TestTensor own_x = column ? TestTensor(c, own_tokens(in, stream), DType::f64, {own, kIn})
                                  : TestTensor(c, own_columns(in, {kIn}), DType::f64, {all, kIn / ranks}),
                   own_dy = column
                                ? TestTensor(c, own_columns(up, {kGate, kUp}), DType::f64, {all, out / ranks})
                                : TestTensor(c, own_tokens(up, stream), DType::f64, {own, out});
        const Values want = values(whole.linear->backward(c, dy, x)),
                     got = values(split.linear->backward(c, own_dy, own_x, stream));
        expect_near("dx", got, column ? own_tokens(want, stream) : own_columns(want, {kIn}), 1e-12);
        for (const Unit& unit : split.store.units())
          if (unit.trained) complete_gradients(c, *tp_, split.store, unit);
        expect_near("dA", values(split.a.grad), values(whole.a.grad), 1e-12);
        expect_near("dB", values(split.b.grad), own_rows(whole.b.grad, split.b), 1e-12);
        EXPECT_FALSE(split.weight.has_grad());
      }
}

}  // namespace temper
