#pragma once
// The optimizer on any number of ranks against a plain loop over all elements, which knows neither units nor
// shards.

#include "src/train/optimizer.h"
#include "tests/support/check_op.h"
#include "tests/support/ranks.h"

namespace temper {

/// Matrices and vectors in two units, sizes that need padding, one parameter that is not trained, one that is
/// wide.
inline std::vector<ParamSpec> optimizer_specs(bool all_trained) {
  const auto spec = [](const char* name, const char* unit, std::vector<int64_t> shape, bool trained = true,
                       bool wide = false) {
    const int64_t rows = shape[0];
    return ParamSpec{.name = name,
                     .parts = {{name, rows}},
                     .shape = std::move(shape),
                     .unit = unit,
                     .trained = trained,
                     .wide = wide};
  };
  return {spec("embed", "embedding", {7, 5}), spec("w1", "layer", {4, 9}),
          spec("n1", "layer", {13}),          spec("fixed", "layer", {3, 6}, all_trained),
          spec("w2", "layer", {5, 11}),       spec("wide", "layer", {37}, true, true),
          spec("b2", "layer", {5}),           spec("head", "head", {6, 6})};
}

class OptimizerOnRanks : public OnRanks {
 protected:
  OptimizerOnRanks() : dp_(collectives_of_all()) {}

  static std::unique_ptr<ParameterStore> make_store(DType dtype, bool all_trained = false) {
    auto store = std::make_unique<ParameterStore>();
    for (const ParamSpec& spec : optimizer_specs(all_trained)) store->add(spec);
    store->allocate(dtype, /*with_gradients=*/true);
    uint64_t seed = 1;
    for (Parameter& p : store->list()) write(p.value, normal_values(p.value.size(), seed++));
    return store;
  }
  /// The same gradients on every rank, as if they had been summed; `scale` sets their norm.
  static void set_gradients(ParameterStore& store, uint64_t step, double scale) {
    for (Parameter& p : store.list())
      if (p.has_grad())
        write(p.grad,
              round_to(normal_values(p.grad.size(), 100 * step + static_cast<uint64_t>(p.offset), scale),
                       DType::f32));
  }
  static void write(const Tensor& to, const Values& values) {
    std::memcpy(to.raw(), encode(values, to.dtype).data(), static_cast<size_t>(to.bytes()));
  }
  static Values read(const CTensor& t) { return decode(bytes_of(context(), t), t.dtype); }
  static Ctx& context() {
    static TestCtx c(2);
    return c;
  }

  std::unique_ptr<Collectives> dp_;
};

/// AdamW as it is written down, in fp64, for one parameter.
struct PlainAdamw {
  Values p, m, v;
  bool decays = false;

  void step(const OptimizerConfig& o, const Values& grad, double lr, double grad_scale, int count) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = grad[i] * grad_scale;
      m[i] = o.betas[0] * m[i] + (1 - o.betas[0]) * g;
      v[i] = o.betas[1] * v[i] + (1 - o.betas[1]) * g * g;
      const double mean = m[i] / (1 - std::pow(o.betas[0], count)),
                   square = v[i] / (1 - std::pow(o.betas[1], count));
      if (decays) p[i] -= lr * o.weight_decay * p[i];
      p[i] -= lr * mean / (std::sqrt(square) + o.eps);
    }
  }
};

inline const OptimizerConfig kOptimizerConfig{
    .lr = 0, .betas = {0.8, 0.95}, .weight_decay = 0.3, .grad_clip = 2.0};
/// Gradients of norm about 13 and 0.13: clipped and not.
inline constexpr double kGradientScales[] = {1.0, 0.01, 0.01, 3.0};

TEST_F(OptimizerOnRanks, EqualsAPlainLoop) {
  for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 1e-13}, {DType::f32, 1e-6}}) {
    const auto store = make_store(dtype);
    Optimizer optimizer(context(), *store, kOptimizerConfig, *dp_);
    std::map<std::string, PlainAdamw> plain;
    for (const Parameter& p : store->list()) {
      const Values zeros(static_cast<size_t>(p.value.size()), 0.0);
      plain[p.spec.name] = {read(p.value), zeros, zeros, p.spec.shape.size() == 2};
    }
    int count = 0;
    for (const double scale : kGradientScales) {
      set_gradients(*store, static_cast<uint64_t>(++count), scale);
      const double lr = 0.01 * count;
      double squares = 0;
      for (const Parameter& p : store->list())
        if (p.has_grad())
          for (const double g : read(p.grad)) squares += g * g;
      const double norm = std::sqrt(squares), factor = std::min(1.0, 2.0 / (norm + 1e-6));
      EXPECT_EQ(factor < 1.0, scale >= 1.0);
      for (const Parameter& p : store->list())
        if (p.has_grad()) plain[p.spec.name].step(kOptimizerConfig, read(p.grad), lr, factor, count);
      EXPECT_NEAR(optimizer.step(context(), *comm_, lr), norm, 1e-12 * norm);
    }
    EXPECT_EQ(optimizer.count(), count);
    for (const Parameter& p : store->list())
      expect_near(p.spec.name, read(p.value), plain[p.spec.name].p, tolerance);
    for (const OptimizerPiece& piece : optimizer.pieces()) {
      const PlainAdamw& want = plain[piece.parameter->spec.name];
      expect_near("m", read(piece.m), slice_rows(want.m, 1, piece.range.begin, piece.range.end), tolerance,
                  1e-9);
      expect_near("v", read(piece.v), slice_rows(want.v, 1, piece.range.begin, piece.range.end), tolerance,
                  1e-9);
    }
  }
}

/// What is not trained keeps its bits, whatever lies in its gradient memory, and has no state; every trained
/// element belongs to one rank; padding stays zero.
TEST_F(OptimizerOnRanks, PiecesCoverWhatIsTrained) {
  const auto store = make_store(DType::f32);
  Optimizer optimizer(context(), *store, kOptimizerConfig, *dp_);
  Values before;
  std::vector<double> owned(store->list().size());
  double trained = 0;
  size_t index = 0;
  for (const Parameter& p : store->list()) {
    if (!p.spec.trained) before = read(p.value);
    for (const OptimizerPiece& piece : optimizer.pieces())
      if (piece.parameter == &p) owned[index] += static_cast<double>(piece.range.size());
    trained += p.spec.trained ? static_cast<double>(p.value.size()) : 0;
    ++index;
  }
  comm_->all_reduce_sum(owned, "owned elements");
  index = 0;
  for (const Parameter& p : store->list())
    EXPECT_EQ(owned[index++], p.spec.trained ? static_cast<double>(p.value.size()) : 0.0) << p.spec.name;
  set_gradients(*store, 1, 1.0);
  optimizer.step(context(), *comm_, 0.1);
  Values all = read(store->flat_values());
  for (const Parameter& p : store->list()) {
    EXPECT_EQ(read(p.value) == before, !p.spec.trained) << p.spec.name;
    std::fill_n(all.begin() + p.offset, p.value.size(), 0.0);
  }
  expect_same_bits("padding", all, Values(all.size(), 0.0));
  EXPECT_GT(trained, 0);
}

/// In bf16 the master takes the bits of an fp32 run with the same start and gradients; the weight is the
/// master rounded, ties away from zero, or where it is wide the master itself.
TEST_F(OptimizerOnRanks, Bf16KeepsAMasterOfFp32) {
  const auto half = make_store(DType::bf16), wide = make_store(DType::f32);
  for (size_t i = 0; i < half->list().size(); ++i) write(wide->list()[i].value, read(half->list()[i].value));
  Optimizer a(context(), *half, kOptimizerConfig, *dp_), b(context(), *wide, kOptimizerConfig, *dp_);
  for (uint64_t step = 1; step <= 3; ++step) {
    set_gradients(*half, step, 1.0);
    set_gradients(*wide, step, 1.0);
    a.step(context(), *comm_, 0.01);
    b.step(context(), *comm_, 0.01);
  }
  ASSERT_EQ(a.pieces().size(), b.pieces().size());
  for (size_t i = 0; i < a.pieces().size(); ++i)
    expect_same_bits("master", read(a.pieces()[i].master), read(b.pieces()[i].weight));
  for (size_t i = 0; i < half->list().size(); ++i) {
    const Values got = read(half->list()[i].value), master = read(wide->list()[i].value);
    for (size_t k = 0; k < got.size() && half->list()[i].spec.trained; ++k) {
      const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(master[k]));
      const uint32_t rounded = half->list()[i].spec.wide ? bits : (bits + 0x8000u) & 0xffff0000u;
      EXPECT_EQ(std::bit_cast<uint32_t>(static_cast<float>(got[k])), rounded);
    }
  }
}

/// However many ranks share the state: without clipping the weights have the bits of one rank.
TEST_F(OptimizerOnRanks, ShardsHaveTheBitsOfOneRank) {
  const std::unique_ptr<Collectives> alone =
      test_world->make_collectives(test_world->rank(), 0, Device::cpu, "alone", kTestWaitLimit);
  OptimizerConfig config = kOptimizerConfig;
  config.grad_clip = 0;
  for (const auto& [dtype, moments, master] : {std::tuple{DType::f32, "fp32", "auto"},
                                               {DType::f32, "bf16", "auto"},
                                               {DType::bf16, "fp32", "auto"},
                                               {DType::bf16, "bf16", "fp32"},
                                               {DType::bf16, "bf16", "remainder"},
                                               {DType::f64, "fp32", "auto"}}) {
    config.state = moments;
    config.master = master;
    const auto whole = make_store(dtype, true), shared = make_store(dtype, true);
    Optimizer one(context(), *whole, config, *alone), all(context(), *shared, config, *dp_);
    for (uint64_t step = 1; step <= 3; ++step) {
      set_gradients(*whole, step, 1.0);
      set_gradients(*shared, step, 1.0);
      one.step(context(), *comm_, 0.01);
      all.step(context(), *comm_, 0.01);
    }
    expect_same_bits("weights", read(shared->flat_values()), read(whole->flat_values()));
    for (const OptimizerPiece& mine : all.pieces())
      for (const OptimizerPiece& piece : one.pieces()) {
        if (piece.parameter->offset != mine.parameter->offset) continue;
        const FlatRange at = mine.range;
        expect_same_bits("m", read(mine.m), read(rows(piece.m, at.begin, at.end)));
        expect_same_bits("v", read(mine.v), read(rows(piece.v, at.begin, at.end)));
        expect_same_bits("master", read(mine.master), read(rows(piece.master, at.begin, at.end)));
      }
  }
}

/// Half of the memory of a master, and the bits of a run with one.
TEST_F(OptimizerOnRanks, RemaindersAreMasters) {
  OptimizerConfig config = kOptimizerConfig;
  const auto with = make_store(DType::bf16), without = make_store(DType::bf16);
  config.master = "fp32";
  Optimizer a(context(), *with, config, *dp_);
  config.master = "remainder";
  Optimizer b(context(), *without, config, *dp_);
  EXPECT_LT(b.state_bytes(), a.state_bytes());
  for (uint64_t step = 1; step <= 50; ++step) {
    set_gradients(*with, step, 1.0);
    set_gradients(*without, step, 1.0);
    a.step(context(), *comm_, 0.01);
    b.step(context(), *comm_, 0.01);
    expect_same_bits("weights", read(without->flat_values()), read(with->flat_values()));
  }
  ASSERT_EQ(a.pieces().size(), b.pieces().size());
  for (size_t i = 0; i < a.pieces().size(); ++i) {
    Values joined = read(b.pieces()[i].master);
    if (b.pieces()[i].parameter->spec.wide) continue;  // its weight is its master
    const Values weight = read(b.pieces()[i].weight);
    for (size_t k = 0; k < joined.size(); ++k)
      joined[k] = joined_master(bf16(static_cast<float>(weight[k])).bits, static_cast<uint16_t>(joined[k]));
    expect_same_bits("master", joined, read(a.pieces()[i].master));
  }
}

/// bf16 moments follow from the seed; the weights of an update do not.
TEST_F(OptimizerOnRanks, MomentsInBf16AreRoundedByTheSeed) {
  OptimizerConfig config = kOptimizerConfig;
  config.state = "bf16";
  const auto moments = [&](uint64_t seed) {
    const auto store = make_store(DType::f32);
    Optimizer optimizer(context(), *store, config, *dp_, seed);
    set_gradients(*store, 1, 1.0);
    optimizer.step(context(), *comm_, 0.01);
    Many all{read(store->flat_values())};
    for (const OptimizerPiece& piece : optimizer.pieces()) all.push_back(read(piece.m));
    return all;
  };
  const Many one = moments(1), again = moments(1), other = moments(2);
  EXPECT_EQ(again, one);
  EXPECT_EQ(other[0], one[0]);
  EXPECT_NE(other, one);
}

TEST_F(OptimizerOnRanks, NonFiniteGradientsChangeNothing) {
  for (const double bad : {std::nan(""), double{INFINITY}}) {
    const auto store = make_store(DType::f32);
    Optimizer optimizer(context(), *store, kOptimizerConfig, *dp_);
    set_gradients(*store, 1, 1.0);
    store->list().back().grad.as<float>()[3] = static_cast<float>(bad);
    const Values before = read(store->flat_values());
    EXPECT_FALSE(std::isfinite(optimizer.step(context(), *comm_, 0.1)));
    EXPECT_EQ(optimizer.count(), 0);
    expect_same_bits("weights", read(store->flat_values()), before);
    for (const OptimizerPiece& piece : optimizer.pieces())
      EXPECT_EQ(read(piece.m), Values(static_cast<size_t>(piece.range.size()), 0.0));
  }
}

}  // namespace temper
