// Backward of the gated delta rule: golden numbers, values against the CPU in fp64, and bits: a sequence has
// the same gradient alone, beside others, and again. What the forward leaves comes from the CPU's.

#include "src/ops/hybrid/delta.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

using Ends = std::vector<int32_t>;

/// qkv, beta, g, do -> u, decays of the CPU's forward in this type
Many written(DType t, const Many& in, const Ends& ends, const DeltaShape& s) {
  const DType a = accumulate_dtype(t);
  const int64_t tokens = ends.back();
  TestCtx cpu(1, Device::cpu);
  Ctx& c = cpu;
  TestTensor qkv(c, in[0], t, {tokens, s.qkv_width()}), beta(c, in[1], a, {tokens, s.value_heads}),
      g(c, in[2], a, {tokens, s.value_heads}), o(c, t, {tokens, s.value_width()}),
      u(c, t, {tokens, s.value_width()}), decays(c, a, {tokens, s.value_heads});
  delta_rule_forward(c, o, u, decays, qkv, beta, g, TestTensor(c, ends, {std::ssize(ends)}), s);
  return {u.values(), decays.values()};
}

/// qkv, beta, g, do, u, decays -> dqkv, dbeta, dg
Many gradient(Ctx& c, DType t, const Many& in, const Ends& ends, const DeltaShape& s) {
  const ArenaScope scope(c.scratch);
  const DType a = accumulate_dtype(t);
  const int64_t tokens = ends.back();
  TestTensor qkv(c, in[0], t, {tokens, s.qkv_width()}), beta(c, in[1], a, {tokens, s.value_heads}),
      up(c, in[3], t, {tokens, s.value_width()}), u(c, in[4], t, {tokens, s.value_width()}),
      decays(c, in[5], a, {tokens, s.value_heads});
  TestTensor dqkv(c, t, {tokens, s.qkv_width()}), dbeta(c, a, {tokens, s.value_heads}),
      dg(c, a, {tokens, s.value_heads});
  delta_rule_backward(c, dqkv, dbeta, dg, up, qkv, beta, u, decays, TestTensor(c, ends, {std::ssize(ends)}),
                      s);
  return {dqkv.values(), dbeta.values(), dg.values()};
}

/// qkv, beta, g, do, u, decays
Many with_writes(DType t, Many in, const Ends& ends, const DeltaShape& s) {
  for (Values& x : written(t, in, ends, s)) in.push_back(std::move(x));
  return in;
}

/// How the rows of a test are: decays of `speed` a row, `beta` or a random one where it is negative, the same
/// key in rows of equal t / `repeats`.
struct Kind {
  const char* name;
  double speed = 0.05, beta = -1;
  int64_t repeats = 1;
};

/// qkv, beta, g, do: keys and queries of length 1 as every type stores them
Many random_rows(int64_t tokens, const DeltaShape& s, uint64_t seed, const Kind& kind) {
  Values qkv = normal_values(tokens * s.qkv_width(), seed);
  const int64_t width = s.qkv_width();
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = s.key_width(); i < 2 * s.key_width(); ++i)
      qkv[t * width + i] = qkv[t / kind.repeats * kind.repeats * width + i];
  TestCtx cpu(1, Device::cpu);
  TestTensor y(cpu, qkv, DType::f64, {tokens, width});
  unit_heads_forward(cpu, y, s);
  Values beta = normal_values(tokens * s.value_heads, seed + 1),
         g = normal_values(tokens * s.value_heads, seed + 2);
  for (double& x : beta) x = kind.beta < 0 ? 1 / (1 + std::exp(-x)) : kind.beta;
  for (double& x : g) x = -kind.speed * x * x;
  return {round_to(y.values(), DType::bf16), round_to(beta, DType::f32), round_to(g, DType::f32),
          round_to(normal_values(tokens * s.value_width(), seed + 3), DType::bf16)};
}

/// dq, dk, dv, dbeta, dg
Many parts(const Many& gradients, const DeltaShape& s) {
  Many all(3);
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    const int64_t column = static_cast<int64_t>(i) % s.qkv_width();
    all[column < s.key_width() ? 0 : column < 2 * s.key_width() ? 1 : 2].push_back(gradients[0][i]);
  }
  all.push_back(gradients[1]);
  all.push_back(gradients[2]);
  return all;
}

double relative_rms(const Values& got, const Values& want) {
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return error == 0 ? 0 : std::sqrt(error / size);
}

/// fp32 within 1e-4; bf16 within 1e-2 or twice what the CPU's bf16 has. Heads of a few elements add up so few
/// roundings that each counts. Prints the errors.
void check_values(const std::string& name, const Many& in, const Ends& ends, const DeltaShape& s) {
  constexpr const char* kNames[] = {"dq", "dk", "dv", "dbeta", "dg"};
  TestCtx cpu(2, Device::cpu), ctx;
  const Many want = parts(gradient(cpu, DType::f64, with_writes(DType::f64, in, ends, s), ends, s), s);
  for (const DType t : {DType::f32, DType::bf16}) {
    const Many given = with_writes(t, in, ends, s);
    const Many got = parts(gradient(ctx, t, given, ends, s), s),
               host = parts(gradient(cpu, t, given, ends, s), s);
    std::string line = fmt::format("{}, {}:", name, dtype_name(t));
    for (size_t k = 0; k < want.size(); ++k) {
      const double error = relative_rms(got[k], want[k]), of_host = relative_rms(host[k], want[k]);
      line += fmt::format(" {} {:.1e} ({:.1e})", kNames[k], error, of_host);
      const double limit = t == DType::f32 ? 1e-4 : std::max(s.key_dim < 8 ? 2e-2 : 1e-2, 2 * of_host);
      EXPECT_LE(error, limit) << name << " " << dtype_name(t) << " " << kNames[k];
    }
    std::printf("  %s\n", line.c_str());
  }
}

std::string text(const DeltaShape& s) {
  return fmt::format("heads {}/{} of {} x {}", s.key_heads, s.value_heads, s.key_dim, s.value_dim);
}

Ends ends_of(const std::vector<int32_t>& lengths) {
  Ends ends{0};
  for (const int32_t n : lengths) ends.push_back(ends.back() + n);
  return ends;
}

/// From a state that is not zero, which the two rows before have made, to a gradient of the last state, which
/// the two rows behind make.
TEST(DeltaRuleBackward, GoldenNumbers) {
  const DeltaShape s{1, 1, 2, 3};
  const Many in{{0,           0,           1,         0,           .1, .2,  -.3,  //
                 0,           0,           0,         1,           .4, -.5, .6,   //
                 0.31622773,  0.63245547,  0.8944271, -0.44721355, 1,  .5,  -1,   //
                 0.31622764,  -0.63245528, 0.7071066, 0.7071066,   2,  -1,  .25,  //
                 -0.63245547, 0.31622773,  0.2425356, 0.97014239,  .5, 1,   1.5,  //
                 1,           0,           0,         0,           0,  0,   0,    //
                 0,           1,           0,         0,           0,  0,   0},
                {1, 1, .9, .3, .6, 0, 0},
                {0, 0, -.1, -.5, -.02, 0, 0},
                {0, 0, 0, 0, 0, 0, 1, -1, .5, .2, .3, -.4, -1, .5, 1, .1, -.2, .3, .05, .1, -.1}};
  const Ends ends{0, 7};
  const Values rows{0.32755103,  0.80892471,  0.63153487,  -0.03462333, 0.45386303,  -0.1914537,  -0.32245923,
                    0.32778407,  -0.29097421, 0.4239665,   -0.15415342, 0.09572608,  -0.09273695, -0.01687241,
                    -1.00728639, 1.0333338,   -0.60859062, 0.38675454,  -0.04837937, 0.07512216,  0.07748364};
  for (const DType t : {DType::f32, DType::bf16}) {
    TestCtx ctx;
    const Many got = gradient(ctx, t, with_writes(t, in, ends, s), ends, s);
    const double e = t == DType::f32 ? 1e-6 : 1e-2;
    expect_near("dqkv", slice_rows(got[0], 7, 2, 5), rows, e);
    expect_near("dv of the state", slice_rows(got[0], 1, 4, 7), {0.31671235, -0.33063906, 0.15221316}, e);
    expect_near("dv of the state", slice_rows(got[0], 1, 11, 14), {0.53139217, -0.61823759, 0.37691808}, e);
    expect_near("dbeta", slice_rows(got[1], 1, 2, 5), {0.70052296, 0.78459602, 0.32896669}, e);
    expect_near("dg", slice_rows(got[2], 1, 2, 5), {0.66770599, 0.73311182, 0.72540026}, e);
  }
}

TEST(DeltaRuleBackward, ShapesAndLengths) {
  const Ends ends = ends_of({1, 3, 15, 0, 16, 17, 63, 64, 65, 200});
  for (const DeltaShape s : {DeltaShape{1, 1, 8, 8},
                             {1, 1, 2, 3},
                             {1, 2, 16, 16},
                             {2, 6, 20, 64},
                             {2, 8, 64, 20},
                             {1, 1, 128, 128},
                             {1, 1, 100, 250}})
    check_values(text(s), random_rows(ends.back(), s, 10, {"slow"}), ends, s);
  for (const DeltaShape s : {DeltaShape{1, 1, 256, 64}, {1, 1, 64, 256}, {1, 1, 256, 256}})
    check_values(text(s), random_rows(150, s, 15, {"slow"}), {0, 21, 150}, s);
  const DeltaShape s{1, 2, 32, 32};
  check_values("700 rows", random_rows(700, s, 20, {"slow"}), {0, 700}, s);
}

/// What the sanitizers run (tools/sanitize_gpu.sh).
TEST(DeltaRuleBackward, FewRows) {
  for (const DeltaShape s : {DeltaShape{1, 2, 128, 128}, {1, 1, 20, 12}, {1, 1, 256, 24}})
    check_values(text(s), random_rows(91, s, 12, {"slow"}), {0, 21, 91}, s);
}

TEST(DeltaRuleBackward, KindsOfRows) {
  const DeltaShape s{1, 2, 64, 32};
  const Ends ends{0, 20, 330};
  for (const Kind& kind : {Kind{"no decay", 0}, Kind{"mixed decay", 1}, Kind{"fast decay", 20},
                           Kind{"beta near 0", .05, 1e-4}, Kind{"beta near 1", .05, 1 - 1e-6},
                           Kind{"repeated keys", .01, -1, 40}, Kind{"repeated keys, beta 1", 0, 1, 40}})
    check_values(kind.name, random_rows(330, s, 30, kind), ends, s);
}

/// Rows [begin, end) of each.
Many rows_of(const Many& all, int64_t tokens, int64_t begin, int64_t end) {
  Many own;
  for (const Values& v : all) own.push_back(slice_rows(v, std::ssize(v) / tokens, begin, end));
  return own;
}

/// As few sequences and as many: how scans share the chip does not show. Again: the same bits.
TEST(DeltaRuleBackward, ASequenceDoesNotSeeOthers) {
  std::vector<int32_t> many(97, 2);
  for (const int32_t n : {70, 0, 130, 64, 200}) many.push_back(n);
  for (const auto& [s, lengths] : {std::pair<DeltaShape, std::vector<int32_t>>{{1, 2, 16, 8}, {5, 130, 75}},
                                   {{1, 1, 20, 36}, {5, 130, 75}},
                                   {{1, 1, 64, 48}, many},
                                   {{1, 1, 72, 40}, many},
                                   {{1, 1, 136, 40}, many}}) {
    const Ends ends = ends_of(lengths);
    const int64_t tokens = ends.back();
    for (const DType t : kStorageTypes) {
      TestCtx ctx;
      const Many in = with_writes(t, random_rows(tokens, s, 40, {"slow"}), ends, s),
                 packed = gradient(ctx, t, in, ends, s), again = gradient(ctx, t, in, ends, s);
      for (size_t k = 0; k < packed.size(); ++k) expect_same_bits("again", again[k], packed[k]);
      for (size_t n = 0; n + 1 < ends.size(); ++n) {
        const int32_t begin = ends[n], end = ends[n + 1];
        if (end - begin < 3) continue;
        const Many alone = gradient(ctx, t, rows_of(in, tokens, begin, end), {0, end - begin}, s),
                   own = rows_of(packed, tokens, begin, end);
        for (size_t k = 0; k < own.size(); ++k)
          expect_same_bits(fmt::format("{} {}, sequence {}, output {}", text(s), dtype_name(t), n, k),
                           alone[k], own[k]);
      }
    }
  }
}

/// NaN in one sequence and in one key head with its value heads stays there.
TEST(DeltaRuleBackward, NaNBeside) {
  const Ends ends{0, 70, 75, 150};
  constexpr int64_t kTokens = 150;
  for (const DeltaShape s : {DeltaShape{2, 4, 20, 12}, {2, 4, 32, 16}})
    for (const DType t : kStorageTypes) {
      TestCtx ctx;
      const Many clean = with_writes(t, random_rows(kTokens, s, 50, {"slow"}), ends, s),
                 want = gradient(ctx, t, clean, ends, s);
      const auto column_head = [&](int64_t width, int64_t column) {
        if (width == s.value_heads) return column / s.heads_per_key();
        if (width == s.value_width()) return column / s.value_dim / s.heads_per_key();
        if (column < 2 * s.key_width()) return column / s.key_dim % s.key_heads;
        return (column - 2 * s.key_width()) / s.value_dim / s.heads_per_key();
      };
      const auto is_dirty = [&](int64_t width, size_t i) {
        const int64_t row = static_cast<int64_t>(i) / width, column = static_cast<int64_t>(i) % width;
        return (row >= 70 && row < 75) || column_head(width, column) == 1;
      };
      Many dirty = clean;
      for (Values& v : dirty)
        for (size_t i = 0; i < v.size(); ++i)
          if (is_dirty(std::ssize(v) / kTokens, i)) v[i] = std::nan("");
      const Many got = gradient(ctx, t, dirty, ends, s);
      for (size_t k = 0; k < got.size(); ++k) {
        Values same = got[k], of_want = want[k];
        for (size_t i = 0; i < same.size(); ++i)
          if (is_dirty(std::ssize(same) / kTokens, i)) same[i] = of_want[i] = 0;
        expect_same_bits(fmt::format("{} {} output {}", text(s), dtype_name(t), k), same, of_want);
      }
    }
}

TEST(DeltaRuleBackward, NoRows) {
  const DeltaShape s{1, 1, 8, 8};
  for (const DType t : kStorageTypes) {
    TestCtx ctx;
    const Many got = gradient(ctx, t, {{}, {}, {}, {}, {}, {}}, {0, 0}, s);
    EXPECT_TRUE(got[0].empty());
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
