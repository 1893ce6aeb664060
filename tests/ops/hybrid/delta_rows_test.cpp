// The steps of a gated delta net that are row by row, and the convolution before them: golden numbers,
// gradients in fp64 against differences, bits.

#include "src/ops/hybrid/delta.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

constexpr double kEps = 1e-6;

int64_t width_of(const Values& values, int64_t rows) { return std::ssize(values) / rows; }

// ---- convolution ----

/// x [T, C + 1], w [C, K] -> y
Many conv(Ctx& c, DType t, const Many& in, const std::vector<int32_t>& ends, int64_t channels) {
  const int64_t tokens = ends.back(), row = width_of(in[0], tokens), taps = width_of(in[1], channels);
  TestTensor x(c, in[0], t, {tokens, row}), w(c, in[1], t, {channels, taps}), y(c, t, {tokens, channels});
  causal_conv_forward(c, y, x, w, TestTensor(c, ends, {std::ssize(ends)}));
  return {y.values()};
}

/// dx: of the columns that are read; the others stay 0.
Many conv_backward(Ctx& c, DType t, const Many& in, const Values& dy, const std::vector<int32_t>& ends,
                   int64_t channels) {
  const int64_t tokens = ends.back(), row = width_of(in[0], tokens), taps = width_of(in[1], channels);
  const DType a = accumulate_dtype(t);
  TestTensor x(c, in[0], t, {tokens, row}), w(c, in[1], t, {channels, taps}),
      up(c, dy, t, {tokens, channels});
  TestTensor dx(c, Values(in[0].size(), 0.0), t, {tokens, row}),
      dw(c, Values(in[1].size(), 0.0), a, {channels, taps});
  causal_conv_backward(c, dx, dw, up, x, w, TestTensor(c, ends, {std::ssize(ends)}));
  return {dx.values(), dw.values()};
}

CPU_TEST(CausalConv, GoldenNumbers) {
  TestCtx ctx;
  const Many in{{1, -2, .5, 3}, {.1, -.2, .3, .4}};
  const std::vector<int32_t> ends{0, 4};
  expect_near("y", conv(ctx, DType::f64, in, ends, 1)[0], {0.23947506, -0.18877033, -0.21260622, 1.59863514},
              0, 1e-8);
  const Many gradients = conv_backward(ctx, DType::f64, in, {1, 1, 1, 1}, ends, 1);
  expect_near("dx", gradients[0], {0.42064763, -0.04713019, 0.41123075, 0.43253532}, 0, 1e-8);
  expect_near("dw", gradients[1], {1.08133829, -1.94560343, 0.36656166, 3.52726578}, 0, 1e-8);
}

CPU_TEST(CausalConv, Gradient) {
  for (const int64_t taps : {1, 2, 4, 8}) {
    const std::vector<int32_t> ends{0, 1, 1, 6, 8};
    check_gradient(
        fmt::format("{} taps", taps), {normal_values(8 * 4, 1), normal_values(3 * taps, 2)},
        [&](Ctx& c, DType t, const Many& in) { return conv(c, t, in, ends, 3); },
        [&](Ctx& c, DType t, const Many& in, const Many& douts) {
          return conv_backward(c, t, in, douts[0], ends, 3);
        });
  }
}

CPU_TEST(CausalConv, ASequenceDoesNotSeeOthers) {
  const Values x = normal_values(9 * 70, 3), w = normal_values(70 * 4, 4);
  for (const DType t : kStorageTypes) {
    TestCtx ctx;
    const Values packed = conv(ctx, t, {x, w}, {0, 2, 3, 9}, 70)[0];
    for (const auto& [begin, end] : {std::pair{0, 2}, {2, 3}, {3, 9}})
      expect_same_bits("alone", slice_rows(packed, 70, begin, end),
                       conv(ctx, t, {slice_rows(x, 70, begin, end), w}, {0, end - begin}, 70)[0]);
  }
  check_threads("conv", {x, w}, [](Ctx& c, DType t, const Many& in) {
    return conv(c, t, in, {0, 2, 3, 9}, 70);
  });
}

// ---- unit vectors of heads ----

constexpr DeltaShape kSmall{.key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 2};

Many unit_heads(Ctx& c, DType t, const Many& in, const DeltaShape& shape) {
  TestTensor y(c, in[0], t, {std::ssize(in[0]) / shape.qkv_width(), shape.qkv_width()});
  unit_heads_forward(c, y, shape);
  return {y.values()};
}
Many unit_heads_gradient(Ctx& c, DType t, const Many& in, const Values& dy, const DeltaShape& shape) {
  const int64_t tokens = std::ssize(in[0]) / shape.qkv_width();
  TestTensor y(c, in[0], t, {tokens, shape.qkv_width()}), up(c, dy, t, {tokens, shape.qkv_width()});
  unit_heads_backward(c, up, y, shape);
  return {up.values()};
}

CPU_TEST(UnitHeads, GoldenNumbers) {
  const DeltaShape shape{1, 1, 2, 3};
  const Many in{{1, 2, 2, -1, 7, 8, 9, .5, -1, 1, 1, 7, 8, 9, -2, 1, .5, 2, 7, 8, 9}};
  TestCtx ctx;
  expect_near("y", unit_heads(ctx, DType::f64, in, shape)[0],
              {0.31622773,  0.63245547,  0.8944271, -0.44721355, 7, 8, 9,
               0.31622764,  -0.63245528, 0.7071066, 0.7071066,   7, 8, 9,
               -0.63245547, 0.31622773,  0.2425356, 0.97014239,  7, 8, 9},
              0, 1e-7);
  const Values dy{0.32755103,  0.80892471,  0.63153487,  -0.03462333, 1, 2, 3,
                  0.32778407,  -0.29097421, 0.4239665,   -0.15415342, 1, 2, 3,
                  -1.00728639, 1.0333338,   -0.60859062, 0.38675454,  1, 2, 3};
  expect_near("dy", unit_heads_gradient(ctx, DType::f64, in, dy, shape)[0],
              {-0.01945717, 0.00972865, 0.05029263,  0.10058514,  1, 2, 3,
               0.09223583,  0.04611769, 0.20439625,  -0.20439616, 1, 2, 3,
               0.06700107,  0.13400233, -0.32198649, 0.08049665,  1, 2, 3},
              0, 1e-7);
}

CPU_TEST(UnitHeads, Gradient) {
  check_gradient(
      "unit heads", {normal_values(3 * kSmall.qkv_width(), 5)},
      [](Ctx& c, DType t, const Many& in) { return unit_heads(c, t, in, kSmall); },
      [](Ctx& c, DType t, const Many& in, const Many& douts) {
        return unit_heads_gradient(c, t, in, douts[0], kSmall);
      });
}

// ---- gates ----

/// x, a_log, dt_bias -> beta, g
Many gates(Ctx& c, DType t, const Many& in, const DeltaShape& shape) {
  const DType a = accumulate_dtype(t);
  const int64_t tokens = std::ssize(in[0]) / shape.projected_width(), heads = shape.value_heads;
  TestTensor x(c, in[0], t, {tokens, shape.projected_width()}), a_log(c, in[1], a, {heads}),
      bias(c, in[2], t, {heads}), beta(c, a, {tokens, heads}), g(c, a, {tokens, heads});
  delta_gates_forward(c, beta, g, x, a_log, bias, shape);
  return {beta.values(), g.values()};
}
Many gates_gradient(Ctx& c, DType t, const Many& in, const Many& douts, const DeltaShape& shape) {
  const DType a = accumulate_dtype(t);
  const int64_t tokens = std::ssize(in[0]) / shape.projected_width(), heads = shape.value_heads;
  const Many out = gates(c, t, in, shape);
  TestTensor x(c, in[0], t, {tokens, shape.projected_width()}), a_log(c, in[1], a, {heads}),
      bias(c, in[2], t, {heads});
  TestTensor dx(c, Values(in[0].size(), 0.0), t, {tokens, shape.projected_width()}),
      da_log(c, Values(in[1].size(), 0.0), a, {heads}), dbias(c, Values(in[2].size(), 0.0), a, {heads});
  const auto of = [&](const Values& v) { return TestTensor(c, v, a, {tokens, heads}); };
  delta_gates_backward(c, dx, da_log, dbias, of(douts[0]), of(douts[1]), of(out[0]), of(out[1]), x, a_log,
                       bias, shape);
  return {dx.values(), da_log.values(), dbias.values()};
}

CPU_TEST(DeltaGates, GoldenNumbers) {
  const DeltaShape shape{1, 1, 1, 1};
  const Many in{{0, 0, 0, 0, .7, .3}, {std::log(4.0)}, {-.2}};
  TestCtx ctx;
  const Many out = gates(ctx, DType::f64, in, shape),
             gradient = gates_gradient(ctx, DType::f64, in, {{0}, {1}}, shape);
  expect_near("beta", out[0], {0.66818777}, 0, 1e-8);
  expect_near("g", out[1], {-2.97758664}, 0, 1e-8);
  expect_near("da", gradient[0], {0, 0, 0, 0, 0, -2.09991675}, 0, 1e-8);
  expect_near("da_log", gradient[1], {-2.97758664}, 0, 1e-8);
}

CPU_TEST(DeltaGates, Gradient) {
  check_gradient(
      "gates",
      {normal_values(5 * kSmall.projected_width(), 6, 3.0), normal_values(4, 7), normal_values(4, 8)},
      [](Ctx& c, DType t, const Many& in) { return gates(c, t, in, kSmall); },
      [](Ctx& c, DType t, const Many& in, const Many& douts) {
        return gates_gradient(c, t, in, douts, kSmall);
      });
}

/// fp32 gates are not rounded to a narrower storage; above 20 softplus is its argument.
CPU_TEST(DeltaGates, Limits) {
  const DeltaShape shape{1, 2, 1, 1};
  TestCtx ctx;
  for (const DType t : kStorageTypes) {
    const Many out = gates(ctx, t, {{0, 0, 0, 0, 0, 0, 30, -30, 40, -90}, {0, 0}, {0, 0}}, shape);
    EXPECT_EQ(out[1][0], -40) << dtype_name(t);
    EXPECT_NEAR(out[0][0], 1 / (1 + std::exp(-30.0)), 1e-7) << dtype_name(t);
    EXPECT_LE(out[1][1], 0) << dtype_name(t);
    EXPECT_GT(out[1][1], -1e-38) << dtype_name(t);
  }
}

// ---- gated norm ----

/// o, x, w -> y, rstd
Many gated_norm(Ctx& c, DType t, const Many& in, const DeltaShape& shape) {
  const DType a = accumulate_dtype(t);
  const int64_t tokens = std::ssize(in[0]) / shape.value_width();
  TestTensor o(c, in[0], t, {tokens, shape.value_width()}), x(c, in[1], t, {tokens, shape.projected_width()}),
      w(c, in[2], a, {shape.value_dim}), y(c, t, {tokens, shape.value_width()}),
      rstd(c, a, {tokens, shape.value_heads});
  gated_norm_forward(c, y, rstd, o, x, w, shape, kEps);
  return {y.values(), rstd.values()};
}
Many gated_norm_gradient(Ctx& c, DType t, const Many& in, const Values& dy, const DeltaShape& shape) {
  const DType a = accumulate_dtype(t);
  const int64_t tokens = std::ssize(in[0]) / shape.value_width();
  const Many out = gated_norm(c, t, in, shape);
  TestTensor o(c, in[0], t, {tokens, shape.value_width()}), x(c, in[1], t, {tokens, shape.projected_width()}),
      w(c, in[2], a, {shape.value_dim}), rstd(c, out[1], a, {tokens, shape.value_heads}),
      up(c, dy, t, {tokens, shape.value_width()});
  TestTensor dx(c, Values(in[1].size(), 0.0), t, {tokens, shape.projected_width()}),
      dw(c, Values(in[2].size(), 0.0), a, {shape.value_dim});
  gated_norm_backward(c, up, dx, dw, up, o, x, w, rstd, shape);
  return {up.values(), dx.values(), dw.values()};
}

CPU_TEST(GatedNorm, GoldenNumbers) {
  const DeltaShape shape{1, 1, 1, 4};
  const Many in{{1, -2, 3, .5}, {9, 9, 9, 9, 9, 9, .5, -1, 2, 0, 9, 9}, {1, 2, .5, -1}};
  TestCtx ctx;
  expect_near("y", gated_norm(ctx, DType::f64, in, shape)[0], {0.16489348, 0.5699545, 1.39997288, 0}, 0,
              1e-8);
  const Many gradient = gated_norm_gradient(ctx, DType::f64, in, {.1, -.2, .3, .4}, shape);
  expect_near("do", gradient[0], {-0.00614154, 0.10225724, 0.07210461, -0.01131545}, 0, 1e-8);
  expect_near("dz", slice_rows(gradient[1], 1, 6, 10), {0.0392041, 0.03065687, 0.26006019, -0.05298129}, 0,
              1e-8);
  expect_near("dw", gradient[2], {0.01648935, -0.05699545, 0.83998373, 0}, 0, 1e-8);
}

CPU_TEST(GatedNorm, Gradient) {
  check_gradient(
      "gated norm",
      {normal_values(3 * kSmall.value_width(), 9), normal_values(3 * kSmall.projected_width(), 10),
       normal_values(2, 11)},
      [](Ctx& c, DType t, const Many& in) { return Many{gated_norm(c, t, in, kSmall)[0]}; },
      [](Ctx& c, DType t, const Many& in, const Many& douts) {
        return gated_norm_gradient(c, t, in, douts[0], kSmall);
      });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
