#include "src/ops/norm.h"

#include "src/ops/attention.h"
#include "src/ops/elementwise.h"
#include "src/ops/rope.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

constexpr double kEps = 1e-6;

/// x, w -> y, rstd
Many norm_forward(Ctx& c, DType dtype, const Many& in) {
  const int64_t width = static_cast<int64_t>(in[1].size()), rows = static_cast<int64_t>(in[0].size()) / width;
  TestTensor x(c, in[0], dtype, {rows, width}), w(c, in[1], dtype, {width});
  TestTensor y(c, dtype, {rows, width}), rstd(c, accumulate_dtype(dtype), {rows});
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
  TestTensor x(c, in[0], dtype, {rows, width}), w(c, in[1], dtype, {width}),
      dy(c, upstream, dtype, {rows, width});
  TestTensor rstd(c, forward[1], a, {rows}), dx(c, dtype, {rows, width});
  TestTensor dw(c, Values(static_cast<size_t>(width), before), a, {width});
  const TestTensor& to = in_place ? dy : dx;
  rmsnorm_backward(c, to, dw, dy, {}, x, w, rstd);
  return {to.values(), dw.values()};
}

Many only_first(const Many& outputs) { return {outputs[0]}; }

Many norm_inputs(int64_t rows, int64_t width) {
  return {normal_values(rows * width, 1), normal_values(width, 2, 0.3, 1.0)};
}

CPU_TEST(RmsNorm, GoldenNumbers) {
  TestCtx ctx;
  const Many in{{1, -2, 3, 0.5}, {1, 2, 0.5, -1}};
  const Many out = norm_forward(ctx, DType::f64, in);
  expect_near("r", out[1], {0.52981287}, 0, 1e-8);
  expect_near("y", out[0], {0.52981287, -2.11925147, 0.79471930, -0.26490643}, 0, 1e-8);
  const Many grad = norm_backward(ctx, DType::f64, in, {0.1, -0.2, 0.3, 0.4});
  expect_near("dx", grad[0], {0.01022447, -0.12641152, -0.04879852, -0.23330356}, 0, 1e-8);
  expect_near("dw", grad[1], {0.05298129, 0.21192515, 0.47683158, 0.10596257}, 0, 1e-8);
}

CPU_TEST(RmsNorm, Gradient) {
  for (int64_t width : {1, 5, 16, 37})
    check_gradient(
        "rmsnorm " + std::to_string(width), norm_inputs(3, width),
        [](Ctx& c, DType t, const Many& in) { return only_first(norm_forward(c, t, in)); },
        [](Ctx& c, DType t, const Many& in, const Many& douts) { return norm_backward(c, t, in, douts[0]); });
}

TEST(RmsNorm, Types) {
  for (int64_t width : {8, 24, 100, 256, 896, 1024, 4096, 5000})
    check_dtypes("width " + std::to_string(width), norm_inputs(9, width), norm_forward);
}

/// x, w, dy
Many backward_inputs(int64_t rows, int64_t width) {
  Many in = norm_inputs(rows, width);
  in.push_back(normal_values(rows * width, 3));
  return in;
}
Many backward_of(Ctx& c, DType t, const Many& in) { return norm_backward(c, t, {in[0], in[1]}, in[2]); }

/// Widths of models and of none, on both sides of where kernels change; many rows and one.
TEST(RmsNorm, BackwardTypes) {
  for (const auto& [T, D] : {std::pair<int64_t, int64_t>{130, 48},
                             {9, 5},
                             {9, 100},
                             {9, 1024},
                             {9, 1032},
                             {9, 4096},
                             {5, 4104},
                             {5, 8200},
                             {3, 16384},
                             {1, 896},
                             {5000, 24}})
    check_dtypes(fmt::format("backward of {} rows of {}", T, D), backward_inputs(T, D), backward_of);
}

CPU_TEST(RmsNorm, Threads) {
  check_threads("backward", backward_inputs(130, 48), backward_of);
  check_threads("forward", norm_inputs(900, 48), norm_forward);
}

TEST(RmsNorm, RowsAreIndependent) {
  const Many in = norm_inputs(40, 1000);
  check_rows("rmsnorm", 40, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    return norm_forward(c, t, {slice_rows(in[0], 1000, begin, end), in[1]});
  });
}

/// NUMERICS.md, element by element: lanes of 16, tree, two roundings.
CPU_TEST(RmsNorm, BitsFollowTheDefinition) {
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
  for (DType dtype : kStorageTypes) {
    Values want = norm_backward(ctx, dtype, in, dy)[1];
    for (double& x : want) x += 2.5;
    expect_near("dw", norm_backward(ctx, dtype, in, dy, 2.5)[1], want, dtype == DType::f64 ? 1e-14 : 2e-7);
  }
}

/// Whatever else is in the pack, a row of dx has its bits.
TEST(RmsNorm, BackwardRowsAreIndependent) {
  for (int64_t width : {37, 1000, 2056}) {
    const Many in = backward_inputs(40, width);
    check_rows("backward", 40, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
      return only_first(backward_of(
          c, t, {slice_rows(in[0], width, begin, end), in[1], slice_rows(in[2], width, begin, end)}));
    });
  }
}

/// dx with the gradient that goes past the norm.
Values residual_backward(Ctx& c, DType dtype, const Many& in, const Values& upstream, const Values& past,
                         bool in_place) {
  const int64_t width = static_cast<int64_t>(in[1].size()), rows = static_cast<int64_t>(in[0].size()) / width;
  const DType a = accumulate_dtype(dtype);
  TestTensor x(c, in[0], dtype, {rows, width}), w(c, in[1], dtype, {width}),
      dy(c, upstream, dtype, {rows, width}), dresidual(c, past, dtype, {rows, width}),
      rstd(c, norm_forward(c, dtype, in)[1], a, {rows}), dx(c, dtype, {rows, width}),
      dw(c, Values(static_cast<size_t>(width), 0.0), a, {width});
  const TestTensor& to = in_place ? dresidual : dx;
  rmsnorm_backward(c, to, dw, dy, dresidual, x, w, rstd);
  expect_same_bits("dw", dw.values(), norm_backward(c, dtype, in, upstream)[1]);
  return to.values();
}

/// The residual gradient joins before the only rounding: in fp32 and fp64 as if added afterwards, in bf16 as
/// fp32 rounded once, up to the rounding of fp32 itself.
TEST(RmsNorm, ResidualGradientInOneRounding) {
  TestCtx ctx;
  for (int64_t width : {1, 37, 512, 4096, 8200}) {
    Many in = norm_inputs(9, width);
    const Values dy = round_to(normal_values(9 * width, 3), DType::bf16),
                 past = round_to(normal_values(9 * width, 4), DType::bf16);
    for (Values& values : in) values = round_to(values, DType::bf16);
    for (DType dtype : kStorageTypes) {
      if (dtype == DType::bf16) continue;
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
  for (int64_t width : {37, 1024, 4096}) {
    const Many in = norm_inputs(70, width);
    const Values dy = normal_values(70 * width, 4);
    for (DType dtype : kStorageTypes)
      expect_same_bits("dx", norm_backward(ctx, dtype, in, dy, 0.0, true)[0],
                       norm_backward(ctx, dtype, in, dy)[0]);
  }
}

constexpr AttentionShape kHeads{.q_heads = 4, .kv_heads = 2, .head_dim = 6};

/// x, wq, wk -> y, rstd
Many heads_forward(Ctx& c, DType dtype, const Many& in) {
  const int64_t width = kHeads.qkv_width(), rows = static_cast<int64_t>(in[0].size()) / width;
  TestTensor x(c, in[0], dtype, {rows, width}), wq(c, in[1], dtype, {6}), wk(c, in[2], dtype, {6});
  TestTensor y(c, dtype, {rows, width}), rstd(c, accumulate_dtype(dtype), {rows, 6});
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
  TestTensor x(c, in[0], dtype, {rows, width}), wq(c, in[1], dtype, {6}), wk(c, in[2], dtype, {6});
  TestTensor y(c, dtype, {rows, width}), rstd(c, a, {rows, 6}), cosine(c, cosines(), a, {kPositions, 3}),
      sine(c, sines(), a, {kPositions, 3}), at(c, random_ids(rows, kPositions, 10), {rows});
  head_norm_rope_forward(c, y, rstd, x, wq, wk, {at, cosine, sine}, kHeads, kEps);
  return {y.values(), rstd.values()};
}

Many heads_backward(Ctx& c, DType dtype, const Many& in, const Values& upstream, bool in_place = false) {
  const int64_t width = kHeads.qkv_width(), rows = static_cast<int64_t>(in[0].size()) / width;
  const DType a = accumulate_dtype(dtype);
  TestTensor x(c, in[0], dtype, {rows, width}), wq(c, in[1], dtype, {6}), wk(c, in[2], dtype, {6});
  TestTensor dy(c, upstream, dtype, {rows, width}), rstd(c, heads_forward(c, dtype, in)[1], a, {rows, 6});
  TestTensor dx(c, dtype, {rows, width}), dwq(c, Values(6, 0.0), a, {6}), dwk(c, Values(6, 0.0), a, {6}),
      cosine(c, cosines(), a, {kPositions, 3}), sine(c, sines(), a, {kPositions, 3}),
      at(c, random_ids(rows, kPositions, 10), {rows});
  const TestTensor& to = in_place ? dy : dx;
  head_norm_rope_backward(c, to, dwq, dwk, dy, x, wq, wk, rstd, {at, cosine, sine}, kHeads);
  return {to.values(), dwq.values(), dwk.values()};
}

Many heads_inputs(int64_t rows) {
  return {normal_values(rows * kHeads.qkv_width(), 5), normal_values(6, 6, 0.3, 1.0),
          normal_values(6, 7, 0.3, 1.0)};
}

CPU_TEST(HeadNorm, Gradient) {
  check_gradient(
      "head_norm", heads_inputs(3),
      [](Ctx& c, DType t, const Many& in) { return only_first(turned_forward(c, t, in)); },
      [](Ctx& c, DType t, const Many& in, const Many& douts) { return heads_backward(c, t, in, douts[0]); });
}

/// x, wq, wk, dy
Many heads_backward_inputs(int64_t rows) {
  Many in = heads_inputs(rows);
  in.push_back(normal_values(rows * kHeads.qkv_width(), 8));
  return in;
}
Many heads_backward_of(Ctx& c, DType t, const Many& all) {
  return heads_backward(c, t, {all[0], all[1], all[2]}, all[3]);
}

CPU_TEST(HeadNorm, Threads) {
  check_threads("backward", heads_backward_inputs(200), heads_backward_of);
  check_threads("forward", heads_inputs(800), heads_forward);
}

TEST(HeadNorm, TypesRows) {
  check_dtypes("forward", heads_inputs(9), heads_forward);
  for (int64_t rows : {1, 200, 5000})
    check_dtypes("backward", heads_backward_inputs(rows), heads_backward_of);
  const Many in = heads_inputs(200);
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
    TestTensor dy(ctx, upstream, dtype, {T, kHeads.qkv_width()}), cosine(ctx, cosines(), a, {kPositions, 3}),
        sine(ctx, sines(), a, {kPositions, 3}), at(ctx, random_ids(T, kPositions, 10), {T});
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
  TestTensor x(ctx, DType::f32, {3, 4}), w(ctx, DType::f32, {5}), rstd(ctx, DType::f32, {3});
  EXPECT_THROW(rmsnorm_forward(ctx, x, rstd, x, w, kEps), Error);
  TestTensor good(ctx, DType::f32, {4}), half(ctx, DType::bf16, {4});
  EXPECT_THROW(rmsnorm_forward(ctx, x, good, x, good, kEps), Error);
  EXPECT_THROW(rmsnorm_forward(ctx, x, rstd, x, half, kEps), Error);
}

/// Shapes of real models and of none.
TEST(HeadNorm, ForwardOfManyShapes) {
  for (const AttentionShape shape :
       {AttentionShape{4, 2, 16}, {3, 1, 24}, {32, 8, 128}, {14, 2, 64}, {8, 8, 256}}) {
    constexpr int64_t T = 11;
    const int64_t W = shape.qkv_width(), dh = shape.head_dim, heads = shape.q_heads + shape.kv_heads;
    const Many in{normal_values(T * W, 1), normal_values(dh, 2, 0.3, 1.0), normal_values(dh, 3, 0.3, 1.0)};
    const auto forward = [&](Ctx& c, DType t, const Many& v) {
      const int64_t rows = static_cast<int64_t>(v[0].size()) / W;
      TestTensor x(c, v[0], t, {rows, W}), wq(c, v[1], t, {dh}), wk(c, v[2], t, {dh}), y(c, t, {rows, W}),
          rstd(c, accumulate_dtype(t), {rows, heads});
      head_norm_forward(c, y, rstd, x, wq, wk, shape, kEps);
      return Many{y.values(), rstd.values()};
    };
    check_dtypes(fmt::format("heads of {}", dh), in, forward);
    check_rows(fmt::format("heads of {}", dh), T, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
      return forward(c, t, {slice_rows(in[0], W, begin, end), in[1], in[2]});
    });
  }
}

/// Backward in shapes of real models and of none: values, rows on their own, dx in the memory of dy.
TEST(HeadNorm, BackwardOfManyShapes) {
  for (const AttentionShape shape : {AttentionShape{4, 2, 16},
                                     {3, 1, 24},
                                     {1, 1, 2},
                                     {6, 2, 80},
                                     {32, 8, 128},
                                     {14, 2, 64},
                                     {8, 8, 256}}) {
    constexpr int64_t T = 11, kPlaces = 60;
    const int64_t W = shape.qkv_width(), dh = shape.head_dim, heads = shape.q_heads + shape.kv_heads;
    const Many in{normal_values(T * W, 1), normal_values(dh, 2, 0.3, 1.0), normal_values(dh, 3, 0.3, 1.0),
                  normal_values(T * W, 4), uniform_values(T * heads, 5, 0.5, 1.5)};
    const std::vector<int32_t> positions = random_ids(T, kPlaces, 6);
    const auto backward = [&](Ctx& c, DType t, const Many& v, int64_t begin, int64_t end, bool in_place) {
      const DType a = accumulate_dtype(t);
      const int64_t n = end - begin;
      TestTensor x(c, slice_rows(v[0], W, begin, end), t, {n, W}), wq(c, v[1], t, {dh}), wk(c, v[2], t, {dh}),
          dy(c, slice_rows(v[3], W, begin, end), t, {n, W}),
          rstd(c, slice_rows(v[4], heads, begin, end), a, {n, heads}), dx(c, t, {n, W}),
          dwq(c, Values(static_cast<size_t>(dh), 0.5), a, {dh}),
          dwk(c, Values(static_cast<size_t>(dh), 0.5), a, {dh}),
          at(c, {positions.begin() + begin, positions.begin() + end}, {n}),
          cosine(c, round_to(uniform_values(kPlaces * dh / 2, 7, -1, 1), DType::bf16), a, {kPlaces, dh / 2}),
          sine(c, round_to(uniform_values(kPlaces * dh / 2, 8, -1, 1), DType::bf16), a, {kPlaces, dh / 2});
      const TestTensor& to = in_place ? dy : dx;
      head_norm_rope_backward(c, to, dwq, dwk, dy, x, wq, wk, rstd, {at, cosine, sine}, shape);
      return Many{to.values(), dwq.values(), dwk.values()};
    };
    const std::string name = fmt::format("heads of {}", dh);
    check_dtypes(name, in, [&](Ctx& c, DType t, const Many& v) { return backward(c, t, v, 0, T, false); });
    check_rows(name, T, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
      return only_first(backward(c, t, in, begin, end, begin % 2 == 1));
    });
    TestCtx c;
    for (DType dtype : kStorageTypes) {
      const Many apart = backward(c, dtype, in, 0, T, false), same = backward(c, dtype, in, 0, T, true);
      for (size_t k = 0; k < 3; ++k) expect_same_bits(name + " in place", same[k], apart[k]);
    }
  }
}

/// The sum and its norm in one pass have the bits of the two.
TEST(RmsNorm, OfASum) {
  for (const auto& [T, D] : {std::pair<int64_t, int64_t>{5, 37}, {19, 1032}})
    for (DType dtype : kStorageTypes) {
      const DType A = accumulate_dtype(dtype);
      TestCtx c;
      TestTensor a(c, normal_values(T * D, 1), dtype, {T, D}), b(c, normal_values(T * D, 2), dtype, {T, D}),
          w(c, normal_values(D, 3), dtype, {D}), sum(c, dtype, {T, D}), y(c, dtype, {T, D}), r(c, A, {T}),
          sum2(c, dtype, {T, D}), y2(c, dtype, {T, D}), r2(c, A, {T});
      add(c, sum, a, b);
      rmsnorm_forward(c, y, r, sum, w, kEps);
      add_rmsnorm_forward(c, y2, sum2, r2, a, b, w, kEps);
      expect_same_bits("sum", sum2.values(), sum.values());
      expect_same_bits("norm of the sum", y2.values(), y.values());
      expect_same_bits("rstd of the sum", r2.values(), r.values());
    }
}

/// Norm and rope in one pass have the bits of the two, also where keys and values go to the pages on the way.
TEST(HeadNorm, OnePassWithRopeAndPages) {
  constexpr int64_t T = 7, kPlaces = 60, kPage = 16, kPages = 9;
  const std::vector<int32_t> cu{0, 1, 5, 7}, lengths{20, 33, 2}, positions{19, 29, 30, 31, 32, 0, 1},
      table{3, 8, 0, 5, 1, 7, 2, 4, 6};
  for (const AttentionShape shape : {AttentionShape{6, 2, 80}, {4, 4, 128}, {3, 1, 24}})
    for (DType dtype : kStorageTypes) {
      const int64_t W = shape.qkv_width(), dh = shape.head_dim, heads = shape.q_heads + shape.kv_heads;
      const DType A = accumulate_dtype(dtype);
      TestCtx c;
      TestTensor x(c, normal_values(T * W, 1), dtype, {T, W}), wq(c, normal_values(dh, 2), dtype, {dh}),
          wk(c, normal_values(dh, 3), dtype, {dh}), apart(c, dtype, {T, W}), q(c, dtype, {T, W}),
          q2(c, dtype, {T, W}), r_apart(c, A, {T, heads}), r(c, A, {T, heads}), r2(c, A, {T, heads}),
          cosine(c, uniform_values(kPlaces * dh / 2, 4, -1, 1), A, {kPlaces, dh / 2}),
          sine(c, uniform_values(kPlaces * dh / 2, 5, -1, 1), A, {kPlaces, dh / 2}), at(c, positions, {T}),
          ends(c, cu, {4}), pages(c, table, {3, 3}), filled(c, lengths, {3});
      const RopeInput rope{at, cosine, sine};
      head_norm_forward(c, apart, r_apart, x, wq, wk, shape, kEps);
      rope_forward(c, apart, at, cosine, sine, shape);
      head_norm_rope_forward(c, q, r, x, wq, wk, rope, shape, kEps);
      expect_same_bits("rotated heads", q.values(), apart.values());
      expect_same_bits("rstd of heads", r.values(), r_apart.values());

      const Values empty(static_cast<size_t>(2 * kPages * shape.kv_width() * kPage), 7.0);
      const auto cache = [&] { return TestTensor(c, empty, dtype, {2, kPages, shape.kv_width() * kPage}); };
      const TestTensor k = cache(), v = cache(), k2 = cache(), v2 = cache();
      append_kv(c, {k, v, pages, filled, kPage}, 1, q, ends, shape);
      head_norm_rope_append(c, q2, r2, {k2, v2, pages, filled, kPage}, 1, x, wq, wk, rope, ends, shape, kEps);
      expect_same_bits("keys", k2.values(), k.values());
      expect_same_bits("values", v2.values(), v.values());
      expect_same_bits("rstd", r2.values(), r.values());
      const Values want = q.values(), got = q2.values();
      for (int64_t t = 0; t < T; ++t)
        expect_same_bits("queries", slice_rows(got, 1, t * W, t * W + shape.q_width()),
                         slice_rows(want, 1, t * W, t * W + shape.q_width()));
    }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
