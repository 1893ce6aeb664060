#include "src/ops/norm.h"

#include "src/ops/elementwise.h"
#include "src/ops/rope.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

constexpr double kEps = 1e-6;

/// x, w -> y, rstd
Many norm_forward(Ctx& c, DType dtype, const Many& in) {
  const int64_t width = static_cast<int64_t>(in[1].size()), rows = static_cast<int64_t>(in[0].size()) / width;
  TestTensor x(in[0], dtype, {rows, width}), w(in[1], dtype, {width});
  TestTensor y(dtype, {rows, width}), rstd(accumulate_dtype(dtype), {rows});
  rmsnorm_forward(c, y, rstd, x, w, kEps);
  return {y.values(), rstd.values()};
}

/// x, w; dy, (drstd: not used downstream) -> dx, dw, on top of `before` in dw. In place: dx is the memory of
/// dy.
Many norm_backward(Ctx& c, DType dtype, const Many& in, const Values& upstream, double before = 0.0,
                   bool in_place = false) {
  const int64_t width = static_cast<int64_t>(in[1].size()), rows = static_cast<int64_t>(in[0].size()) / width;
  const DType a = accumulate_dtype(dtype);
  const Many forward = norm_forward(c, dtype, in);
  TestTensor x(in[0], dtype, {rows, width}), w(in[1], dtype, {width}), dy(upstream, dtype, {rows, width});
  TestTensor rstd(forward[1], a, {rows}), dx(dtype, {rows, width});
  TestTensor dw(Values(static_cast<size_t>(width), before), a, {width});
  rmsnorm_backward(c, in_place ? dy : dx, dw, dy, {}, x, w, rstd);
  return {(in_place ? dy : dx).values(), dw.values()};
}

Many only_first(const Many& outputs) { return {outputs[0]}; }

Many norm_inputs(int64_t rows, int64_t width) {
  return {normal_values(rows * width, 1), normal_values(width, 2, 0.3, 1.0)};
}

TEST(RmsNorm, GoldenNumbers) {
  TestCtx ctx;
  const Many in{{1, -2, 3, 0.5}, {1, 2, 0.5, -1}};
  const Many out = norm_forward(ctx, DType::f64, in);
  expect_near("r", out[1], {0.52981287}, 0, 1e-8);
  expect_near("y", out[0], {0.52981287, -2.11925147, 0.79471930, -0.26490643}, 0, 1e-8);
  const Many grad = norm_backward(ctx, DType::f64, in, {0.1, -0.2, 0.3, 0.4});
  expect_near("dx", grad[0], {0.01022447, -0.12641152, -0.04879852, -0.23330356}, 0, 1e-8);
  expect_near("dw", grad[1], {0.05298129, 0.21192515, 0.47683158, 0.10596257}, 0, 1e-8);
}

TEST(RmsNorm, Gradient) {
  for (int64_t width : {1, 5, 16, 37})
    check_gradient(
        "rmsnorm " + std::to_string(width), norm_inputs(3, width),
        [](Ctx& c, DType t, const Many& in) { return only_first(norm_forward(c, t, in)); },
        [](Ctx& c, DType t, const Many& in, const Many& douts) { return norm_backward(c, t, in, douts[0]); });
}

TEST(RmsNorm, Types) {
  check_dtypes("forward", norm_inputs(7, 100), norm_forward);
  Many in = norm_inputs(130, 48);
  in.push_back(normal_values(130 * 48, 3));
  const auto backward = [](Ctx& c, DType t, const Many& all) {
    return norm_backward(c, t, {all[0], all[1]}, all[2]);
  };
  check_dtypes("backward", in, backward);
  check_threads("backward", in, backward);
  check_threads("forward", norm_inputs(900, 48), norm_forward);
}

TEST(RmsNorm, RowsAreIndependent) {
  const Many in = norm_inputs(40, 1000);
  check_rows("rmsnorm", 40, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    return norm_forward(c, t, {slice_rows(in[0], 1000, begin, end), in[1]});
  });
}

/// NUMERICS.md, element by element: lanes of 16, tree, two roundings.
TEST(RmsNorm, BitsFollowTheDefinition) {
  for (int64_t width : {8, 16, 40, 64}) {
    Many in = norm_inputs(1, width);
    for (Values& values : in) values = round_to(values, DType::bf16);
    float lanes[16] = {};
    for (int64_t i = 0; i < width; ++i) {
      const float x = static_cast<float>(in[0][i]);
      lanes[i % 16] = std::fma(x, x, lanes[i % 16]);
    }
    for (int span = 8; span >= 1; span /= 2)
      for (int i = 0; i < span; ++i) lanes[i] += lanes[i + span];
    const float r = 1.0f / std::sqrt(lanes[0] / static_cast<float>(width) + 1e-6f);
    Values want;
    for (int64_t i = 0; i < width; ++i) {
      const float normed = static_cast<float>(bf16(static_cast<float>(in[0][i]) * r));
      want.push_back(static_cast<float>(bf16(static_cast<float>(in[1][i]) * normed)));
    }
    TestCtx ctx;
    const Many got = norm_forward(ctx, DType::bf16, in);
    expect_same_bits("y", got[0], want);
    expect_same_bits("rstd", got[1], {r});
  }
}

TEST(RmsNorm, WeightGradientAccumulates) {
  TestCtx ctx;
  const Many in = norm_inputs(70, 5);
  const Values dy = normal_values(350, 4);
  Values want = norm_backward(ctx, DType::f64, in, dy)[1];
  for (double& x : want) x += 2.5;
  expect_near("dw", norm_backward(ctx, DType::f64, in, dy, 2.5)[1], want, 1e-14);
}

/// dx with the gradient that goes past the norm.
Values residual_backward(Ctx& c, DType dtype, const Many& in, const Values& upstream, const Values& past,
                         bool in_place) {
  const int64_t width = static_cast<int64_t>(in[1].size()), rows = static_cast<int64_t>(in[0].size()) / width;
  const DType a = accumulate_dtype(dtype);
  TestTensor x(in[0], dtype, {rows, width}), w(in[1], dtype, {width}), dy(upstream, dtype, {rows, width}),
      dresidual(past, dtype, {rows, width}), rstd(norm_forward(c, dtype, in)[1], a, {rows}),
      dx(dtype, {rows, width}), dw(Values(static_cast<size_t>(width), 0.0), a, {width});
  Tensor to = in_place ? dresidual : dx;
  rmsnorm_backward(c, to, dw, dy, dresidual, x, w, rstd);
  expect_same_bits("dw", dw.values(), norm_backward(c, dtype, in, upstream)[1]);
  return (in_place ? dresidual : dx).values();
}

/// The residual gradient joins before the only rounding: in fp32 and fp64 as if added afterwards, in bf16 as
/// fp32 rounded once, up to the rounding of fp32 itself.
TEST(RmsNorm, ResidualGradientInOneRounding) {
  TestCtx ctx;
  for (int64_t width : {1, 37, 512}) {
    Many in = norm_inputs(9, width);
    const Values dy = round_to(normal_values(9 * width, 3), DType::bf16),
                 past = round_to(normal_values(9 * width, 4), DType::bf16);
    for (Values& values : in) values = round_to(values, DType::bf16);
    for (DType dtype : {DType::f32, DType::f64}) {
      Values want = norm_backward(ctx, dtype, in, dy)[0];
      for (size_t i = 0; i < want.size(); ++i) want[i] = round_to(past[i] + want[i], dtype);
      expect_same_bits("dx", residual_backward(ctx, dtype, in, dy, past, false), want);
      expect_same_bits("dx in place", residual_backward(ctx, dtype, in, dy, past, true), want);
    }
    const Values half = residual_backward(ctx, DType::bf16, in, dy, past, false);
    expect_same_bits("bf16", half,
                     round_to(residual_backward(ctx, DType::f32, in, dy, past, false), DType::bf16));
    expect_same_bits("bf16 in place", residual_backward(ctx, DType::bf16, in, dy, past, true), half);
  }
}

TEST(RmsNorm, BackwardInPlace) {
  TestCtx ctx;
  const Many in = norm_inputs(70, 37);
  const Values dy = normal_values(70 * 37, 4);
  for (DType dtype : kStorageTypes)
    expect_same_bits("dx", norm_backward(ctx, dtype, in, dy, 0.0, true)[0],
                     norm_backward(ctx, dtype, in, dy)[0]);
}

constexpr AttentionShape kHeads{.q_heads = 4, .kv_heads = 2, .head_dim = 6};

/// x, wq, wk -> y, rstd
Many heads_forward(Ctx& c, DType dtype, const Many& in) {
  const int64_t width = kHeads.qkv_width(), rows = static_cast<int64_t>(in[0].size()) / width;
  TestTensor x(in[0], dtype, {rows, width}), wq(in[1], dtype, {6}), wk(in[2], dtype, {6});
  TestTensor y(dtype, {rows, width}), rstd(accumulate_dtype(dtype), {rows, 6});
  head_norm_forward(c, y, rstd, x, wq, wk, kHeads, kEps);
  return {y.values(), rstd.values()};
}

constexpr int64_t kPositions = 11;
/// Angles of every position.
Values cosines() {
  Values angles = uniform_values(kPositions * 3, 9, -4, 4);
  for (double& x : angles) x = std::cos(x);
  return angles;
}
Values sines() {
  Values angles = uniform_values(kPositions * 3, 9, -4, 4);
  for (double& x : angles) x = std::sin(x);
  return angles;
}

/// head_norm_rope_forward of x, wq, wk
Many turned_forward(Ctx& c, DType dtype, const Many& in) {
  const int64_t width = kHeads.qkv_width(), rows = static_cast<int64_t>(in[0].size()) / width;
  const DType a = accumulate_dtype(dtype);
  TestTensor x(in[0], dtype, {rows, width}), wq(in[1], dtype, {6}), wk(in[2], dtype, {6});
  TestTensor y(dtype, {rows, width}), rstd(a, {rows, 6}), cosine(cosines(), a, {kPositions, 3}),
      sine(sines(), a, {kPositions, 3}), at(random_ids(rows, kPositions, 10), {rows});
  head_norm_rope_forward(c, y, rstd, x, wq, wk, {at, cosine, sine}, kHeads, kEps);
  return {y.values(), rstd.values()};
}

Many heads_backward(Ctx& c, DType dtype, const Many& in, const Values& upstream, bool in_place = false) {
  const int64_t width = kHeads.qkv_width(), rows = static_cast<int64_t>(in[0].size()) / width;
  const DType a = accumulate_dtype(dtype);
  TestTensor x(in[0], dtype, {rows, width}), wq(in[1], dtype, {6}), wk(in[2], dtype, {6});
  TestTensor dy(upstream, dtype, {rows, width}), rstd(heads_forward(c, dtype, in)[1], a, {rows, 6});
  TestTensor dx(dtype, {rows, width}), dwq(Values(6, 0.0), a, {6}), dwk(Values(6, 0.0), a, {6}),
      cosine(cosines(), a, {kPositions, 3}), sine(sines(), a, {kPositions, 3}),
      at(random_ids(rows, kPositions, 10), {rows});
  head_norm_rope_backward(c, in_place ? dy : dx, dwq, dwk, dy, x, wq, wk, rstd, {at, cosine, sine}, kHeads);
  return {(in_place ? dy : dx).values(), dwq.values(), dwk.values()};
}

Many heads_inputs(int64_t rows) {
  return {normal_values(rows * kHeads.qkv_width(), 5), normal_values(6, 6, 0.3, 1.0),
          normal_values(6, 7, 0.3, 1.0)};
}

TEST(HeadNorm, Gradient) {
  check_gradient(
      "head_norm", heads_inputs(3),
      [](Ctx& c, DType t, const Many& in) { return only_first(turned_forward(c, t, in)); },
      [](Ctx& c, DType t, const Many& in, const Many& douts) { return heads_backward(c, t, in, douts[0]); });
}

TEST(HeadNorm, TypesThreadsRows) {
  check_dtypes("forward", heads_inputs(9), heads_forward);
  Many in = heads_inputs(200);
  in.push_back(normal_values(200 * kHeads.qkv_width(), 8));
  const auto backward = [](Ctx& c, DType t, const Many& all) {
    return heads_backward(c, t, {all[0], all[1], all[2]}, all[3]);
  };
  check_dtypes("backward", in, backward);
  check_threads("backward", in, backward);
  check_threads("forward", heads_inputs(800), heads_forward);
  check_rows("forward", 200, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    return heads_forward(c, t, {slice_rows(in[0], kHeads.qkv_width(), begin, end), in[1], in[2]});
  });
}

/// The pass back through rope and norm rounds in between, as the two ops do.
TEST(HeadNorm, BackwardInOnePass) {
  constexpr int64_t T = 70;
  TestCtx ctx;
  Many in = heads_inputs(T);
  const Values upstream = normal_values(T * kHeads.qkv_width(), 8);
  for (DType dtype : kStorageTypes) {
    const DType a = accumulate_dtype(dtype);
    for (Values& values : in) values = round_to(values, dtype);
    TestTensor dy(upstream, dtype, {T, kHeads.qkv_width()}), cosine(cosines(), a, {kPositions, 3}),
        sine(sines(), a, {kPositions, 3}), at(random_ids(T, kPositions, 10), {T});
    const Many got = heads_backward(ctx, dtype, in, upstream);
    const Values same = heads_backward(ctx, dtype, in, upstream, true)[0];
    rope_backward(ctx, dy, at, cosine, sine, kHeads);
    for (int64_t t = 0; t < T; ++t)
      for (int64_t h = 0; h < 8; ++h) {
        const auto head = [&](const Values& all) { return slice_rows(all, 6, 8 * t + h, 8 * t + h + 1); };
        const Values want =
            h < 6 ? norm_backward(ctx, dtype, {head(in[0]), in[h < 4 ? 1 : 2]}, head(dy.values()))[0]
                  : head(dy.values());
        expect_same_bits("head " + std::to_string(h), head(got[0]), want);
      }
    expect_same_bits("in place", same, got[0]);
  }
}

/// Each head is a row of rmsnorm_forward; values pass through.
TEST(HeadNorm, HeadsAreRmsNormRows) {
  TestCtx ctx;
  for (DType dtype : kStorageTypes) {
    Many in = heads_inputs(2);
    for (Values& values : in) values = round_to(values, dtype);
    const Values got = heads_forward(ctx, dtype, in)[0];
    for (int64_t t = 0; t < 2; ++t)
      for (int64_t h = 0; h < 8; ++h) {
        const Values head = slice_rows(in[0], 6, 8 * t + h, 8 * t + h + 1);
        const Values want = h < 6 ? norm_forward(ctx, dtype, {head, in[h < 4 ? 1 : 2]})[0] : head;
        expect_same_bits("head " + std::to_string(h), slice_rows(got, 6, 8 * t + h, 8 * t + h + 1), want);
      }
  }
}

TEST(RmsNorm, WrongShapesAreRefused) {
  TestCtx ctx;
  TestTensor x(DType::f32, {3, 4}), w(DType::f32, {5}), rstd(DType::f32, {3});
  EXPECT_THROW(rmsnorm_forward(ctx, x, rstd, x, w, kEps), Error);
  TestTensor good(DType::f32, {4}), half(DType::bf16, {4});
  EXPECT_THROW(rmsnorm_forward(ctx, x, good, x, good, kEps), Error);
  EXPECT_THROW(rmsnorm_forward(ctx, x, rstd, x, half, kEps), Error);
}

/// The fused passes give the bits of the separate ones, in all types.
TEST(Norm, FusedPasses) {
  constexpr int64_t T = 5, D = 37;
  const AttentionShape shape{3, 1, 24};
  const int64_t W = shape.qkv_width(), dh = shape.head_dim, heads = shape.q_heads + shape.kv_heads;
  TestCtx c;
  for (DType dtype : kStorageTypes) {
    const DType A = accumulate_dtype(dtype);
    TestTensor a(normal_values(T * D, 1), dtype, {T, D}), b(normal_values(T * D, 2), dtype, {T, D}),
        w(normal_values(D, 3), dtype, {D}), sum(dtype, {T, D}), y(dtype, {T, D}), r(A, {T}),
        sum2(dtype, {T, D}), y2(dtype, {T, D}), r2(A, {T});
    add(c, sum, a, b);
    rmsnorm_forward(c, y, r, sum, w, kEps);
    add_rmsnorm_forward(c, y2, sum2, r2, a, b, w, kEps);
    expect_same_bits("sum", sum2.values(), sum.values());
    expect_same_bits("norm of the sum", y2.values(), y.values());
    expect_same_bits("rstd of the sum", r2.values(), r.values());

    TestTensor x(normal_values(T * W, 1), dtype, {T, W}), wq(normal_values(dh, 2), dtype, {dh}),
        wk(normal_values(dh, 3), dtype, {dh}), q(dtype, {T, W}), q2(dtype, {T, W}), rq(A, {T, heads}),
        rq2(A, {T, heads}), cosine(uniform_values(kPositions * dh / 2, 4, -1, 1), A, {kPositions, dh / 2}),
        sine(uniform_values(kPositions * dh / 2, 5, -1, 1), A, {kPositions, dh / 2}),
        at(random_ids(T, kPositions, 8), {T});
    head_norm_forward(c, q, rq, x, wq, wk, shape, kEps);
    rope_forward(c, q, at, cosine, sine, shape);
    head_norm_rope_forward(c, q2, rq2, x, wq, wk, {at, cosine, sine}, shape, kEps);
    expect_same_bits("rotated heads", q2.values(), q.values());
    expect_same_bits("rstd of heads", rq2.values(), rq.values());
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
