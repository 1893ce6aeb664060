// The gated delta rule: golden numbers, the recurrence in fp64, gradients against differences, and bits: a
// row is the same whole, in pieces over pages, and beside other sequences.

#include "src/ops/hybrid/delta.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

using Ends = std::vector<int32_t>;

/// qkv, beta, g -> o, u, decays
Many rule(Ctx& c, DType t, const Many& in, const Ends& ends, const DeltaShape& s) {
  const DType a = accumulate_dtype(t);
  const int64_t tokens = ends.back();
  TestTensor qkv(c, in[0], t, {tokens, s.qkv_width()}), beta(c, in[1], a, {tokens, s.value_heads}),
      g(c, in[2], a, {tokens, s.value_heads});
  TestTensor o(c, t, {tokens, s.value_width()}), u(c, t, {tokens, s.value_width()}),
      decays(c, a, {tokens, s.value_heads});
  delta_rule_forward(c, o, u, decays, qkv, beta, g, TestTensor(c, ends, {std::ssize(ends)}), s);
  return {o.values(), u.values(), decays.values()};
}

Many rule_gradient(Ctx& c, DType t, const Many& in, const Values& d_o, const Ends& ends,
                   const DeltaShape& s) {
  const DType a = accumulate_dtype(t);
  const int64_t tokens = ends.back();
  const Many out = rule(c, t, in, ends, s);
  TestTensor qkv(c, in[0], t, {tokens, s.qkv_width()}), beta(c, in[1], a, {tokens, s.value_heads}),
      u(c, out[1], t, {tokens, s.value_width()}), decays(c, out[2], a, {tokens, s.value_heads}),
      up(c, d_o, t, {tokens, s.value_width()});
  TestTensor dqkv(c, t, {tokens, s.qkv_width()}), dbeta(c, a, {tokens, s.value_heads}),
      dg(c, a, {tokens, s.value_heads});
  delta_rule_backward(c, dqkv, dbeta, dg, up, qkv, beta, u, decays, TestTensor(c, ends, {std::ssize(ends)}),
                      s);
  return {dqkv.values(), dbeta.values(), dg.values()};
}

/// Unit keys, gates between 0 and 1, decays of `speed` a row.
Many random_rows(int64_t tokens, const DeltaShape& s, uint64_t seed, double speed = 0.3) {
  Values qkv = normal_values(tokens * s.qkv_width(), seed);
  TestCtx ctx(1, Device::cpu);
  TestTensor y(ctx, qkv, DType::f64, {tokens, s.qkv_width()});
  unit_heads_forward(ctx, y, s);
  Values beta = normal_values(tokens * s.value_heads, seed + 1),
         g = normal_values(tokens * s.value_heads, seed + 2);
  for (double& x : beta) x = 1 / (1 + std::exp(-x));
  for (double& x : g) x = -speed * x * x;
  return {y.values(), beta, g};
}

/// Row after row, as the recurrence says it.
Values recurrence(const Many& in, const Ends& ends, const DeltaShape& s) {
  Values o(static_cast<size_t>(ends.back() * s.value_width()));
  for (size_t n = 0; n + 1 < ends.size(); ++n)
    for (int64_t h = 0; h < s.value_heads; ++h) {
      Values state(static_cast<size_t>(s.key_dim * s.value_dim), 0.0);
      for (int64_t t = ends[n]; t < ends[n + 1]; ++t) {
        const double* row = in[0].data() + t * s.qkv_width();
        const double *q = row + h / s.heads_per_key() * s.key_dim, *k = q + s.key_width(),
                     *v = row + 2 * s.key_width() + h * s.value_dim;
        const int64_t at = t * s.value_heads + h;
        for (double& x : state) x *= std::exp(in[2][at]);
        for (int64_t d = 0; d < s.value_dim; ++d) {
          double seen = 0, out = 0;
          for (int64_t i = 0; i < s.key_dim; ++i) seen += k[i] * state[i * s.value_dim + d];
          const double u = in[1][at] * (v[d] - seen);
          for (int64_t i = 0; i < s.key_dim; ++i) {
            double& x = state[i * s.value_dim + d];
            x += k[i] * u;
            out += x * q[i];
          }
          o[at * s.value_dim + d] = out;
        }
      }
    }
  return o;
}

/// From a state that is not zero: the row before has made it.
CPU_TEST(DeltaRule, GoldenNumbers) {
  const DeltaShape s{1, 1, 2, 3};
  // S = ((.1, .2, -.3), (.4, -.5, .6)): rows 0 and 1 write it, with keys that are no unit vectors.
  const Many in{{0,           0,           1,         0,           .1, .2,  -.3,  //
                 0,           0,           0,         1,           .4, -.5, .6,   //
                 0.31622773,  0.63245547,  0.8944271, -0.44721355, 1,  .5,  -1,   //
                 0.31622764,  -0.63245528, 0.7071066, 0.7071066,   2,  -1,  .25,  //
                 -0.63245547, 0.31622773,  0.2425356, 0.97014239,  .5, 1,   1.5},
                {1, 1, .9, .3, .6},
                {0, 0, -.1, -.5, -.02}};
  TestCtx ctx;
  const Ends ends{0, 5};
  const Many out = rule(ctx, DType::f64, in, ends, s);
  expect_near("u", slice_rows(out[1], 3, 2, 5),
              {0.972838, 0.122229, -0.462972, 0.48581214, -0.27210697, 0.0667135, -0.00279906, 0.88759231,
               0.66613722},
              0, 1e-6);
  expect_near("o", slice_rows(out[0], 3, 2, 5),
              {0.25752122, -0.22890775, 0.25752122, 0.10367054, 0.31104165, -0.43408988, -0.4818574,
               -0.00869488, 0.48632264},
              0, 2e-7);
  // Nothing reads the last state: dq alone does not depend on its gradient.
  const Many gradient =
      rule_gradient(ctx, DType::f64, in, {0, 0, 0, 0, 0, 0, 1, -1, .5, .2, .3, -.4, -1, .5, 1}, ends, s);
  expect_near("dq", slice_rows(gradient[0], 1, 14, 16), {0.32755103, 0.80892471}, 0, 2e-7);
}

CPU_TEST(DeltaRule, IsTheRecurrence) {
  const DeltaShape s{2, 6, 5, 3};
  const Ends ends{0, 1, 1, 64, 66, 200, 330};
  TestCtx ctx;
  for (const double speed : {0.0, 0.01, 0.3, 20.0}) {
    const Many in = random_rows(330, s, 20, speed);
    expect_near(fmt::format("speed {}", speed), rule(ctx, DType::f64, in, ends, s)[0],
                recurrence(in, ends, s), 0, 1e-12);
  }
}

double rms(const Values& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

/// Heads of any size, by the error that rounding makes.
TEST(DeltaRule, IsNearTheRecurrence) {
  for (const DeltaShape& s : {DeltaShape{1, 2, 128, 128},
                              {2, 2, 64, 64},
                              {2, 6, 5, 3},
                              {1, 3, 24, 40},
                              {1, 1, 256, 256},
                              {1, 4, 100, 136}})
    for (const double speed : {0.0, 0.01, 0.3, 20.0}) {
      const Ends ends{0, 1, 64, 66, 330};
      Many in = random_rows(330, s, 20, speed);
      for (Values& x : in) x = round_to(x, DType::bf16);
      const Values want = recurrence(in, ends, s);
      for (const DType t : {DType::f32, DType::bf16}) {
        TestCtx ctx;
        Values error = rule(ctx, t, in, ends, s)[0];
        for (size_t i = 0; i < error.size(); ++i) error[i] -= want[i];
        const double relative = rms(error) / rms(want);
        EXPECT_LE(relative, t == DType::f32 ? 2e-5 : 6e-3)
            << dtype_name(t) << ", heads of " << s.key_dim << " and " << s.value_dim << ", speed " << speed;
      }
    }
}

CPU_TEST(DeltaRule, Gradient) {
  const DeltaShape s{1, 2, 3, 2};
  const Ends ends{0, 2, 68};
  check_gradient(
      "rule", random_rows(68, s, 30, 0.05),
      [&](Ctx& c, DType t, const Many& in) { return Many{rule(c, t, in, ends, s)[0]}; },
      [&](Ctx& c, DType t, const Many& in, const Many& douts) {
        return rule_gradient(c, t, in, douts[0], ends, s);
      });
}

/// Three chunks, compared where they meet: a step of the loss along one random direction.
CPU_TEST(DeltaRule, GradientOverChunks) {
  const DeltaShape s{2, 4, 8, 4};
  const Ends ends{0, 150};
  const Many in = random_rows(150, s, 40, 0.02);
  const Values d_o = normal_values(150 * s.value_width(), 43);
  TestCtx ctx;
  const Many gradient = rule_gradient(ctx, DType::f64, in, d_o, ends, s);
  for (size_t k = 0; k < in.size(); ++k) {
    const Values direction = normal_values(std::ssize(in[k]), 44 + k);
    const auto loss = [&](double step) {
      Many at = in;
      for (size_t i = 0; i < direction.size(); ++i) at[k][i] += step * direction[i];
      const Values o = rule(ctx, DType::f64, at, ends, s)[0];
      long double sum = 0;
      for (size_t i = 0; i < o.size(); ++i) sum += static_cast<long double>(o[i]) * d_o[i];
      return sum;
    };
    double analytic = 0;
    for (size_t i = 0; i < direction.size(); ++i) analytic += gradient[k][i] * direction[i];
    const double numeric = static_cast<double>((loss(1e-5) - loss(-1e-5)) / 2e-5L);
    EXPECT_NEAR(analytic, numeric, 1e-6 * (1 + std::abs(numeric))) << "input " << k;
  }
}

TEST(DeltaRule, Types) {
  const DeltaShape s{2, 4, 16, 16};
  const Ends ends{0, 70, 73, 140};
  check_dtypes(
      "forward", random_rows(140, s, 50),
      [&](Ctx& c, DType t, const Many& at) { return Many{rule(c, t, at, ends, s)[0]}; }, 5e-6, 2e-2);
}

CPU_TEST(DeltaRule, TypesOfTheGradient) {
  const DeltaShape s{2, 4, 16, 16};
  const Ends ends{0, 70, 73, 140};
  check_dtypes(
      "backward", random_rows(140, s, 50),
      [&](Ctx& c, DType t, const Many& at) {
        return rule_gradient(c, t, at, normal_values(140 * s.value_width(), 53), ends, s);
      },
      5e-6, 3e-2);
}

CPU_TEST(DeltaRule, Threads) {
  const DeltaShape s{2, 4, 16, 16};
  const Ends ends{0, 70, 73, 140};
  const Many in = random_rows(140, s, 50);
  check_threads("forward", in,
                [&](Ctx& c, DType t, const Many& at) { return Many{rule(c, t, at, ends, s)[0]}; });
  check_threads("backward", in, [&](Ctx& c, DType t, const Many& at) {
    return rule_gradient(c, t, at, normal_values(140 * s.value_width(), 53), ends, s);
  });
}

/// Each sequence alone: its rows of everything, in calls of their own.
void expect_alone(const Many& in, const Ends& ends, const std::function<Many(const Many&, const Ends&)>& op) {
  const int64_t tokens = ends.back();
  const Many packed = op(in, ends);
  for (size_t n = 0; n + 1 < ends.size(); ++n) {
    const int32_t begin = ends[n], end = ends[n + 1];
    const auto own_rows = [&](const Values& v) { return slice_rows(v, std::ssize(v) / tokens, begin, end); };
    Many own;
    for (const Values& v : in) own.push_back(own_rows(v));
    const Many alone = op(own, {0, end - begin});
    for (size_t k = 0; k < alone.size(); ++k)
      expect_same_bits(fmt::format("sequence {}, output {}", n, k), own_rows(packed[k]), alone[k]);
  }
}

TEST(DeltaRule, ASequenceDoesNotSeeOthers) {
  for (const DeltaShape& s : {DeltaShape{1, 2, 16, 8}, {1, 2, 128, 128}, {1, 1, 20, 33}})
    for (const DType t : kStorageTypes) {
      TestCtx ctx;
      expect_alone(random_rows(210, s, 60), {0, 5, 135, 210},
                   [&](const Many& in, const Ends& ends) { return rule(ctx, t, in, ends, s); });
    }
}

CPU_TEST(DeltaRule, TheGradientOfASequenceDoesNotSeeOthers) {
  const DeltaShape s{1, 2, 16, 8};
  for (const DType t : kStorageTypes) {
    TestCtx ctx;
    Many in = random_rows(210, s, 60);
    in.push_back(normal_values(210 * s.value_width(), 63));
    expect_alone(in, {0, 5, 135, 210}, [&](const Many& rows, const Ends& ends) {
      return rule_gradient(ctx, t, {rows[0], rows[1], rows[2]}, rows[3], ends, s);
    });
  }
}

/// What follows a row changes nothing in it, chunk borders and rows of zeros of either sign among them.
TEST(DeltaRule, PrefixesHaveTheSameBits) {
  for (const DeltaShape& s : {DeltaShape{1, 1, 16, 16}, {1, 1, 128, 128}}) {
    Many in = random_rows(130, s, 70);
    for (int64_t t = 0; t < 130; t += 3)
      for (int64_t i = 0; i < s.qkv_width(); ++i) in[0][t * s.qkv_width() + i] = i % 2 ? -0.0 : 0.0;
    for (const DType t : kStorageTypes) {
      TestCtx ctx;
      const Values whole = rule(ctx, t, in, {0, 130}, s)[0];
      for (const int32_t end : {1, 15, 17, 63, 64, 65, 128, 129}) {
        const auto of = [&](const Values& v) { return slice_rows(v, std::ssize(v) / 130, 0, end); };
        expect_same_bits(fmt::format("{} rows", end), of(whole),
                         rule(ctx, t, {of(in[0]), of(in[1]), of(in[2])}, {0, end}, s)[0]);
      }
    }
  }
}

// ---- pages ----

/// Tails and slots, filled with NaN, of one layer behind another.
struct Pages {
  Pages(Ctx& c, DType t, const DeltaShape& s, int64_t tails, int64_t slots, int64_t taps)
      : windows(c, t, {2, tails, (taps - 1) * s.qkv_width()}),
        keys(c, t, {2, tails, kDeltaChunk * s.key_width()}),
        writes(c, t, {2, tails, kDeltaChunk * s.value_width()}),
        decays(c, accumulate_dtype(t), {2, tails, kDeltaChunk * s.value_heads}),
        states(c, accumulate_dtype(t), {2, slots, s.value_width() * s.key_dim}) {}
  DeltaPages with(const CTensor& tails, const CTensor& from, const CTensor& to,
                  const CTensor& lengths) const {
    return {windows, keys, writes, decays, states, tails, from, to, lengths};
  }
  TestTensor windows, keys, writes, decays, states;
};

constexpr int64_t kTaps = 4;

/// A sequence of rows in, and what an op gives of all of them.
struct Sequence {
  Values part(const Values& v, int64_t begin, int64_t end) const {
    return slice_rows(v, std::ssize(v) / length, begin, end);
  }

  int64_t length;
  Many in;
  Values want;
  int64_t done = 0;
  int32_t slot = 7;
};

/// The next rows of some sequences, in one batch.
struct Piece {
  /// So many rows of each sequence, as far as it has them; the first is there without any, too. A border has
  /// a slot of its own: none is read after it was written to.
  Piece(std::vector<Sequence>& sequences, const std::vector<int64_t>& counts, int32_t& next_slot) {
    for (size_t n = 0; n < counts.size(); ++n) {
      Sequence& s = sequences[n];
      const int64_t end = std::min(s.length, s.done + counts[n]);
      if (end == s.done && n > 0) continue;
      tails.push_back(n == 0 ? 2 : 0);
      in.resize(s.in.size());
      for (size_t k = 0; k < in.size(); ++k) append(in[k], s.part(s.in[k], s.done, end));
      append(want, s.part(s.want, s.done, end));
      ends.push_back(ends.back() + static_cast<int32_t>(end - s.done));
      lengths.push_back(static_cast<int32_t>(end));
      from.push_back(s.slot);
      if (end / kDeltaChunk > s.done / kDeltaChunk) s.slot = next_slot++;
      to.push_back(s.slot);
      s.done = end;
    }
  }
  static void append(Values& to, const Values& more) { to.insert(to.end(), more.begin(), more.end()); }

  Many in;
  Values want;
  Ends ends{0}, lengths, tails, from, to;
};

/// An op on the rows of a piece, with the pages and cu_seqlens.
using PagedOp = std::function<Values(Ctx&, const Many&, const DeltaPages&, const CTensor&, int64_t tokens)>;

void expect_piece(Ctx& c, const Pages& pages, const Piece& p, const PagedOp& op) {
  const int64_t count = std::ssize(p.from);
  if (p.ends.back() == 0) return;
  ArenaScope scope(c.scratch);
  TestTensor tails(c, p.tails, {count}), from(c, p.from, {count}), to(c, p.to, {count}),
      lengths(c, p.lengths, {count}), cu(c, p.ends, {count + 1});
  expect_same_bits("rows", op(c, p.in, pages.with(tails, from, to, lengths), cu, p.ends.back()), p.want);
}

/// Two sequences in random pieces, of a few rows or of more than a chunk.
void expect_pieces(Ctx& c, DType t, const DeltaShape& s, std::vector<Sequence> sequences, uint64_t seed,
                   const PagedOp& op) {
  const Pages pages(c, t, s, /*tails=*/3, /*slots=*/8, kTaps);
  int32_t next_slot = 0;
  const auto left = [&](size_t n) { return sequences[n].done < sequences[n].length; };
  for (uint64_t turn = 0; left(0) || left(1); ++turn) {
    const Values draw = normal_values(2, 1000 * seed + turn, turn % 5 == 4 ? 90 : 4);
    const auto count = [&](size_t n) { return static_cast<int64_t>(std::abs(draw[n])); };
    expect_piece(c, pages, Piece(sequences, {count(0), count(1)}, next_slot), op);
  }
}

/// Some rows are -0, underflow, are huge, or forget all that was before them.
void make_strange(Many& in, const DeltaShape& s) {
  const int64_t tokens = std::ssize(in[1]) / s.value_heads;
  for (int64_t t = 0; t < tokens; ++t) {
    double* const row = in[0].data() + t * s.qkv_width();
    for (int64_t i = 0; i < s.qkv_width(); ++i) {
      if (t % 7 == 1) row[i] = -0.0;
      if (t % 7 == 3) row[i] *= i < 2 * s.key_width() ? 1e-20 : 1e-30;
      if (t % 7 == 4 && i >= 2 * s.key_width()) row[i] *= 1e7;
    }
    for (int64_t h = 0; t % 7 == 5 && h < s.value_heads; ++h) in[2][t * s.value_heads + h] = -90;
  }
}

/// The rule on two sequences with these lengths; every second seed has strange rows.
void expect_pieces_of_rule(Ctx& ctx, DType t, const DeltaShape& s, std::pair<int32_t, int32_t> lengths,
                           uint64_t seed) {
  const auto sequence = [&](int32_t length, uint64_t at) {
    Many in = random_rows(length, s, at);
    if (seed % 2 == 1) make_strange(in, s);
    return Sequence{length, in, rule(ctx, t, in, {0, length}, s)[0]};
  };
  expect_pieces(ctx, t, s,
                {sequence(lengths.first, 80 + 10 * seed), sequence(lengths.second, 85 + 10 * seed)}, seed,
                [&](Ctx& c, const Many& in, const DeltaPages& pages, const CTensor& cu, int64_t tokens) {
                  const DType a = accumulate_dtype(t);
                  TestTensor o(c, t, {tokens, s.value_width()});
                  delta_rule_paged(c, o, pages, 1, TestTensor(c, in[0], t, {tokens, s.qkv_width()}),
                                   TestTensor(c, in[1], a, {tokens, s.value_heads}),
                                   TestTensor(c, in[2], a, {tokens, s.value_heads}), cu, s);
                  return o.values();
                });
}

TEST(DeltaPages, PiecesHaveTheBitsOfTheWhole) {
  for (const DeltaShape& s : {DeltaShape{2, 4, 8, 8}, {1, 2, 128, 128}, {1, 1, 16, 48}})
    for (const DType t : kStorageTypes)
      for (uint64_t seed = 0; seed < (s.key_dim > 100 ? 2 : 6); ++seed) {
        TestCtx ctx(seed % 2 == 0 ? 1 : 2);
        expect_pieces_of_rule(ctx, t, s, {203, 131}, seed);
      }
}

/// What the sanitizers run (tools/sanitize_gpu.sh).
TEST(DeltaPages, FewRows) {
  for (const DeltaShape& s : {DeltaShape{1, 2, 128, 128}, {1, 1, 20, 12}})
    for (const DType t : kStorageTypes) {
      TestCtx ctx;
      expect_pieces_of_rule(ctx, t, s, {68, 20}, 4);
    }
}

CPU_TEST(DeltaPages, PiecesOfAConvolutionHaveTheBitsOfTheWhole) {
  const DeltaShape s{2, 4, 8, 8};
  const int64_t width = s.qkv_width();
  const Values weights = normal_values(width * kTaps, 90);
  for (const DType t : kStorageTypes)
    for (uint64_t seed = 0; seed < 6; ++seed) {
      TestCtx ctx(seed % 2 == 0 ? 1 : 2);
      const TestTensor w(ctx, weights, t, {width, kTaps});
      const auto sequence = [&](int32_t length, uint64_t at) {
        const Values x = normal_values(length * width, at);
        TestTensor y(ctx, t, {length, width});
        causal_conv_forward(ctx, y, TestTensor(ctx, x, t, {length, width}), w,
                            TestTensor(ctx, Ends{0, length}, {2}));
        return Sequence{length, {x}, y.values()};
      };
      expect_pieces(ctx, t, s, {sequence(203, 83 + 10 * seed), sequence(131, 88 + 10 * seed)}, seed,
                    [&](Ctx& c, const Many& in, const DeltaPages& pages, const CTensor& cu, int64_t tokens) {
                      TestTensor y(c, t, {tokens, width});
                      causal_conv_paged(c, y, pages, 1, TestTensor(c, in[0], t, {tokens, width}), w, cu);
                      return y.values();
                    });
    }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
