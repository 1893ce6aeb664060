#include "src/ops/head.h"

#include <limits>

#include "kernels/cpu/canonical.h"
#include "src/ops/elementwise.h"
#include "src/ops/linear.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

struct Sizes {
  int64_t n, V, D;
  double temperature = 1.0;
};

/// logprob, entropy, lse
Many forward(Ctx& c, DType dtype, const Many& in, const std::vector<int32_t>& targets, const Sizes& s) {
  const DType sums = accumulate_dtype(dtype);
  TestTensor hidden(c, in[0], dtype, {s.n, s.D}), w(c, in[1], dtype, {s.V, s.D}), target(c, targets, {s.n});
  TestTensor logprob(c, sums, {s.n}), entropy(c, sums, {s.n}), lse(c, sums, {s.n});
  logprob_forward(c, logprob, entropy, lse, hidden, w, target, s.temperature);
  return {logprob.values(), entropy.values(), lse.values()};
}

/// dhidden, dw (on top of `held`) for upstream gradients of logprob and entropy.
Many backward(Ctx& c, DType dtype, const Many& in, const Many& up, const std::vector<int32_t>& targets,
              const Sizes& s, double held = 0.0) {
  const DType sums = accumulate_dtype(dtype);
  const Many stats = forward(c, dtype, in, targets, s);
  TestTensor hidden(c, in[0], dtype, {s.n, s.D}), w(c, in[1], dtype, {s.V, s.D}), target(c, targets, {s.n});
  TestTensor dlogprob(c, up[0], sums, {s.n}), dentropy(c, up[1], sums, {s.n});
  TestTensor entropy(c, stats[1], sums, {s.n}), lse(c, stats[2], sums, {s.n});
  TestTensor dhidden(c, dtype, {s.n, s.D});
  TestTensor dw(c, Values(static_cast<size_t>(s.V * s.D), held), sums, {s.V, s.D});
  logprob_backward(c, dhidden, dw, dlogprob, dentropy, hidden, w, target, lse, entropy, s.temperature);
  return {dhidden.values(), dw.values()};
}

Many inputs_of(const Sizes& s, uint64_t seed, double scale = 1.0) {
  return {normal_values(s.n * s.D, seed), normal_values(s.V * s.D, seed + 1, scale)};
}

CPU_TEST(Head, GoldenNumbers) {
  TestCtx ctx;
  const Sizes s{1, 4, 1, 0.8};
  const Many in{{1.0}, {1.0, 0.0, -1.0, 2.0}};
  const Many got = forward(ctx, DType::f64, in, {3}, s);
  EXPECT_NEAR(got[0][0], -0.33081882, 1e-8);
  EXPECT_NEAR(got[1][0], 0.79883944, 1e-8);
  EXPECT_NEAR(got[2][0], 2.83081882, 1e-8);
  const Many gradients = backward(ctx, DType::f64, in, {{-1.0}, {-0.01}}, {3}, s);
  expect_near("dz", gradients[1], {0.25524643, 0.07220801, 0.02042398, -0.34787842}, 0, 6e-9);
}

/// Cuts in whole chunks, as ranks share a vocabulary; one has nothing of it.
struct Cut {
  int64_t first, end;
  int64_t chunks() const { return (end - first + kVocabularyChunk - 1) / kVocabularyChunk; }
};

TEST(Head, SharesOfTheVocabularyHaveTheBitsOfTheWhole) {
  const Sizes s{37, 2 * kVocabularyChunk + 700, 40, 0.8};
  const Many in = inputs_of(s, 5);
  std::vector<int32_t> targets = random_ids(s.n, s.V, 9);
  targets[0] = 0, targets[1] = static_cast<int32_t>(s.V - 1);
  const std::vector<Cut> cuts{
      {0, kVocabularyChunk}, {kVocabularyChunk, s.V}, {2 * kVocabularyChunk, 2 * kVocabularyChunk}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TestCtx c;
    const Many want = forward(c, dtype, in, targets, s);
    TestTensor hidden(c, in[0], dtype, {s.n, s.D}), target(c, targets, {s.n});
    Values stats, logits;
    for (const Cut& cut : cuts) {
      TestTensor w(c, slice_rows(in[1], s.D, cut.first, cut.end), dtype, {cut.end - cut.first, s.D}),
          of(c, DType::f32, {cut.chunks(), s.n, 3}), logit(c, DType::f32, {s.n});
      logprob_stats(c, of, logit, hidden, w, target, s.temperature, {cut.first, s.V});
      for (double v : of.values()) stats.push_back(v);
      for (double v : logit.values()) logits.push_back(v);
    }
    TestTensor all(c, stats, DType::f32, {3, s.n, 3}), parts(c, logits, DType::f32, {3, s.n}),
        logit(c, DType::f32, {s.n}), logprob(c, DType::f32, {s.n}), entropy(c, DType::f32, {s.n}),
        lse(c, DType::f32, {s.n});
    sum_in_order(c, logit, parts);
    logprob_merge(c, logprob, entropy, lse, all, logit);
    expect_same_bits("logprob", logprob.values(), want[0]);
    expect_same_bits("entropy", entropy.values(), want[1]);
    expect_same_bits("lse", lse.values(), want[2]);
  }
}

TEST(Head, GradientsOfSharesAddUpToTheWhole) {
  const Sizes s{37, 2 * kVocabularyChunk + 700, 40, 0.8};
  const Many in = inputs_of(s, 5);
  const std::vector<int32_t> targets = random_ids(s.n, s.V, 9);
  Many up{normal_values(s.n, 7), normal_values(s.n, 8, 0.1)};
  up[0][4] = up[1][4] = 0;
  TestCtx c;
  const Many stats = forward(c, DType::f32, in, targets, s),
             want = backward(c, DType::f32, in, up, targets, s, 0.5);
  TestTensor hidden(c, in[0], DType::f32, {s.n, s.D}), target(c, targets, {s.n}),
      dlogprob(c, up[0], DType::f32, {s.n}), dentropy(c, up[1], DType::f32, {s.n}),
      entropy(c, stats[1], DType::f32, {s.n}), lse(c, stats[2], DType::f32, {s.n});
  Values dhidden(static_cast<size_t>(s.n * s.D), 0.0);
  for (const Cut& cut :
       {Cut{0, kVocabularyChunk}, {kVocabularyChunk, s.V}, {2 * kVocabularyChunk, 2 * kVocabularyChunk}}) {
    const int64_t ids = cut.end - cut.first;
    TestTensor w(c, slice_rows(in[1], s.D, cut.first, cut.end), DType::f32, {ids, s.D}),
        part(c, DType::f32, {s.n, s.D}),
        dw(c, Values(static_cast<size_t>(ids * s.D), 0.5), DType::f32, {ids, s.D});
    logprob_backward(c, part, dw, dlogprob, dentropy, hidden, w, target, lse, entropy, s.temperature,
                     {cut.first, s.V});
    const Values of = part.values();
    for (size_t i = 0; i < of.size(); ++i) dhidden[i] += of[i];
    expect_near("dw", dw.values(), slice_rows(want[1], s.D, cut.first, cut.end), 1e-5);
  }
  expect_near("dhidden", dhidden, want[0], 1e-5);
}

/// A part of a sum over ranks is rounded after it.
TEST(Head, GradientOfHiddenInFp32IsTheOneBeforeRounding) {
  const Sizes s{9, 300, 48};
  const Many in = inputs_of(s, 5), up{normal_values(s.n, 7), normal_values(s.n, 8, 0.1)};
  const std::vector<int32_t> targets = random_ids(s.n, s.V, 9);
  TestCtx c;
  const Many stats = forward(c, DType::bf16, in, targets, s),
             want = backward(c, DType::bf16, in, up, targets, s);
  TestTensor hidden(c, in[0], DType::bf16, {s.n, s.D}), w(c, in[1], DType::bf16, {s.V, s.D}),
      target(c, targets, {s.n}), dlogprob(c, up[0], DType::f32, {s.n}), dentropy(c, up[1], DType::f32, {s.n}),
      entropy(c, stats[1], DType::f32, {s.n}), lse(c, stats[2], DType::f32, {s.n}),
      wide(c, DType::f32, {s.n, s.D}), dw(c, DType::f32, {s.V, s.D});
  logprob_backward(c, wide, dw, dlogprob, dentropy, hidden, w, target, lse, entropy, s.temperature);
  expect_same_bits("rounded", round_to(wide.values(), DType::bf16), want[0]);
}

TEST(Head, TemperatureZeroIsOne) {
  TestCtx ctx;
  const Sizes cold{3, 50, 32, 0.0}, one{3, 50, 32, 1.0};
  const Many in = inputs_of(one, 5);
  const Many got = forward(ctx, DType::f32, in, {1, 2, 3}, cold),
             want = forward(ctx, DType::f32, in, {1, 2, 3}, one);
  for (size_t k = 0; k < 3; ++k) expect_same_bits("output", got[k], want[k]);
}

/// The definition of NUMERICS.md in scalars, on logits from linear_forward.
template <class S>
Many defined(const Values& logits, const std::vector<int32_t>& targets, const Sizes& s) {
  using A = Accumulate<S>;
  Many out(3);
  const A scale = A(1) / static_cast<A>(s.temperature);
  for (int64_t r = 0; r < s.n; ++r) {
    A m = 0, sum = 0, weighted = 0;
    for (int64_t v0 = 0; v0 < s.V; v0 += 2048) {
      const int64_t end = std::min(v0 + 2048, s.V);
      A top = -std::numeric_limits<A>::infinity(), lanes[2][16] = {};
      for (int64_t v = v0; v < end; ++v) top = std::max(top, A(logits[r * s.V + v]) * scale);
      for (int64_t v = v0; v < end; ++v) {
        const A t = A(logits[r * s.V + v]) * scale, e = cpu::exponential(t - top);
        lanes[0][v % 16] += e;
        lanes[1][v % 16] = std::fma(e, t, lanes[1][v % 16]);
      }
      const A most = v0 == 0 ? top : std::max(m, top);
      const A fa = cpu::exponential(m - most), fb = cpu::exponential(top - most);
      sum = v0 == 0 ? cpu::tree_sum(lanes[0]) : std::fma(cpu::tree_sum(lanes[0]), fb, sum * fa);
      weighted = v0 == 0 ? cpu::tree_sum(lanes[1]) : std::fma(cpu::tree_sum(lanes[1]), fb, weighted * fa);
      m = most;
    }
    const A lse = m + std::log(sum);
    out[0].push_back(A(logits[r * s.V + targets[r]]) * scale - lse);
    out[1].push_back(lse - weighted / sum);
    out[2].push_back(lse);
  }
  return out;
}

template <class S>
void expect_definition(const Sizes& s) {
  TestCtx ctx(2);
  const DType dtype = kDTypeOf<S>;
  Many in = inputs_of(s, 100);
  for (Values& values : in) values = round_to(values, dtype);
  const std::vector<int32_t> targets = random_ids(s.n, static_cast<int32_t>(s.V), 3);
  TestTensor hidden(ctx, in[0], dtype, {s.n, s.D}), w(ctx, in[1], dtype, {s.V, s.D});
  TestTensor logits(ctx, accumulate_dtype(dtype), {s.n, s.V});
  linear_forward(ctx, logits, hidden, w, {});
  const Many want = defined<S>(logits.values(), targets, s), got = forward(ctx, dtype, in, targets, s);
  for (size_t k = 0; k < 3; ++k)
    expect_same_bits(fmt::format("{} V {} output {}", dtype_name(dtype), s.V, k), got[k], want[k]);
}

CPU_TEST(Head, BitsFollowTheDefinition) {
  for (const Sizes& s : {Sizes{3, 1, 5}, Sizes{4, 17, 20, 0.7}, Sizes{110, 2048, 24, 1.3},
                         Sizes{5, 2049, 33, 0.6}, Sizes{30, 6500, 16, 1.0}}) {
    expect_definition<float>(s);
    expect_definition<bf16>(s);
    expect_definition<double>(s);
  }
}

CPU_TEST(Head, AgreesWithPlainSums) {
  const Sizes s{7, 4500, 30, 0.8};
  const Many in = inputs_of(s, 10, 0.2);
  const std::vector<int32_t> targets = random_ids(s.n, static_cast<int32_t>(s.V), 4);
  Many want(3);
  for (int64_t r = 0; r < s.n; ++r) {
    std::vector<long double> t(static_cast<size_t>(s.V));
    long double sum = 0, mean = 0;
    for (int64_t v = 0; v < s.V; ++v) {
      for (int64_t d = 0; d < s.D; ++d)
        t[v] += static_cast<long double>(in[0][r * s.D + d]) * in[1][v * s.D + d];
      t[v] /= s.temperature;
      sum += std::exp(t[v]);
    }
    for (const long double x : t) mean += std::exp(x) / sum * x;
    want[0].push_back(static_cast<double>(t[targets[r]] - std::log(sum)));
    want[1].push_back(static_cast<double>(std::log(sum) - mean));
    want[2].push_back(static_cast<double>(std::log(sum)));
  }
  TestCtx ctx;
  for (size_t k = 0; k < 3; ++k) {
    expect_near("fp64", forward(ctx, DType::f64, in, targets, s)[k], want[k], 1e-15);
    expect_near("fp32", forward(ctx, DType::f32, in, targets, s)[k], want[k], 1e-6);
  }
}

CPU_TEST(Head, Gradient) {
  for (const Sizes& s : {Sizes{3, 11, 4, 0.7}, Sizes{2, 70, 3, 1.5}}) {
    const std::vector<int32_t> targets = random_ids(s.n, static_cast<int32_t>(s.V), 5);
    check_gradient(
        "head", inputs_of(s, 20),
        [&](Ctx& c, DType t, const Many& in) {
          Many out = forward(c, t, in, targets, s);
          out.pop_back();
          return out;
        },
        [&](Ctx& c, DType t, const Many& in, const Many& up) { return backward(c, t, in, up, targets, s); });
  }
}

/// A column of ones in w adds the same number to every logit and collects sum_v dz_v in dhidden.
CPU_TEST(Head, LogitGradientsOfARowSumToZero) {
  const Sizes s{40, 5000, 12, 0.9};
  Many in = inputs_of(s, 30);
  for (int64_t v = 0; v < s.V; ++v) in[1][v * s.D] = 1.0;
  const std::vector<int32_t> targets = random_ids(s.n, static_cast<int32_t>(s.V), 6);
  const Many up{normal_values(s.n, 31), normal_values(s.n, 32)};
  TestCtx ctx;
  for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 1e-13}, std::pair{DType::f32, 2e-5}}) {
    const Values dhidden = backward(ctx, dtype, in, up, targets, s)[0];
    double largest = 0;
    for (const double x : dhidden) largest = std::max(largest, std::abs(x));
    EXPECT_GT(largest, 0.1);
    for (int64_t r = 0; r < s.n; ++r) EXPECT_NEAR(dhidden[r * s.D], 0.0, tolerance) << dtype_name(dtype);
  }
}

/// The entropy, a difference of numbers about three times as large, sets the tolerance of fp32.
TEST(Head, TypesRows) {
  constexpr double kTolerance = kTestDevice == Device::cuda ? 2e-6 : 5e-6;
  for (const auto& [n, V, D] :
       {std::tuple<int64_t, int32_t, int64_t>{5, 96, 32}, {70, 2048, 64}, {3, 5001, 128}, {200, 9000, 64}})
    for (double temperature : {1.0, 0.7}) {
      const std::vector<int32_t> targets = random_ids(n, V, 3);
      check_dtypes(
          fmt::format("log-prob of {} ids", V), inputs_of({n, V, D}, 1, 0.3),
          [&](Ctx& c, DType t, const Many& in) {
            return forward(c, t, in, targets, {n, V, D, temperature});
          },
          kTolerance, 2e-5);
    }
  const Sizes s{70, 4300, 64, 0.8};
  const Many in = inputs_of(s, 40, 0.25);
  const std::vector<int32_t> targets = random_ids(s.n, static_cast<int32_t>(s.V), 7);
  check_rows("forward", s.n, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    return forward(c, t, {slice_rows(in[0], s.D, begin, end), in[1]},
                   {targets.begin() + begin, targets.begin() + end}, {end - begin, s.V, s.D, s.temperature});
  });
}

struct BackwardCase {
  Sizes s;
  std::vector<int32_t> targets = random_ids(s.n, static_cast<int32_t>(s.V), 7);
  Many in = inputs_of(s, 40, 0.25);
  explicit BackwardCase(const Sizes& sizes) : s(sizes) {
    in.push_back(normal_values(s.n, 43));
    in.push_back(normal_values(s.n, 44));
  }
  Many operator()(Ctx& c, DType t, const Many& all) const {
    return backward(c, t, all, {all[2], all[3]}, targets, s, 1.0);
  }
};

/// Vocabularies of one window, of several, and with a last window that no tensor copy can address.
TEST(Head, BackwardTypes) {
  for (const Sizes& s : {Sizes{150, 4300, 40, 0.8}, Sizes{1, 11, 64}, Sizes{70, 11, 64}, Sizes{65, 8192, 64},
                         Sizes{67, 8213, 64, 1.2}, Sizes{200, 300, 72, 0.9}}) {
    const BackwardCase what(s);
    check_dtypes(fmt::format("backward of {} rows, {} ids, width {}", s.n, s.V, s.D), what.in, what, 1e-5);
  }
}

CPU_TEST(Head, ThreadsRows) {
  const BackwardCase what({150, 4300, 40, 0.8});
  const Sizes& s = what.s;
  const auto whole = [&](Ctx& c, DType t, const Many& all) { return forward(c, t, all, what.targets, s); };
  check_dtypes("forward", what.in, whole);
  check_threads("forward", what.in, whole);
  check_threads("backward", what.in, what);
  check_rows("forward", s.n, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    const std::vector<int32_t> part(what.targets.begin() + begin, what.targets.begin() + end);
    return forward(c, t, {slice_rows(what.in[0], s.D, begin, end), what.in[1]}, part,
                   {end - begin, s.V, s.D, s.temperature});
  });
}

/// More rows than one batch of the backward pass, most of them without a gradient and some of those not
/// finite.
void expect_skipped_rows(DType dtype, const Sizes& all) {
  Many in = inputs_of(all, 50);
  const std::vector<int32_t> targets = random_ids(all.n, static_cast<int32_t>(all.V), 8);
  Many up{normal_values(all.n, 51), normal_values(all.n, 52)}, few_in{{}, in[1]}, few_up(2);
  std::vector<int32_t> few_targets;
  std::vector<int64_t> kept;
  for (int64_t r = 0; r < all.n; ++r) {
    if (r % 10 < 4) {
      up[0][r] = up[1][r] = 0.0;
      if (r % 10 == 1) in[0][r * all.D] = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    if (r % 10 == 5) up[1][r] = 0.0;
    if (r % 10 == 6) up[0][r] = 0.0;
    kept.push_back(r);
    few_in[0].insert(few_in[0].end(), in[0].begin() + r * all.D, in[0].begin() + (r + 1) * all.D);
    for (size_t k = 0; k < 2; ++k) few_up[k].push_back(up[k][r]);
    few_targets.push_back(targets[r]);
  }
  TestCtx ctx;
  const Many got = backward(ctx, dtype, in, up, targets, all, 2.0);
  const Many want = backward(ctx, dtype, few_in, few_up, few_targets,
                             {static_cast<int64_t>(kept.size()), all.V, all.D}, 2.0);
  expect_same_bits("dw", got[1], want[1]);
  Values dhidden(static_cast<size_t>(all.n * all.D), 0.0);
  for (size_t i = 0; i < kept.size(); ++i)
    std::copy_n(want[0].begin() + static_cast<int64_t>(i) * all.D, all.D, dhidden.begin() + kept[i] * all.D);
  expect_same_bits("dhidden", got[0], dhidden);
}

TEST(Head, RowsWithoutGradientAreSkipped) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Sizes& s : {Sizes{1500, 60, 20}, Sizes{1500, 72, 64}}) expect_skipped_rows(dtype, s);
}

/// No row with a gradient: nothing is added, and nothing of dhidden stays as it was.
TEST(Head, NoGradientAtAll) {
  const Sizes s{5, 30, 64};
  TestCtx ctx;
  const Many got = backward(ctx, DType::bf16, inputs_of(s, 55), {Values(5, 0.0), Values(5, -0.0)},
                            {1, 2, 3, 4, 5}, s, 2.5);
  expect_same_bits("dhidden", got[0], Values(5 * 64, 0.0));
  expect_same_bits("dw", got[1], Values(30 * 64, 2.5));
}

CPU_TEST(Head, NoRowsAndWrongTargets) {
  TestCtx ctx(2);
  const Many in{{}, normal_values(30, 60)};
  EXPECT_TRUE(forward(ctx, DType::f32, in, {}, {0, 10, 3})[0].empty());
  expect_same_bits("dw", backward(ctx, DType::f32, in, {{}, {}}, {}, {0, 10, 3}, 3.0)[1], Values(30, 3.0));
  EXPECT_THROW(forward(ctx, DType::f32, {normal_values(3, 61), in[1]}, {10}, {1, 10, 3}), Error);
  EXPECT_THROW(forward(ctx, DType::f32, {normal_values(3, 61), in[1]}, {-1}, {1, 10, 3}), Error);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
