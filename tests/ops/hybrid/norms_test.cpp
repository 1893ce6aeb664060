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
TEST(OffsetNorm, BitsFollowTheDefinition) {
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

TEST(OffsetNorm, Types) {
  for (const int64_t width : {8, 24, 100, 256, 896, 1024, 4096, 5000, 16384})
    check_dtypes(fmt::format("width {}", width), {normal_values(5 * width, 1), normal_values(width, 2, 0.3)},
                 norm);
}

TEST(OffsetNorm, BackwardTypes) {
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
    check_dtypes(fmt::format("backward of {} rows of {}", T, D),
                 {normal_values(T * D, 1), normal_values(D, 2, 0.3), normal_values(T * D, 3)},
                 [](Ctx& c, DType t, const Many& in) {
                   return norm_gradient(c, t, {in[0], in[1]}, in[2], {});
                 });
}

TEST(OffsetNorm, RowsAreIndependent) {
  for (const int64_t width : {37, 1000, 2056}) {
    const Many in{normal_values(40 * width, 1), normal_values(width, 2, 0.3), normal_values(40 * width, 3)};
    check_rows(fmt::format("width {}", width), 40, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
      const Many own{slice_rows(in[0], width, begin, end), in[1]};
      Many out = norm(c, t, own);
      out.push_back(norm_gradient(c, t, own, slice_rows(in[2], width, begin, end), {})[0]);
      return out;
    });
  }
}

/// The sum is rounded, and its norm is the norm of what is stored.
TEST(OffsetNorm, SumThenNorm) {
  TestCtx ctx;
  for (const int64_t width : {37, 4096})
    for (const DType t : kStorageTypes) {
      const Values a = round_to(normal_values(3 * width, 1), t), b = round_to(normal_values(3 * width, 2), t);
      const TestTensor left(ctx, a, t, {3, width}), right(ctx, b, t, {3, width}),
          w(ctx, normal_values(width, 3, 0.3), t, {width}), y(ctx, t, {3, width}), sum(ctx, t, {3, width}),
          rstd(ctx, accumulate_dtype(t), {3});
      add_offset_norm_forward(ctx, y, sum, rstd, left, right, w, kEps);
      Values want(a.size());
      for (size_t i = 0; i < a.size(); ++i) want[i] = round_to(a[i] + b[i], t);
      expect_same_bits("sum", sum.values(), want);
      const Many parts = norm(ctx, t, {want, w.values()});
      expect_same_bits("y", y.values(), parts[0]);
      expect_same_bits("rstd", rstd.values(), parts[1]);
    }
}

/// The gradient that goes past the norm joins before the only rounding.
TEST(OffsetNorm, ResidualGradientInOneRounding) {
  TestCtx ctx;
  for (const int64_t width : {1, 37, 512, 4096, 8200}) {
    Many in{normal_values(9 * width, 1), normal_values(width, 2, 0.3)};
    for (Values& values : in) values = round_to(values, DType::bf16);
    const Values dy = round_to(normal_values(9 * width, 3), DType::bf16),
                 past = round_to(normal_values(9 * width, 4), DType::bf16);
    for (const DType t : kStorageTypes) {
      if (t == DType::bf16) continue;
      const Many without = norm_gradient(ctx, t, in, dy, {}), with = norm_gradient(ctx, t, in, dy, past);
      Values want = without[0];
      for (size_t i = 0; i < want.size(); ++i) want[i] = round_to(past[i] + want[i], t);
      expect_same_bits("dx", with[0], want);
      expect_same_bits("dw", with[1], without[1]);
    }
    expect_same_bits("bf16", norm_gradient(ctx, DType::bf16, in, dy, past)[0],
                     round_to(norm_gradient(ctx, DType::f32, in, dy, past)[0], DType::bf16));
  }
}

constexpr AttentionShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 6};
constexpr int64_t kTokens = 3, kRow = 2 * 24 + 2 * 12, kHalf = 2;

int64_t row_of(const AttentionShape& s) { return 2 * s.q_width() + 2 * s.kv_width(); }

/// The rows of a batch from `first` on; their positions are 4, 0, 2, 1, 3, 4, ...
struct Rope {
  Rope(Ctx& c, DType a, int64_t first, int64_t tokens, int64_t half)
      : positions(c, at(first, tokens), {tokens}),
        cosine(c, of(true, half), a, {5, half}),
        sine(c, of(false, half), a, {5, half}) {}
  static std::vector<int32_t> at(int64_t first, int64_t tokens) {
    std::vector<int32_t> positions;
    for (int64_t t = first; t < first + tokens; ++t) positions.push_back(std::array{4, 0, 2, 1, 3}[t % 5]);
    return positions;
  }
  static Values of(bool cosine, int64_t half) {
    Values values;
    for (int64_t t = 0; t < 5; ++t)
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t) * (i % 2 == 0 ? 1.0 : 0.1);
        values.push_back(cosine ? std::cos(angle) : std::sin(angle));
      }
    return values;
  }
  operator RopeInput() const { return {positions, cosine, sine}; }
  TestTensor positions, cosine, sine;
};

/// x, wq, wk -> qkv, rstd
Many heads_of(Ctx& c, DType t, const Many& in, const AttentionShape& shape, int64_t half, int64_t first = 0) {
  const DType a = accumulate_dtype(t);
  const int64_t tokens = std::ssize(in[0]) / row_of(shape), width = shape.head_dim;
  TestTensor x(c, in[0], t, {tokens, row_of(shape)}), wq(c, in[1], t, {width}), wk(c, in[2], t, {width}),
      qkv(c, t, {tokens, shape.qkv_width()}), rstd(c, a, {tokens, shape.q_heads + shape.kv_heads});
  gated_heads_forward(c, qkv, rstd, x, wq, wk, Rope(c, a, first, tokens, half), shape, kEps);
  return {qkv.values(), rstd.values()};
}
Many heads(Ctx& c, DType t, const Many& in) { return heads_of(c, t, in, kShape, kHalf); }

/// The columns of gates of dx stay 0.
Many heads_gradient_of(Ctx& c, DType t, const Many& in, const Values& dqkv, const AttentionShape& shape,
                       int64_t half, int64_t first = 0) {
  const DType a = accumulate_dtype(t);
  const int64_t tokens = std::ssize(in[0]) / row_of(shape), width = shape.head_dim;
  TestTensor x(c, in[0], t, {tokens, row_of(shape)}), wq(c, in[1], t, {width}), wk(c, in[2], t, {width}),
      rstd(c, heads_of(c, t, in, shape, half, first)[1], a, {tokens, shape.q_heads + shape.kv_heads}),
      up(c, dqkv, t, {tokens, shape.qkv_width()});
  TestTensor dx(c, Values(in[0].size(), 0.0), t, {tokens, row_of(shape)}),
      dwq(c, Values(width, 0.0), a, {width}), dwk(c, Values(width, 0.0), a, {width});
  gated_heads_backward(c, dx, dwq, dwk, up, x, wq, wk, rstd, Rope(c, a, first, tokens, half), shape);
  return {dx.values(), dwq.values(), dwk.values()};
}
Many heads_gradient(Ctx& c, DType t, const Many& in, const Values& dqkv) {
  return heads_gradient_of(c, t, in, dqkv, kShape, kHalf);
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

/// Heads of the released models and of none, with angles for whole groups of eight and not.
struct HeadsCase {
  AttentionShape shape;
  int64_t half, tokens;
};
const HeadsCase kHeadsCases[] = {{kShape, kHalf, 40},  {{2, 1, 256}, 32, 19}, {{3, 1, 256}, 128, 7},
                                 {{4, 2, 64}, 8, 19},  {{2, 2, 100}, 10, 19}, {{16, 4, 256}, 32, 5},
                                 {{4, 1, 72}, 36, 33}, {kShape, 3, 3000}};

TEST(GatedHeads, TypesAndRows) {
  for (const auto& [shape, half, tokens] : kHeadsCases) {
    const std::string name = fmt::format("{} rows of {} heads of {}, {} turned pairs", tokens, shape.q_heads,
                                         shape.head_dim, half);
    const int64_t row = row_of(shape), width = shape.qkv_width();
    Many in{normal_values(tokens * row, 5), normal_values(shape.head_dim, 6, 0.3),
            normal_values(shape.head_dim, 7, 0.3), normal_values(tokens * width, 8)};
    const auto run = [&, shape = shape, half = half](Ctx& c, DType t, const Many& all, int64_t first) {
      const Many at{all[0], all[1], all[2]};
      Many out = heads_gradient_of(c, t, at, all[3], shape, half, first);
      const Many forward = heads_of(c, t, at, shape, half, first);
      out.insert(out.end(), forward.begin(), forward.end());
      return out;
    };
    check_dtypes(name, in, [&](Ctx& c, DType t, const Many& at) { return run(c, t, at, 0); });
    if (tokens < 19) continue;
    check_rows(name, tokens, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
      const Many out =
          run(c, t, {slice_rows(in[0], row, begin, end), in[1], in[2], slice_rows(in[3], width, begin, end)},
              begin);
      return Many{out[0], out[3], out[4]};
    });
  }
}

/// o, x -> y
Many gate(Ctx& c, DType t, const Many& in) {
  TestTensor o = alias(c, in[0], t, kTokens), x = alias(c, in[1], t, kTokens), y(c, t, {kTokens, 24});
  output_gate_forward(c, y, o, x, kShape);
  return {y.values()};
}

/// y, do, dx; columns of dx beside those of gates stay 0.
TEST(OutputGate, TypesAndRows) {
  for (const auto& [shape, half, tokens] : kHeadsCases) {
    const int64_t row = row_of(shape), width = shape.q_width();
    const Many in{normal_values(tokens * width, 8), normal_values(tokens * row, 9),
                  normal_values(tokens * width, 10)};
    const std::string name = fmt::format("{} rows of {} heads of {}", tokens, shape.q_heads, shape.head_dim);
    const auto run = [&, shape = shape](Ctx& c, DType t, const Many& at) {
      const int64_t rows = std::ssize(at[0]) / width;
      TestTensor o = alias(c, at[0], t, rows), x = alias(c, at[1], t, rows), up = alias(c, at[2], t, rows),
                 dx = alias(c, Values(at[1].size(), 0.0), t, rows), y(c, t, {rows, width});
      output_gate_forward(c, y, o, x, shape);
      output_gate_backward(c, up, dx, up, o, x, shape);
      return Many{y.values(), up.values(), dx.values()};
    };
    check_dtypes(name, in, run);
    check_rows(name, tokens, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
      const auto cut = [&](const Values& v, int64_t w) { return slice_rows(v, w, begin, end); };
      return run(c, t, {cut(in[0], width), cut(in[1], row), cut(in[2], width)});
    });
  }
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
