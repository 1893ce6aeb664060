// Norms whose weight is 1 + w, and what attention with an output gate has around its core.

#include "src/ops/hybrid/gated_heads.h"
#include "src/ops/hybrid/offset_norm.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

constexpr double kEps = 1e-6;

/// x, w -> y, rstd
Many norm(Ctx& c, DType t, const Many& in) {
  const int64_t width = std::ssize(in[1]), rows = std::ssize(in[0]) / width;
  TestTensor x(c, in[0], t, {rows, width}), w(c, in[1], t, {width}), y(c, t, {rows, width}),
      rstd(c, accumulate_dtype(t), {rows});
  offset_norm_forward(c, y, rstd, x, w, kEps);
  return {y.values(), rstd.values()};
}
Many norm_gradient(Ctx& c, DType t, const Many& in, const Values& dy, const Values& past) {
  const int64_t width = std::ssize(in[1]), rows = std::ssize(in[0]) / width;
  const DType a = accumulate_dtype(t);
  TestTensor x(c, in[0], t, {rows, width}), w(c, in[1], t, {width}), up(c, dy, t, {rows, width}),
      rstd(c, norm(c, t, in)[1], a, {rows}), dw(c, Values(in[1].size(), 0.0), a, {width});
  if (past.empty())
    offset_norm_backward(c, up, dw, up, {}, x, w, rstd);
  else
    offset_norm_backward(c, up, dw, up, TestTensor(c, past, t, {rows, width}), x, w, rstd);
  return {up.values(), dw.values()};
}

/// The golden numbers of a norm by w, with w - 1.
CPU_TEST(OffsetNorm, GoldenNumbers) {
  TestCtx ctx;
  const Many in{{1, -2, 3, 0.5}, {0, 1, -0.5, -2}};
  expect_near("y", norm(ctx, DType::f64, in)[0], {0.52981287, -2.11925147, 0.79471930, -0.26490643}, 0, 1e-8);
  const Many gradient = norm_gradient(ctx, DType::f64, in, {0.1, -0.2, 0.3, 0.4}, {});
  expect_near("dx", gradient[0], {0.01022447, -0.12641152, -0.04879852, -0.23330356}, 0, 1e-8);
  expect_near("dw", gradient[1], {0.05298129, 0.21192515, 0.47683158, 0.10596257}, 0, 1e-8);
  const Values past{1, 2, 3, 4};
  const Values with_past = norm_gradient(ctx, DType::f64, in, {0.1, -0.2, 0.3, 0.4}, past)[0];
  for (size_t i = 0; i < past.size(); ++i) EXPECT_NEAR(with_past[i], gradient[0][i] + past[i], 1e-12);
}

CPU_TEST(OffsetNorm, Gradient) {
  for (const int64_t width : {1, 5, 37})
    check_gradient(
        fmt::format("width {}", width), {normal_values(3 * width, 1), normal_values(width, 2, 0.3)},
        [](Ctx& c, DType t, const Many& in) { return Many{norm(c, t, in)[0]}; },
        [](Ctx& c, DType t, const Many& in, const Many& douts) {
          return norm_gradient(c, t, in, douts[0], {});
        });
}

/// There is one rounding, and none before the weight.
CPU_TEST(OffsetNorm, BitsFollowTheDefinition) {
  Many in{round_to(normal_values(3 * 40, 3), DType::bf16), round_to(normal_values(40, 4, 0.1), DType::bf16)};
  TestCtx ctx;
  const Many out = norm(ctx, DType::bf16, in);
  for (size_t i = 0; i < in[0].size(); ++i) {
    const auto x = static_cast<float>(in[0][i]), r = static_cast<float>(out[1][i / 40]),
               w = static_cast<float>(in[1][i % 40]);
    EXPECT_EQ(out[0][i], static_cast<float>(bf16((x * r) * (1.0f + w))));
  }
}

TestTensor alias(Ctx& c, const Values& v, DType t, int64_t rows) {
  return {c, v, t, {rows, std::ssize(v) / rows}};
}

constexpr AttentionShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 6};
constexpr int64_t kTokens = 3, kRow = 2 * 24 + 2 * 12, kHalf = 2;

struct Rope {
  explicit Rope(Ctx& c, DType a)
      : positions(c, std::vector<int32_t>{4, 0, 2}, {kTokens}),
        cosine(c, of(true), a, {5, kHalf}),
        sine(c, of(false), a, {5, kHalf}) {}
  static Values of(bool cosine) {
    Values values;
    for (int64_t t = 0; t < 5; ++t)
      for (int64_t i = 0; i < kHalf; ++i) {
        const double angle = static_cast<double>(t) * (i == 0 ? 1.0 : 0.1);
        values.push_back(cosine ? std::cos(angle) : std::sin(angle));
      }
    return values;
  }
  operator RopeInput() const { return {positions, cosine, sine}; }
  TestTensor positions, cosine, sine;
};

/// x, wq, wk -> qkv, rstd
Many heads(Ctx& c, DType t, const Many& in) {
  const DType a = accumulate_dtype(t);
  TestTensor x(c, in[0], t, {kTokens, kRow}), wq(c, in[1], t, {6}), wk(c, in[2], t, {6}),
      qkv(c, t, {kTokens, kShape.qkv_width()}), rstd(c, a, {kTokens, 6});
  gated_heads_forward(c, qkv, rstd, x, wq, wk, Rope(c, a), kShape, kEps);
  return {qkv.values(), rstd.values()};
}
Many heads_gradient(Ctx& c, DType t, const Many& in, const Values& dqkv) {
  const DType a = accumulate_dtype(t);
  TestTensor x(c, in[0], t, {kTokens, kRow}), wq(c, in[1], t, {6}), wk(c, in[2], t, {6}),
      rstd(c, heads(c, t, in)[1], a, {kTokens, 6}), up(c, dqkv, t, {kTokens, kShape.qkv_width()});
  TestTensor dx(c, Values(in[0].size(), 0.0), t, {kTokens, kRow}), dwq(c, Values(6, 0.0), a, {6}),
      dwk(c, Values(6, 0.0), a, {6});
  gated_heads_backward(c, dx, dwq, dwk, up, x, wq, wk, rstd, Rope(c, a), kShape);
  return {dx.values(), dwq.values(), dwk.values()};
}

Many head_inputs() {
  return {normal_values(kTokens * kRow, 5), normal_values(6, 6, 0.3), normal_values(6, 7, 0.3)};
}

CPU_TEST(GatedHeads, Gradient) {
  check_gradient(
      "heads", head_inputs(), [](Ctx& c, DType t, const Many& in) { return Many{heads(c, t, in)[0]}; },
      [](Ctx& c, DType t, const Many& in, const Many& douts) { return heads_gradient(c, t, in, douts[0]); });
}

/// A query head is followed by its gate; the rotation is that of the first 4 of 6 elements.
CPU_TEST(GatedHeads, Columns) {
  TestCtx ctx;
  const Many in = head_inputs();
  const Values qkv = heads(ctx, DType::f64, in)[0];
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t h = 0; h < 6; ++h) {
      const int64_t from = t * kRow + (h < 4 ? 12 * h : 48 + 6 * (h - 4)), to = (t * 8 + h) * 6;
      const Values y = norm(ctx, DType::f64, {slice_rows(in[0], 1, from, from + 6), in[h < 4 ? 1 : 2]})[0];
      const int32_t position[] = {4, 0, 2};
      for (int64_t i = 0; i < 6; ++i) {
        const double angle = position[t] * (i % 2 == 0 ? 1.0 : 0.1), c = std::cos(angle), s = std::sin(angle);
        const double want = i < 2 ? y[i] * c - y[i + 2] * s : i < 4 ? y[i] * c + y[i - 2] * s : y[i];
        EXPECT_NEAR(qkv[to + i], want, 1e-14) << t << " " << h << " " << i;
      }
    }
  expect_same_bits("values", slice_rows(qkv, 1, 36, 48), slice_rows(in[0], 1, 60, 72));
}

/// o, x -> y
Many gate(Ctx& c, DType t, const Many& in) {
  TestTensor o = alias(c, in[0], t, kTokens), x = alias(c, in[1], t, kTokens), y(c, t, {kTokens, 24});
  output_gate_forward(c, y, o, x, kShape);
  return {y.values()};
}

CPU_TEST(OutputGate, Gradient) {
  const Many in{normal_values(kTokens * 24, 8), normal_values(kTokens * kRow, 9)};
  check_gradient("gate", in, gate, [](Ctx& c, DType t, const Many& at, const Many& douts) {
    TestTensor o = alias(c, at[0], t, kTokens), x = alias(c, at[1], t, kTokens),
               up = alias(c, douts[0], t, kTokens), dx = alias(c, Values(at[1].size(), 0.0), t, kTokens);
    output_gate_backward(c, up, dx, up, o, x, kShape);
    return Many{up.values(), dx.values()};
  });
  TestCtx ctx;
  const Values y = gate(ctx, DType::f64, in)[0];
  EXPECT_NEAR(y[24 + 6 + 1], in[0][24 + 6 + 1] / (1 + std::exp(-in[1][kRow + 18 + 1])), 1e-14);
}

CPU_TEST(HybridNorms, TypesAndThreads) {
  check_dtypes("norm", {normal_values(5 * 100, 10), normal_values(100, 11, 0.3)}, norm);
  check_dtypes("heads", head_inputs(), heads);
  check_threads("norm", {normal_values(900 * 48, 12), normal_values(48, 13)}, norm);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
