// What routers have of their own: counts of their choices, and losses on their logits, also against golden
// values (tests/golden/moe/aux.json).

#include <array>

#include "src/core/json.h"
#include "src/ops/experts.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

DType accumulate(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

/// Rows in stretches: some outside of all, before and behind, and empty stretches.
struct Shape {
  int64_t tokens, experts, columns;
  Values begins;
  int64_t stretches() const { return std::ssize(begins) - 1; }
  bool inside(int64_t t) const {
    return static_cast<double>(t) >= begins.front() && static_cast<double>(t) < begins.back();
  }
  size_t stretch_of(int64_t t) const {
    size_t s = 0;
    while (static_cast<double>(t) >= begins[s + 1]) ++s;
    return s;
  }
};
const std::vector<Shape> kShapes{{9, 5, 6, {0, 4, 4, 9}},
                                 {70, 128, 128, {2, 40, 41, 69}},
                                 {300, 60, 61, {0, 300}},
                                 {33, 6, 6, {5, 5, 33, 33}},
                                 {3, 4, 4, {1, 1}}};

struct Losses {
  Values losses, du;
};
/// The gradients are added to ones.
Losses losses_of(Ctx& c, DType dtype, const Shape& s, const Values& logits, const Values& slopes, double z) {
  const DType a = accumulate(dtype);
  const TestTensor u(c, logits, a, {s.tokens, s.columns}), of(c, slopes, a, {s.stretches(), s.experts}),
      begins(c, s.begins, DType::i32, {s.stretches() + 1}), sums(c, Values{1, 2}, a, {2}),
      du(c, Values(logits.size(), 1.0), a, {s.tokens, s.columns});
  router_losses_backward(c, du, sums, u, of, begins, z);
  Losses got{sums.values(), du.values()};
  got.losses[0] -= 1, got.losses[1] -= 2;
  for (double& x : got.du) x -= 1;
  return got;
}

Losses formula(const Shape& s, const Values& logits, const Values& slopes, double z) {
  Losses want{{0, 0}, Values(logits.size())};
  for (int64_t t = 0; t < s.tokens; ++t) {
    if (!s.inside(t)) continue;
    const double *const u = logits.data() + t * s.columns, *const of = slopes.data() +
                                                                       static_cast<int64_t>(s.stretch_of(t)) *
                                                                           s.experts;
    double sum = 0, mean = 0;
    for (int64_t e = 0; e < s.experts; ++e) sum += std::exp(u[e]);
    for (int64_t e = 0; e < s.experts; ++e) mean += of[e] * std::exp(u[e]) / sum;
    const double lse = std::log(sum);
    want.losses[0] += mean;
    want.losses[1] += z * lse * lse;
    for (int64_t e = 0; e < s.experts; ++e)
      want.du[static_cast<size_t>(t * s.columns + e)] = std::exp(u[e]) / sum * (of[e] - mean + 2 * z * lse);
  }
  return want;
}

TEST(Routers, LossesAreThoseOfTheFormula) {
  for (const Shape& s : kShapes)
    for (const DType dtype : kStorageTypes) {
      TestCtx ctx;
      const Values logits = round_to(normal_values(s.tokens * s.columns, 1, 2.0), DType::f32),
                   slopes = round_to(normal_values(s.stretches() * s.experts, 2), DType::f32);
      const Losses got = losses_of(ctx, dtype, s, logits, slopes, 0.25),
                   want = formula(s, logits, slopes, 0.25);
      const double tolerance = dtype == DType::f64 ? 1e-12 : 2e-6;
      expect_near("losses", got.losses, want.losses, tolerance, tolerance);
      expect_near("gradient", got.du, want.du, tolerance, tolerance);
    }
}

CPU_TEST(Routers, GradientOfTheLosses) {
  const Shape s{7, 5, 6, {0, 3, 6}};
  const Values slopes = normal_values(s.stretches() * s.experts, 2);
  for (const double z : {0.0, 0.3})
    check_gradient(
        "losses", {normal_values(s.tokens * s.columns, 1, 2.0)},
        [&](Ctx& c, DType t, const Many& in) -> Many {
          const Losses of = losses_of(c, t, s, in[0], slopes, z);
          return {{of.losses[0] + of.losses[1]}};
        },
        [&](Ctx& c, DType t, const Many& in, const Many& douts) -> Many {
          Values du = losses_of(c, t, s, in[0], slopes, z).du;
          for (double& x : du) x *= douts[0][0];
          return {du};
        });
}

CPU_TEST(Routers, Threads) {
  const Shape s{700, 12, 12, {1, 200, 699}};
  check_threads("losses",
                {normal_values(s.tokens * s.columns, 1), normal_values(s.stretches() * s.experts, 2)},
                [&](Ctx& c, DType t, const Many& in) -> Many {
                  const Losses of = losses_of(c, t, s, in[0], in[1], 0.25);
                  return {of.losses, of.du};
                });
}

TEST(Routers, LargeLogitsHaveFiniteLosses) {
  const Shape s{2, 3, 3, {0, 2}};
  TestCtx ctx;
  const Losses got = losses_of(ctx, DType::f32, s, {1e4, -1e4, 0, -1e4, -1e4, -1e4}, {1, 2, 3}, 1e-8);
  expect_near("losses", got.losses, {1.0 + 2.0, 2.0}, 1e-4);
  for (const double x : got.du) EXPECT_TRUE(std::isfinite(x));
}

TEST(Routers, ChoicesAreCountedByStretch) {
  for (const Shape& s : kShapes) {
    TestCtx ctx;
    const int64_t chosen = 3;
    Values ids, want(static_cast<size_t>(s.stretches() * s.experts), 2.0);
    for (int64_t t = 0; t < s.tokens; ++t)
      for (int64_t j = 0; j < chosen; ++j) {
        const int64_t id = (t * 7 + j * (1 + t % 2)) % s.experts;
        ids.push_back(static_cast<double>(id));
        if (s.inside(t)) ++want[s.stretch_of(t) * static_cast<size_t>(s.experts) + static_cast<size_t>(id)];
      }
    const TestTensor of(ctx, ids, DType::i32, {s.tokens, chosen}),
        begins(ctx, s.begins, DType::i32, {s.stretches() + 1}),
        counts(ctx, Values(want.size(), 2.0), DType::i32, {s.stretches(), s.experts});
    add_router_counts(ctx, counts, of, begins);
    EXPECT_EQ(counts.values(), want) << s.tokens;
  }
}

/// Rows that are given the router's own experts keep their bits; those that are given none stay as they are.
TEST(Routers, FollowedRoutesAreWeighedAsChosenOnes) {
  for (const auto& [tokens, experts, chosen] :
       {std::array<int64_t, 3>{7, 5, 2}, {33, 128, 8}, {9, 3, 3}, {64, 60, 1}})
    for (const bool normalize : {false, true}) {
      TestCtx ctx;
      const Values logits = round_to(normal_values(tokens * (experts + 1), 5, 2.0), DType::f32);
      const TestTensor u(ctx, logits, DType::f32, {tokens, experts + 1}),
          own(ctx, DType::i32, {tokens, chosen}), weights(ctx, DType::f32, {tokens, chosen}),
          count(ctx, Values{3}, DType::i32, {1});
      choose_experts(ctx, own, weights, u, experts, normalize);
      const Values ids = own.values(), before = weights.values();
      Values given = ids;
      for (int64_t j = 0; j < chosen; ++j) given[static_cast<size_t>(j)] = -1;
      const TestTensor same(ctx, given, DType::i32, {tokens, chosen});
      count_other_routes(ctx, count, own, same);
      EXPECT_EQ(count.values(), Values{3});
      follow_routes(ctx, own, weights, same, u, experts, normalize);
      EXPECT_EQ(own.values(), ids);
      expect_same_bits("weights", weights.values(), before);

      // The least likely ones.
      Values turned = logits;
      for (double& x : turned) x = -x;
      const TestTensor down(ctx, turned, DType::f32, {tokens, experts + 1}),
          others(ctx, DType::i32, {tokens, chosen}), unused(ctx, DType::f32, {tokens, chosen});
      choose_experts(ctx, others, unused, down, experts, normalize);
      const Values wanted = others.values();
      double different = 3;
      Values want;
      for (int64_t t = 0; t < tokens; ++t) {
        double all = 0, sum = 0;
        const auto weight = [&](int64_t e) {
          return std::exp(logits[static_cast<size_t>(t * (experts + 1) + e)]);
        };
        for (int64_t e = 0; e < experts; ++e) all += weight(e);
        const auto row = ids.begin() + t * chosen;
        for (int64_t j = 0; j < chosen; ++j) {
          const double id = wanted[static_cast<size_t>(t * chosen + j)];
          different += std::find(row, row + chosen, id) == row + chosen;
          sum += weight(static_cast<int64_t>(id));
        }
        for (int64_t j = 0; j < chosen; ++j)
          want.push_back(weight(static_cast<int64_t>(wanted[static_cast<size_t>(t * chosen + j)])) /
                         (normalize ? sum : all));
      }
      count_other_routes(ctx, count, own, others);
      EXPECT_EQ(count.values(), Values{different});
      follow_routes(ctx, own, weights, others, u, experts, normalize);
      EXPECT_EQ(own.values(), wanted);
      expect_near("weights", weights.values(), want, 2e-6);
    }
}

struct Golden {
  int64_t experts, chosen;
  std::vector<double> counts_by_token;  // [tokens] 1 or 0
  Values logits;                        // [tokens, experts] of the tokens that count
  int64_t tokens;
};

/// The slopes of a loss over all rows at once: coef E f_e / T.
Values slopes_of(Ctx& c, const Golden& g, double coef) {
  const Shape s{g.tokens, g.experts, g.experts, {0, static_cast<double>(g.tokens)}};
  const TestTensor u(c, g.logits, DType::f32, {s.tokens, s.columns}),
      ids(c, DType::i32, {s.tokens, g.chosen}), weights(c, DType::f32, {s.tokens, g.chosen}),
      begins(c, s.begins, DType::i32, {2}),
      counts(c, Values(static_cast<size_t>(g.experts), 0.0), DType::i32, {1, g.experts});
  choose_experts(c, ids, weights, u, g.experts, true);
  add_router_counts(c, counts, ids, begins);
  Values slopes = counts.values();
  const auto rows = static_cast<double>(g.tokens);
  for (double& x : slopes)
    x *= coef * static_cast<double>(g.experts) / (rows * rows * static_cast<double>(g.chosen));
  return slopes;
}

Values flat(const Json& rows, const Json& mask) {
  Values values;
  for (size_t t = 0; t < rows.size(); ++t)
    if (mask.is_null() || mask[t] == 1)
      for (const Json& x : rows[t]) values.push_back(x.get<double>());
  return values;
}

/// Switch losses and z-losses by layer; the joint loss of transformers has one mean over all layers, and K
/// times the scale.
TEST(Routers, LossesAreTheGoldenOnes) {
  int cases = 0;
  for (const Json& given : read_json_file("tests/golden/moe/aux.json")) {
    SCOPED_TRACE(given.at("name").get<std::string>());
    TestCtx ctx;
    const Json& mask = given.at("mask");
    Golden all{given.at("num_experts"), given.at("top_k"), {}, {}, 0};
    const auto losses = [&](Golden g, const Values& slopes, double z) {
      const Shape s{g.tokens, g.experts, g.experts, {0, static_cast<double>(g.tokens)}};
      return losses_of(ctx, DType::f32, s, g.logits, slopes, z);
    };
    Values joint_gradient;
    for (size_t layer = 0; layer < given.at("logits").size(); ++layer) {
      Golden one = all;
      one.logits = flat(given.at("logits")[layer], mask);
      one.tokens = std::ssize(one.logits) / one.experts;
      all.logits.insert(all.logits.end(), one.logits.begin(), one.logits.end());
      const Values want_joint = flat(given.at("joint").at("gradient")[layer], mask);
      joint_gradient.insert(joint_gradient.end(), want_joint.begin(), want_joint.end());
      const Losses even = losses(one, slopes_of(ctx, one, 1), 0),
                   large = losses(one, Values(static_cast<size_t>(one.experts), 0.0),
                                  1.0 / static_cast<double>(one.tokens));
      EXPECT_NEAR(even.losses[0], given.at("switch").at("loss")[layer].get<double>(), 3e-6);
      EXPECT_NEAR(large.losses[1], given.at("z").at("loss")[layer].get<double>(), 1e-4);
      expect_near("switch", even.du, flat(given.at("switch").at("gradient")[layer], mask), 2e-6, 1e-6);
      expect_near("z", large.du, flat(given.at("z").at("gradient")[layer], mask), 2e-6, 1e-6);
      ++cases;
    }
    all.tokens = std::ssize(all.logits) / all.experts;
    const Losses joint = losses(all, slopes_of(ctx, all, static_cast<double>(all.chosen)), 0);
    EXPECT_NEAR(joint.losses[0], given.at("joint").at("loss").get<double>(), 1e-5);
    expect_near("joint", joint.du, joint_gradient, 1e-5, 1e-6);
  }
  EXPECT_GE(cases, 9);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
