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

/// Sequences of none, of fewer rows than taps, and of many; they end everywhere about where blocks do.
const std::vector<int32_t> kEnds{0, 1, 1, 6, 15, 16, 17, 31, 34, 47, 48, 150, 403};

Many conv_inputs(int64_t tokens, int64_t channels, int64_t taps) {
  return {normal_values(tokens * (channels + 8), 3), normal_values(channels * taps, 4)};
}

TEST(CausalConv, Types) {
  for (const int64_t taps : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const int64_t channels : {3, 64, 70}) {
      const std::string name = fmt::format("{} taps of {} channels", taps, channels);
      Many in = conv_inputs(403, channels, taps);
      check_dtypes(name, in,
                   [&](Ctx& c, DType t, const Many& at) { return conv(c, t, at, kEnds, channels); });
      in.push_back(normal_values(403 * channels, 5));
      check_dtypes("backward, " + name, in, [&](Ctx& c, DType t, const Many& at) {
        return conv_backward(c, t, {at[0], at[1]}, at[2], kEnds, channels);
      });
    }
}

TEST(CausalConv, ManyRowsAndChannels) {
  for (const auto& [tokens, channels] : {std::pair<int32_t, int64_t>{5000, 8}, {40, 2056}, {1, 1030}}) {
    const std::vector<int32_t> ends =
        tokens == 1 ? std::vector<int32_t>{0, 1} : std::vector<int32_t>{0, tokens / 3, tokens - 7, tokens};
    Many in = conv_inputs(tokens, channels, 4);
    in.push_back(normal_values(tokens * channels, 5));
    check_dtypes(fmt::format("{} rows of {} channels", tokens, channels), in,
                 [&, n = channels](Ctx& c, DType t, const Many& at) {
                   Many out = conv_backward(c, t, {at[0], at[1]}, at[2], ends, n);
                   out.push_back(conv(c, t, {at[0], at[1]}, ends, n)[0]);
                   return out;
                 });
  }
}

CPU_TEST(CausalConv, Threads) {
  const Many in{normal_values(9 * 70, 3), normal_values(70 * 4, 4)};
  check_threads("conv", in, [](Ctx& c, DType t, const Many& at) { return conv(c, t, at, {0, 2, 3, 9}, 70); });
}

/// Rows and gradients of rows have the bits of the sequence alone, whatever the others hold. Columns behind
/// the channels are not read.
TEST(CausalConv, ASequenceDoesNotSeeOthers) {
  for (const int64_t channels : {64, 70})
    for (const int64_t taps : {1, 4, 8})
      for (const DType t : kStorageTypes) {
        TestCtx ctx;
        const int64_t row = channels + 8;
        Many in = conv_inputs(403, channels, taps);
        Values dy = normal_values(403 * channels, 5);
        for (int64_t i = 0; i < 403; ++i)
          for (int64_t k = 0; k < row; ++k)
            if (k >= channels) in[0][i * row + k] = NAN;
        for (size_t n = 0; n + 1 < kEnds.size(); ++n) {
          const int64_t begin = kEnds[n], end = kEnds[n + 1];
          if (begin == end) continue;
          Values others(in[0].size(), NAN), other_dy(dy.size(), NAN);
          std::copy(in[0].begin() + begin * row, in[0].begin() + end * row, others.begin() + begin * row);
          std::copy(dy.begin() + begin * channels, dy.begin() + end * channels,
                    other_dy.begin() + begin * channels);
          const Many own{slice_rows(in[0], row, begin, end), in[1]};
          const std::vector<int32_t> alone{0, static_cast<int32_t>(end - begin)};
          ArenaScope scope(static_cast<Ctx&>(ctx).scratch);
          const std::string name = fmt::format("{} taps of {} channels, rows {} to {}, {}", taps, channels,
                                               begin, end, dtype_name(t));
          expect_same_bits(
              name, slice_rows(conv(ctx, t, {others, in[1]}, kEnds, channels)[0], channels, begin, end),
              conv(ctx, t, own, alone, channels)[0]);
          expect_same_bits(
              "dx, " + name,
              slice_rows(conv_backward(ctx, t, {others, in[1]}, other_dy, kEnds, channels)[0], row, begin,
                         end),
              conv_backward(ctx, t, own, slice_rows(dy, channels, begin, end), alone, channels)[0]);
        }
      }
}

TEST(CausalConv, GradientsRepeatAndAddUp) {
  TestCtx ctx;
  const Many in = conv_inputs(403, 70, 4);
  const Values dy = normal_values(403 * 70, 5);
  for (const DType t : kStorageTypes) {
    const Values dw = conv_backward(ctx, t, in, dy, kEnds, 70)[1];
    expect_same_bits("dw again", conv_backward(ctx, t, in, dy, kEnds, 70)[1], dw);
    const DType a = accumulate_dtype(t);
    TestTensor x(ctx, in[0], t, {403, 78}), w(ctx, in[1], t, {70, 4}), up(ctx, dy, t, {403, 70}),
        dx(ctx, t, {403, 78}), twice(ctx, Values(280, 0.0), a, {70, 4});
    const TestTensor ends(ctx, kEnds, {std::ssize(kEnds)});
    for (int i = 0; i < 2; ++i) causal_conv_backward(ctx, dx, twice, up, x, w, ends);
    for (size_t i = 0; i < dw.size(); ++i) EXPECT_EQ(twice.values()[i], 2 * dw[i]) << i;
  }
}

/// Pages of sequences whose rows come in pieces; all that is not written is NaN.
struct Windows {
  Windows(Ctx& c, DType t, int64_t channels, int64_t taps)
      : windows(c, t, {kLayers, kTails, (taps - 1) * channels}),
        tail(c, t, {kLayers, kTails, 1}),
        state(c, accumulate_dtype(t), {kLayers, kTails, 1}) {}
  DeltaPages pages(const CTensor& tails, const CTensor& slots, const CTensor& lengths) const {
    return {windows, tail, tail, state, state, tails, slots, slots, lengths};
  }
  static constexpr int64_t kLayers = 2, kTails = 6;
  TestTensor windows, tail, state;
};

/// In random pieces, some steps being one row of each sequence.
TEST(CausalConv, PiecesHaveTheBitsOfTheWhole) {
  const std::vector<int32_t> lengths{5, 1, 130, 70};
  const std::vector<int32_t> tail_of{3, 0, 5, 2};
  for (const int64_t channels : {64, 70, 1032})
    for (const int64_t taps : {1, 2, 3, 4, 5, 6, 7, 8})
      for (const DType t : kStorageTypes) {
        if (channels == 1032 && taps != 4) continue;
        TestCtx ctx;
        Ctx& c = ctx;
        const std::string name = fmt::format("{} taps of {} channels, {}", taps, channels, dtype_name(t));
        const int64_t row = channels + 8;
        const Windows all(c, t, channels, taps);
        const Values w = normal_values(channels * taps, 6);
        std::vector<Values> x, want, got(lengths.size());
        std::vector<int64_t> done(lengths.size(), 0);
        for (size_t n = 0; n < lengths.size(); ++n) {
          x.push_back(normal_values(lengths[n] * row, 7 + n));
          for (int64_t i = channels - 1; i < std::ssize(x[n]); i += row)
            std::fill_n(x[n].begin() + i + 1, 8, NAN);
          want.push_back(conv(c, t, {x[n], w}, {0, lengths[n]}, channels)[0]);
        }
        for (int64_t step = 0; done[2] < lengths[2]; ++step) {
          ArenaScope scope(c.scratch);
          std::vector<int32_t> ends{0}, tails, seen;
          std::vector<size_t> which;
          Values rows;
          for (size_t n = 0; n < lengths.size(); ++n) {
            const int64_t left = lengths[n] - done[n];
            const int64_t piece = step % 3 == 1 ? 1 : random_ids(1, step % 3 == 0 ? 30 : 3, 17 * step + n)[0],
                          count = std::min(left, piece);
            if (left == 0) continue;
            const Values part = slice_rows(x[n], row, done[n], done[n] + count);
            rows.insert(rows.end(), part.begin(), part.end());
            done[n] += count;
            ends.push_back(ends.back() + static_cast<int32_t>(count));
            tails.push_back(tail_of[n]);
            seen.push_back(static_cast<int32_t>(done[n]));
            which.push_back(n);
          }
          if (ends.back() == 0) continue;
          const int64_t count = std::ssize(which), tokens = ends.back();
          const TestTensor y(c, t, {tokens, channels}), projected(c, rows, t, {tokens, row}),
              taps_of(c, w, t, {channels, taps}), tail(c, tails, {count}), length(c, seen, {count}),
              slots(c, std::vector<int32_t>(which.size(), 0), {count});
          causal_conv_paged(c, y, all.pages(tail, slots, length), 1, projected, taps_of,
                            TestTensor(c, ends, {count + 1}));
          const Values out = y.values();
          for (size_t k = 0; k < which.size(); ++k) {
            const Values part = slice_rows(out, channels, ends[k], ends[k + 1]);
            got[which[k]].insert(got[which[k]].end(), part.begin(), part.end());
          }
        }
        for (size_t n : {size_t{0}, size_t{1}, size_t{2}})
          expect_same_bits(fmt::format("{}, sequence {}", name, n), got[n], want[n]);
        const Values windows = all.windows.values();
        const int64_t window = (taps - 1) * channels;
        for (int64_t k = 0; k < std::ssize(windows); ++k) {
          const int64_t tail = k / window % Windows::kTails;
          if (k / window < Windows::kTails || tail == 1 || tail == 4) {
            ASSERT_TRUE(std::isnan(windows[k])) << name << ": element " << k << " of windows of others";
          }
        }
      }
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

/// Widths of heads on both sides of where kernels change.
std::vector<DeltaShape> shapes_of_heads() {
  std::vector<DeltaShape> shapes{kSmall};
  for (const int64_t width : {8, 64, 72, 100, 128, 200, 256})
    shapes.push_back({.key_heads = 2, .value_heads = 4, .key_dim = width, .value_dim = width});
  shapes.push_back({.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128});
  return shapes;
}

TEST(UnitHeads, TypesAndRows) {
  for (const DeltaShape& shape : shapes_of_heads()) {
    const std::string name = fmt::format("{} heads of {}", shape.key_heads, shape.key_dim);
    const int64_t width = shape.qkv_width();
    const Many in{normal_values(19 * width, 5)};
    check_dtypes(name, in, [&](Ctx& c, DType t, const Many& at) { return unit_heads(c, t, at, shape); });
    check_rows(name, 19, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
      return unit_heads(c, t, {slice_rows(in[0], width, begin, end)}, shape);
    });
    const Values dy = normal_values(19 * width, 6);
    check_dtypes("backward, " + name, {in[0], dy}, [&](Ctx& c, DType t, const Many& at) {
      return unit_heads_gradient(c, t, {at[0]}, at[1], shape);
    });
    check_rows("backward, " + name, 19, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
      return unit_heads_gradient(c, t, {slice_rows(in[0], width, begin, end)},
                                 slice_rows(dy, width, begin, end), shape);
    });
  }
}

/// One rounding, after r and the scale; a head of zeros stays zeros.
TEST(UnitHeads, BitsFollowTheDefinition) {
  const DeltaShape shape{.key_heads = 1, .value_heads = 1, .key_dim = 1, .value_dim = 1};
  TestCtx ctx;
  for (const DType t : kStorageTypes) {
    if (t == DType::f64) continue;
    const Values x = round_to(normal_values(30, 12), DType::bf16), y = unit_heads(ctx, t, {x}, shape)[0];
    for (size_t i = 0; i < x.size(); ++i) {
      const auto v = static_cast<float>(x[i]);
      const float unit = v * (1.0f / std::sqrt(v * v + 1e-6f));
      EXPECT_EQ(y[i], i % 3 == 2 ? x[i] : round_to(unit, t)) << i;
    }
    expect_same_bits("zeros", unit_heads(ctx, t, {Values(3 * kSmall.qkv_width(), 0.0)}, kSmall)[0],
                     Values(3 * kSmall.qkv_width(), 0.0));
  }
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

/// The gates of bf16 rows are as exact as those of fp32 rows.
TEST(DeltaGates, TypesAndRows) {
  for (const auto& [tokens, heads] : {std::pair<int64_t, int64_t>{5, 4}, {300, 32}, {1, 48}, {3000, 33}}) {
    const DeltaShape shape{.key_heads = 1, .value_heads = heads, .key_dim = 1, .value_dim = 2};
    const std::string name = fmt::format("{} rows of {} heads", tokens, heads);
    const int64_t width = shape.projected_width();
    Many in{normal_values(tokens * width, 6, 3.0), normal_values(heads, 7), normal_values(heads, 8)};
    check_dtypes(
        name, in, [&](Ctx& c, DType t, const Many& at) { return gates(c, t, at, shape); }, 2e-6, 2e-6);
    if (tokens == 300)
      check_rows(name, tokens, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
        return gates(c, t, {slice_rows(in[0], width, begin, end), in[1], in[2]}, shape);
      });
    in.push_back(normal_values(tokens * heads, 9));
    in.push_back(normal_values(tokens * heads, 10));
    check_dtypes("backward, " + name, in, [&](Ctx& c, DType t, const Many& at) {
      return gates_gradient(c, t, {at[0], at[1], at[2]}, {at[3], at[4]}, shape);
    });
  }
}

/// fp32 gates are not rounded to a narrower storage; above 20 softplus is its argument.
TEST(DeltaGates, Limits) {
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

TEST(GatedNorm, TypesAndRows) {
  for (const DeltaShape& shape : shapes_of_heads()) {
    const int64_t value = shape.value_width(), width = shape.projected_width();
    for (const int64_t tokens : {19, 300}) {
      const std::string name =
          fmt::format("{} rows of {} heads of {}", tokens, shape.value_heads, shape.value_dim);
      if (tokens == 300 && value > 256) continue;
      Many in{normal_values(tokens * value, 9), normal_values(tokens * width, 10),
              normal_values(shape.value_dim, 11)};
      check_dtypes(name, in, [&](Ctx& c, DType t, const Many& at) { return gated_norm(c, t, at, shape); });
      in.push_back(normal_values(tokens * value, 12));
      check_dtypes("backward, " + name, in, [&](Ctx& c, DType t, const Many& at) {
        return gated_norm_gradient(c, t, {at[0], at[1], at[2]}, at[3], shape);
      });
      if (tokens != 19) continue;
      check_rows(name, tokens, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
        const auto cut = [&](const Values& v, int64_t w) { return slice_rows(v, w, begin, end); };
        const Many own{cut(in[0], value), cut(in[1], width), in[2]};
        Many out = gated_norm(c, t, own, shape);
        const Many gradient = gated_norm_gradient(c, t, own, cut(in[3], value), shape);
        out.insert(out.end(), {gradient[0], gradient[1]});
        return out;
      });
    }
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
