#include "src/ops/experts.h"

#include <numeric>
#include <random>

#include "src/ops/linear.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

DType accumulate(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

/// T tokens, E experts, K of them a token; logits are of E columns and one more.
struct Shape {
  int64_t tokens, experts, per_token;
  int64_t rows() const { return tokens * per_token; }
  int64_t columns() const { return experts + 1; }
};

struct Choice {
  Choice(Ctx& c, DType dtype, const Shape& s, const Values& logits, bool normalize)
      : u(c, logits, accumulate(dtype), {s.tokens, s.columns()}),
        ids(c, DType::i32, {s.tokens, s.per_token}),
        weights(c, accumulate(dtype), {s.tokens, s.per_token}) {
    choose_experts(c, ids, weights, u, s.experts, normalize);
  }
  TestTensor u, ids, weights;
};

struct Sorted {
  Sorted(Ctx& c, const Shape& s, const Values& ids)
      : chosen(c, ids, DType::i32, {s.tokens, s.per_token}),
        offsets(c, DType::i32, {s.experts + 1}),
        tokens(c, DType::i32, {s.rows()}),
        places(c, DType::i32, {s.tokens, s.per_token}) {
    sort_by_expert(c, offsets, tokens, places, chosen);
  }
  TestTensor chosen, offsets, tokens, places;
};

/// K different experts a token, ascending. `favour`: how many tokens take expert 0 for sure, in hundredths.
Values random_ids(const Shape& s, uint64_t seed, int favour = 0) {
  std::mt19937_64 random(seed);
  Values ids;
  std::vector<int64_t> all(static_cast<size_t>(s.experts));
  for (int64_t t = 0; t < s.tokens; ++t) {
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    if (static_cast<int>(random() % 100) < favour)
      std::iter_swap(all.begin(), std::find(all.begin(), all.end(), 0));
    std::sort(all.begin(), all.begin() + s.per_token);
    ids.insert(ids.end(), all.begin(), all.begin() + s.per_token);
  }
  return ids;
}

const std::vector<Shape> kShapes{{7, 5, 2}, {1, 4, 4}, {33, 12, 1}, {64, 128, 8}, {50, 60, 4}, {9, 3, 3}};

TEST(Experts, ChosenAreTheLargestAndWeighedBySoftmax) {
  for (const Shape& s : kShapes)
    for (const bool normalize : {false, true}) {
      TestCtx ctx;
      const Values logits = round_to(normal_values(s.tokens * s.columns(), 5, 2.0), DType::f32);
      const Choice got(ctx, DType::f32, s, logits, normalize);
      const Values ids = got.ids.values(), weights = got.weights.values();
      Values want;
      for (int64_t t = 0; t < s.tokens; ++t) {
        const Values u = slice_rows(logits, s.columns(), t, t + 1);
        std::vector<int64_t> order(static_cast<size_t>(s.experts));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          return u[static_cast<size_t>(a)] > u[static_cast<size_t>(b)];
        });
        order.resize(static_cast<size_t>(s.per_token));
        std::sort(order.begin(), order.end());
        double all = 0, chosen = 0;
        for (int64_t e = 0; e < s.experts; ++e) all += std::exp(u[static_cast<size_t>(e)]);
        for (const int64_t e : order) chosen += std::exp(u[static_cast<size_t>(e)]);
        for (size_t j = 0; j < order.size(); ++j) {
          EXPECT_EQ(ids[static_cast<size_t>(t * s.per_token) + j], order[j]) << t;
          want.push_back(std::exp(u[static_cast<size_t>(order[j])]) / (normalize ? chosen : all));
        }
      }
      expect_near("weights", weights, want, 2e-6);
    }
}

TEST(Experts, EqualLogitsGoToTheLowerIdAndNaNComesLast) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const Shape s{5, 6, 2};
  TestCtx ctx;
  const Choice got(ctx, DType::f32, s,
                   {1,   1,   1, 1,   1,   1,   9,   0,   2,   1, 2,    1,    2, 9,    nan,  1,    nan, 0,
                    nan, nan, 9, nan, nan, nan, nan, nan, nan, 9, -inf, -inf, 3, -inf, -inf, -inf, 9},
                   true);
  EXPECT_EQ(got.ids.values(), (Values{0, 1, 1, 3, 1, 3, 0, 1, 0, 2}));
}

TEST(Experts, SortedByExpertThenToken) {
  for (const Shape& s : kShapes)
    for (const int favour : {0, 60, 100}) {
      TestCtx ctx;
      const Values ids = random_ids(s, 3, favour);
      const Sorted got(ctx, s, ids);
      std::vector<std::pair<double, int64_t>> rows;
      for (int64_t i = 0; i < s.rows(); ++i) rows.push_back({ids[static_cast<size_t>(i)], i});
      std::stable_sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.first < b.first; });
      Values offsets(static_cast<size_t>(s.experts + 1)), tokens, places(ids.size());
      for (size_t r = 0; r < rows.size(); ++r) {
        for (size_t e = static_cast<size_t>(rows[r].first) + 1; e < offsets.size(); ++e) ++offsets[e];
        tokens.push_back(static_cast<double>(rows[r].second / s.per_token));
        places[static_cast<size_t>(rows[r].second)] = static_cast<double>(r);
      }
      EXPECT_EQ(got.offsets.values(), offsets);
      EXPECT_EQ(got.tokens.values(), tokens);
      EXPECT_EQ(got.places.values(), places);
    }
}

/// Forward and input gradient have the bits of each expert's rows alone, the weight gradient on the CPU too.
TEST(Experts, GroupedProductsAreThoseOfEachExpert) {
  const int64_t inputs = 40, outputs = 24;
  for (int round = 0; round < 200; ++round) {
    const Shape s = kShapes[static_cast<size_t>(round) % kShapes.size()];
    const DType dtype = kStorageTypes[static_cast<size_t>(round) / kShapes.size() % std::size(kStorageTypes)];
    TestCtx ctx;
    Ctx& c = ctx;
    const ArenaScope scope(c.scratch);
    const Sorted rows_of(ctx, s, random_ids(s, static_cast<uint64_t>(round), round % 3 == 0 ? 90 : 0));
    const Values offsets = rows_of.offsets.values();
    const TestTensor x(c, normal_values(s.rows() * inputs, 1), dtype, {s.rows(), inputs}),
        dy(c, normal_values(s.rows() * outputs, 2), dtype, {s.rows(), outputs}),
        w(c, normal_values(s.experts * outputs * inputs, 3), dtype, {s.experts * outputs, inputs}),
        y(c, dtype, {s.rows(), outputs}), dx(c, dtype, {s.rows(), inputs}),
        dw(c, accumulate(dtype), {s.experts * outputs, inputs}), want_y(c, dtype, {s.rows(), outputs}),
        want_dx(c, dtype, {s.rows(), inputs}),
        want_dw(c, Values(static_cast<size_t>(s.experts * outputs * inputs), 0.0), accumulate(dtype),
                {s.experts * outputs, inputs});
    expert_linear_forward(c, y, x, w, rows_of.offsets);
    expert_linear_backward_input(c, dx, dy, w, rows_of.offsets);
    expert_linear_backward_weight(c, dw, dy, x, rows_of.offsets, GradWrite::first);
    for (int64_t e = 0; e < s.experts; ++e) {
      const auto begin = static_cast<int64_t>(offsets[static_cast<size_t>(e)]),
                 end = static_cast<int64_t>(offsets[static_cast<size_t>(e) + 1]);
      if (begin == end) continue;
      const auto part = [&](const Tensor& t) { return rows(t, begin, end); };
      const auto block = [&](const Tensor& t) { return rows(t, e * outputs, (e + 1) * outputs); };
      linear_forward(c, part(want_y), part(x), block(w), {});
      linear_backward_input(c, part(want_dx), part(dy), block(w));
      linear_backward_weight(c, block(want_dw), part(dy), part(x), GradWrite::first);
    }
    expect_same_bits("forward", y.values(), want_y.values());
    expect_same_bits("input gradient", dx.values(), want_dx.values());
    if (kTestDevice == Device::cpu) expect_same_bits("weight gradient", dw.values(), want_dw.values());
    expect_near("weight gradient", dw.values(), want_dw.values(), 2e-6);
    const Values once = dw.values();
    expert_linear_backward_weight(c, dw, dy, x, rows_of.offsets, GradWrite::add);
    Values twice = once;
    for (double& v : twice) v *= 2;
    expect_near("added", dw.values(), twice, 2e-6);
  }
}

/// The whole of a layer around its products: choice, weighted sum, shared expert. Outputs: y.
Many combine(Ctx& c, DType dtype, const Shape& s, const Many& in, const Values& ids, bool shared) {
  const int64_t width = static_cast<int64_t>(in[0].size()) / s.rows();
  const Sorted sorted(c, s, ids);
  const TestTensor x(c, in[0], dtype, {s.rows(), width}),
      weights(c, in[1], accumulate(dtype), {s.tokens, s.per_token}), y(c, dtype, {s.tokens, width}),
      beside(c, in[2], dtype, {s.tokens, width}), u(c, in[3], accumulate(dtype), {s.tokens, s.columns()});
  combine_experts(c, y, x, sorted.places, weights, shared ? CTensor(beside) : CTensor{}, u);
  return {y.values()};
}

TEST(Experts, CombinedTypesRows) {
  const Shape s{13, 6, 3};
  const int64_t width = 36;
  const Many in{normal_values(s.rows() * width, 1), normal_values(s.rows(), 2),
                normal_values(s.tokens * width, 3), normal_values(s.tokens * s.columns(), 4)};
  const Values ids = random_ids(s, 7);
  for (const bool shared : {false, true})
    check_dtypes("combine", in,
                 [&](Ctx& c, DType t, const Many& all) { return combine(c, t, s, all, ids, shared); });
}

/// da' = Wd^T dy and so on are another op's: here Wd is the identity.
CPU_TEST(Experts, GradientOfTheSum) {
  const Shape s{5, 4, 2};
  const int64_t width = 6;
  const Values ids = random_ids(s, 11);
  const auto forward = [&](Ctx& c, DType t, const Many& in) { return combine(c, t, s, in, ids, true); };
  const auto backward = [&](Ctx& c, DType t, const Many& in, const Many& douts) -> Many {
    const Sorted sorted(c, s, ids);
    const Values tokens = sorted.tokens.values();
    Values gathered;
    for (const double token : tokens) {
      const Values row =
          slice_rows(douts[0], width, static_cast<int64_t>(token), static_cast<int64_t>(token) + 1);
      gathered.insert(gathered.end(), row.begin(), row.end());
    }
    const TestTensor x(c, in[0], t, {s.rows(), width}), weights(c, in[1], t, {s.tokens, s.per_token}),
        shared(c, in[2], t, {s.tokens, width}), u(c, in[3], t, {s.tokens, s.columns()}),
        dy(c, douts[0], t, {s.tokens, width}), drows(c, gathered, t, {s.rows(), width}),
        dx(c, t, {s.rows(), width}), weighed(c, t, {s.rows(), width}),
        dweights(c, t, {s.tokens, s.per_token}), dshared(c, t, {s.tokens, width}),
        du(c, Values(in[3].size(), 0.0), t, {s.tokens, s.columns()});
    weigh_expert_rows_backward(c, dx, weighed, dweights, drows, x, sorted.places, weights);
    shared_expert_backward(c, dshared, du, dy, shared, u);
    return {dx.values(), dweights.values(), dshared.values(), du.values()};
  };
  check_gradient("combine",
                 {normal_values(s.rows() * width, 1), normal_values(s.rows(), 2),
                  normal_values(s.tokens * width, 3), normal_values(s.tokens * s.columns(), 4)},
                 forward, backward);
}

CPU_TEST(Experts, GradientOfTheWeights) {
  for (const Shape& s : {Shape{5, 4, 2}, Shape{3, 4, 4}, Shape{4, 6, 1}})
    for (const bool normalize : {false, true})
      check_gradient(
          "weights", {normal_values(s.tokens * s.columns(), 1, 2.0)},
          [&](Ctx& c, DType t, const Many& in) -> Many {
            return {Choice(c, t, s, in[0], normalize).weights.values()};
          },
          [&](Ctx& c, DType t, const Many& in, const Many& douts) -> Many {
            const Choice of(c, t, s, in[0], normalize);
            const TestTensor dweights(c, douts[0], t, {s.tokens, s.per_token}),
                du(c, Values(in[0].size(), 0.0), t, {s.tokens, s.columns()});
            choose_experts_backward(c, du, dweights, of.ids, of.weights, of.u, s.experts, normalize);
            return {du.values()};
          });
}

TEST(Experts, SumOfRowsTypes) {
  const Shape s{13, 6, 3};
  const int64_t width = 40;
  const Values ids = random_ids(s, 7);
  for (const bool shared : {false, true})
    check_dtypes("sum of rows",
                 {normal_values(s.rows() * width, 1), normal_values(s.tokens * width, 2),
                  normal_values(s.tokens * width, 3)},
                 [&](Ctx& c, DType t, const Many& in) -> Many {
                   const Sorted sorted(c, s, ids);
                   const TestTensor rows_in(c, in[0], t, {s.rows(), width}),
                       router(c, in[1], accumulate(t), {s.tokens, width}),
                       beside(c, in[2], t, {s.tokens, width}), dx(c, t, {s.tokens, width});
                   sum_expert_rows(c, dx, rows_in, sorted.places, router,
                                   shared ? CTensor(beside) : CTensor{});
                   return {dx.values()};
                 });
}

/// On every device: gradients in fp32 and bf16 near those of the CPU in fp64.
TEST(Experts, BackwardTypes) {
  const Shape s{23, 9, 3};
  const int64_t width = 40;
  const Values ids = random_ids(s, 5);
  const Many in{normal_values(s.rows() * width, 1), normal_values(s.rows() * width, 2),
                normal_values(s.rows(), 3),         normal_values(s.tokens * width, 4),
                normal_values(s.tokens * width, 5), normal_values(s.tokens * s.columns(), 6)};
  check_dtypes("backward", in, [&](Ctx& c, DType t, const Many& all) -> Many {
    const DType a = accumulate(t);
    const Sorted sorted(c, s, ids);
    const TestTensor drows(c, all[0], t, {s.rows(), width}), made(c, all[1], t, {s.rows(), width}),
        weights(c, all[2], a, {s.tokens, s.per_token}), da(c, t, {s.rows(), width}),
        wa(c, t, {s.rows(), width}), dweights(c, a, {s.tokens, s.per_token}),
        dy(c, all[3], t, {s.tokens, width}), shared(c, all[4], t, {s.tokens, width}),
        u(c, all[5], a, {s.tokens, s.columns()}), dshared(c, t, {s.tokens, width}),
        du(c, Values(all[5].size(), 0.0), a, {s.tokens, s.columns()});
    weigh_expert_rows_backward(c, da, wa, dweights, drows, made, sorted.places, weights);
    shared_expert_backward(c, dshared, du, dy, shared, u);
    choose_experts_backward(c, du, dweights, sorted.chosen, weights, u, s.experts, true);
    return {da.values(), wa.values(), dweights.values(), dshared.values(), du.values()};
  });
}

TEST(Experts, RouterSumsAddUp) {
  for (const Shape& s : kShapes) {
    TestCtx ctx;
    const Values logits = round_to(normal_values(s.tokens * s.columns(), 5, 2.0), DType::f32);
    const Values ids = random_ids(s, 3);
    const Sorted sorted(ctx, s, ids);
    const TestTensor u(ctx, logits, DType::f32, {s.tokens, s.columns()}),
        sums(ctx, Values(static_cast<size_t>(s.experts + 1), 0.0), DType::f32, {s.experts + 1});
    Values want(static_cast<size_t>(s.experts + 1));
    for (int64_t t = 0; t < s.tokens; ++t) {
      const Values row = slice_rows(logits, s.columns(), t, t + 1);
      double all = 0;
      for (int64_t e = 0; e < s.experts; ++e) all += std::exp(row[static_cast<size_t>(e)]);
      for (int64_t e = 0; e < s.experts; ++e) {
        const double p = std::exp(row[static_cast<size_t>(e)]) / all;
        want.back() -= 2 * p * std::log(p);
      }
    }
    for (const double id : ids) want[static_cast<size_t>(id)] += 2;
    add_router_sums(ctx, sums, u, sorted.offsets);
    add_router_sums(ctx, sums, u, sorted.offsets);
    const Values got = sums.values();
    expect_same_bits("rows", Values(got.begin(), got.end() - 1), Values(want.begin(), want.end() - 1));
    EXPECT_NEAR(got.back(), want.back(), 1e-5 * (1 + want.back()));
  }
}

CPU_TEST(Experts, Threads) {
  const Shape s{64, 12, 3};
  const int64_t width = 48;
  const Values ids = random_ids(s, 5);
  const Many in{normal_values(s.rows() * width, 1), normal_values(s.rows(), 2),
                normal_values(s.tokens * width, 3), normal_values(s.tokens * s.columns(), 4)};
  check_threads("combine", in,
                [&](Ctx& c, DType t, const Many& all) { return combine(c, t, s, all, ids, true); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
