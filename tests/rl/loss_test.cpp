// GRPO and SFT losses against autograd in fp64 (tests/golden/rl/losses.json, tools/golden/golden_rl.py),
// against central differences, and the boundary rules.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/core/check.h"
#include "src/core/json.h"
#include "src/rl/choices.h"
#include "src/rl/policy_gradient.h"
#include "src/rl/registry.h"

namespace temper {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Batch {
  std::vector<double> logprob, entropy;
  LossInputs in;
};

/// A batch of the golden file with its weights; masked tokens get NaN everywhere, so a read of one shows.
Batch golden_batch(const Json& golden, size_t index, Aggregation aggregation) {
  const Json& from = golden["batches"][index];
  Batch batch{from["logprob"],
              from["entropy"],
              {from["old_logprob"], {}, from["ref_logprob"], from["advantage"], {}}};
  const auto mask = from["mask"].get<std::vector<int>>();
  const auto lengths = from["lengths"].get<std::vector<size_t>>();
  std::vector<int64_t> counted;
  UpdateCounts counts{.max_response_tokens = golden["lmax"]};
  for (size_t i = 0, t = 0; i < lengths.size(); ++i) {
    counted.push_back(0);
    for (size_t end = t + lengths[i]; t < end; ++t) counted.back() += mask[t];
    counts.tokens += counted.back();
    counts.sequences += counted.back() > 0;
  }
  for (size_t i = 0, t = 0; i < lengths.size(); ++i) {
    for (size_t end = t + lengths[i]; t < end; ++t) {
      batch.in.weight.push_back(mask[t] ? omega(aggregation, counts, counted[i]) : 0);
      if (mask[t]) continue;
      for (auto* values : {&batch.logprob, &batch.entropy, &batch.in.old_logprob, &batch.in.ref_logprob}) {
        (*values)[t] = kNan;
      }
    }
  }
  return batch;
}

AlgorithmConfig config_of(const Json& from) {
  AlgorithmConfig config;
  config.clip_low = from["clip_low"];
  config.clip_high = from["clip_high"];
  config.ratio_clamp = from["ratio_clamp"];
  config.entropy_coef = from["entropy_coef"];
  config.kl_coef = from["kl_coef"];
  config.kl_estimator = from["kl_estimator"];
  config.aggregation = from["aggregation"];
  return config;
}

void expect_close(const std::vector<double>& found, const Json& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t t = 0; t < found.size(); ++t) {
    const double e = expected[t];
    EXPECT_NEAR(found[t], e, 1e-12 * std::max(1.0, std::fabs(e))) << what << " token " << t;
  }
}

TEST(GrpoLoss, MatchesAutograd) {
  const Json golden = read_json_file("tests/golden/rl/losses.json");
  ASSERT_GE(golden["grpo"].size(), 56u);
  for (const Json& expected : golden["grpo"]) {
    const std::string name = expected["config"].dump() + " batch " + expected["batch"].dump();
    auto algorithm = make_algorithm(config_of(expected["config"]));
    const Batch batch = golden_batch(golden, expected["batch"], algorithm->aggregation());
    LossResult result = algorithm->loss(batch.logprob, batch.entropy, batch.in);
    expect_close(result.dlogprob, expected["dlogprob"], name + " dlogprob");
    expect_close(result.dentropy, expected["dentropy"], name + " dentropy");
    for (const auto& [key, value] : algorithm->metrics(result.sums)) {
      const bool one = key == "actor/tis_weight" || key == "actor/tis_ess";
      const double e = one ? 1 : key == "actor/tis_clipfrac" ? 0 : expected[key].get<double>();
      EXPECT_NEAR(value, e, 1e-12 * std::max(1.0, std::fabs(e))) << name << " " << key;
    }
    EXPECT_EQ(algorithm->metrics(result.sums).size(), 10u);
  }
}

TEST(SftLoss, MatchesAutograd) {
  const Json golden = read_json_file("tests/golden/rl/losses.json");
  ASSERT_EQ(golden["sft"].size(), 9u);
  for (const Json& expected : golden["sft"]) {
    AlgorithmConfig config;
    config.name = "sft";
    config.aggregation = expected["aggregation"];
    auto algorithm = make_algorithm(config);
    const Batch batch = golden_batch(golden, expected["batch"], algorithm->aggregation());
    LossResult result = algorithm->loss(batch.logprob, {}, {{}, {}, {}, {}, batch.in.weight});
    expect_close(result.dlogprob, expected["dlogprob"], "sft");
    EXPECT_EQ(result.dentropy, std::vector<double>(batch.logprob.size(), 0.0));
    EXPECT_NEAR(algorithm->metrics(result.sums).at("train/loss"), expected["train/loss"].get<double>(),
                1e-12);
  }
}

/// sum_t of the loss at log-probs and entropies moved by `step` along one coordinate.
double moved_loss(const Algorithm& algorithm, Batch batch, std::vector<double> Batch::*values, size_t t,
                  double step) {
  (batch.*values)[t] += step;
  return algorithm.loss(batch.logprob, batch.entropy, batch.in).sums.at("actor/loss");
}

TEST(GrpoLoss, GradientIsTheDerivativeOfTheValue) {
  const Json golden = read_json_file("tests/golden/rl/losses.json");
  for (std::string estimator : {"k1", "abs", "k2", "k3"}) {  // k1+ and k3+ are not derivatives on purpose
    AlgorithmConfig config;
    config.kl_estimator = estimator;
    config.kl_coef = 0.3;
    config.entropy_coef = 0.05;
    config.aggregation = "seq-mean-token-mean";
    PolicyGradient algorithm(config);
    const Batch batch = golden_batch(golden, 0, algorithm.aggregation());
    const LossResult result = algorithm.loss(batch.logprob, batch.entropy, batch.in);
    const double h = 1e-6;
    for (size_t t = 0; t < batch.logprob.size(); ++t) {
      if (batch.in.weight[t] == 0) {
        EXPECT_EQ(result.dlogprob[t], 0);
        EXPECT_EQ(result.dentropy[t], 0);
        continue;
      }
      auto difference = [&](std::vector<double> Batch::*values) {
        return (moved_loss(algorithm, batch, values, t, h) - moved_loss(algorithm, batch, values, t, -h)) /
               (2 * h);
      };
      EXPECT_NEAR(result.dlogprob[t], difference(&Batch::logprob), 1e-8) << estimator << " " << t;
      EXPECT_NEAR(result.dentropy[t], difference(&Batch::entropy), 1e-8) << estimator << " " << t;
    }
  }
}

LossResult one_token(const PolicyGradient& grpo, double lp, double lo, double advantage) {
  return grpo.loss(std::vector<double>{lp}, std::vector<double>{0.5}, {{lo}, {}, {}, {advantage}, {1}});
}

TEST(GrpoLoss, ReferenceTable) {  // the formulas by hand: (A, lp - lo) -> loss, gradient
  AlgorithmConfig config;
  config.clip_high = 0.28;
  PolicyGradient grpo(config);
  const double rows[][4] = {{1, 0.3, -1.28, 0},
                            {-1, 0.3, 1.3498588075760032, 1.3498588075760032},
                            {1, -0.3, -0.7408182206817179, -0.7408182206817179},
                            {-1, -0.3, 0.8, 0}};
  for (const auto& row : rows) {
    LossResult result = one_token(grpo, row[1], 0, row[0]);
    EXPECT_NEAR(result.sums.at("actor/pg_loss"), row[2], 1e-15);
    EXPECT_NEAR(result.dlogprob[0], row[3], 1e-15);
    EXPECT_EQ(result.sums.at("clipped_tokens"), row[3] == 0 ? 1 : 0);
  }
}

/// The common batch of the formulas' reference: two responses of 3 and 2 tokens, cap 1.5, token-mean.
TEST(GrpoLoss, ImportanceWeightsOfOlderSamples) {
  AlgorithmConfig config;
  config.clip_high = 0.28;
  config.tis_cap = 1.5;
  const std::vector<double> lp{-0.9, -2.1, -0.4, -1.2, -0.3}, entropy(5, 0.0);
  const LossInputs in{.old_logprob = {-1, -2, -0.5, -1, -0.6},
                      .sampled_logprob = {-1.1, -1.5, -0.5, -0.9, -0.8},
                      .ref_logprob = {},
                      .advantage = {1, 1, 1, -0.5, -0.5},
                      .weight = std::vector<double>(5, 0.2)};
  const PolicyGradient grpo(config);
  const LossResult result = grpo.loss(lp, entropy, in);
  const double expected[] = {-0.2442805516, -0.1097623272, -0.2210341836, 0.0740818221, 0.1648721271};
  EXPECT_NEAR(result.sums.at("actor/pg_loss"), -0.3361231133, 1e-10);
  for (size_t t = 0; t < 5; ++t) EXPECT_NEAR(result.dlogprob[t], expected[t], 1e-10) << t;
  const double mean = (std::exp(0.1) + std::exp(-0.5) + 1 + std::exp(-0.1) + std::exp(0.2)) / 5;
  EXPECT_NEAR(grpo.metrics(result.sums).at("actor/tis_weight"), mean, 1e-15);
  EXPECT_EQ(grpo.metrics(result.sums).at("actor/tis_clipfrac"), 0);

  config.tis_cap = 1.1;  // below e^0.1 and e^0.2
  const LossResult capped = PolicyGradient(config).loss(lp, entropy, in);
  EXPECT_NEAR(capped.dlogprob[0], result.dlogprob[0] * 1.1 / std::exp(0.1), 1e-15);
  EXPECT_NEAR(capped.dlogprob[4], result.dlogprob[4] * 1.1 / std::exp(0.2), 1e-15);
  EXPECT_EQ(capped.dlogprob[2], result.dlogprob[2]) << "on policy the weight is exactly 1";
  EXPECT_EQ(PolicyGradient(config).metrics(capped.sums).at("actor/tis_clipfrac"), 0.4);

  config.tis_cap = 0;
  const LossResult off = PolicyGradient(config).loss(lp, entropy, in);
  LossInputs bare = in;
  bare.sampled_logprob.clear();
  EXPECT_EQ(off.dlogprob, PolicyGradient(config).loss(lp, entropy, bare).dlogprob);

  LossInputs far = in;  // the logarithm of the weight is bounded
  far.sampled_logprob[0] = -800;
  config.tis_cap = 1e30;
  EXPECT_NEAR(PolicyGradient(config).loss(lp, entropy, far).dlogprob[0], -0.2210341836 * std::exp(20.0),
              1e-1);
}

LossResult one_kl(const AlgorithmConfig& config, double d) {
  return PolicyGradient(config).loss(std::vector{d - 1}, std::vector{0.5}, {{d - 1}, {}, {-1.0}, {0}, {1}});
}

/// One token whose log-prob fell by 90 had a gradient of e^90: the next norm was not finite.
TEST(GrpoLoss, TheExponentialOfK3IsHeld) {
  AlgorithmConfig config;
  config.kl_coef = 0.5;
  const LossResult fallen = one_kl(config, -90);
  EXPECT_EQ(fallen.sums.at("actor/kl_loss"), std::expm1(20.0) - 20);
  EXPECT_EQ(fallen.dlogprob[0], 0);
  EXPECT_EQ(PolicyGradient(config).metrics(fallen.sums).at("actor/kl_clipfrac"), 1);
  EXPECT_EQ(one_kl(config, 90).sums.at("actor/kl_loss"), std::expm1(-20.0) + 20);
  const LossResult held = one_kl(config, -20);  // at the boundary the gradient passes
  EXPECT_EQ(held.dlogprob[0], -0.5 * std::expm1(20.0));
  EXPECT_EQ(held.sums.at("clamped_kl"), 0);
  config.ratio_clamp = 0;
  EXPECT_EQ(one_kl(config, -90).dlogprob[0], -0.5 * std::expm1(90.0));
  config.ratio_clamp = 20;
  config.k3_clamp = true;
  EXPECT_EQ(one_kl(config, -5).sums.at("actor/kl_loss"), 10);
  EXPECT_EQ(one_kl(config, -5).dlogprob[0], 0);
  EXPECT_EQ(one_kl(config, -5).sums.at("clamped_kl"), 1);
  EXPECT_EQ(one_kl(config, -2).dlogprob[0], -0.5 * std::expm1(2.0));
  config.kl_estimator = "k3+";  // its gradient is that of k2
  EXPECT_EQ(one_kl(config, -90).sums.at("actor/kl_loss"), 10);
  EXPECT_EQ(one_kl(config, -90).dlogprob[0], 0.5 * -90);
  config.kl_estimator = "k2";
  EXPECT_EQ(one_kl(config, -90).sums.at("actor/kl_loss"), 4050);
  EXPECT_EQ(one_kl(config, -90).sums.at("clamped_kl"), 0);
}

TEST(GrpoLoss, BoundariesPassTheGradient) {
  AlgorithmConfig config;
  config.ratio_clamp = 0.5;
  config.clip_high = 1;  // 1 + 1 is exact: rho = 2 lies on the boundary
  config.clip_low = 0.5;
  PolicyGradient clamped(config);
  EXPECT_EQ(one_token(clamped, 0.5, 0, 1).dlogprob[0], -std::exp(0.5));  // at the clamp
  EXPECT_EQ(one_token(clamped, 0.5000001, 0, 1).dlogprob[0], 0);         // beyond it
  EXPECT_EQ(one_token(clamped, -0.5, 0, -1).dlogprob[0], std::exp(-0.5));
  config.ratio_clamp = 0;
  PolicyGradient free(config);
  const double lp = std::log(2.0);
  ASSERT_EQ(std::exp(lp), 2.0);
  EXPECT_EQ(one_token(free, lp, 0, 1).dlogprob[0], -2.0);
  EXPECT_EQ(one_token(free, lp, 0, 1).sums.at("clipped_tokens"), 0);
  EXPECT_EQ(one_token(free, -lp, 0, -1).dlogprob[0], std::exp(-lp));
}

TEST(GrpoLoss, ZeroAdvantageAndOverflowingRatio) {
  AlgorithmConfig config;
  config.ratio_clamp = 0;
  LossResult result = one_token(PolicyGradient(config), 0, -1000, 0);  // rho is infinite
  EXPECT_EQ(result.sums.at("actor/pg_loss"), 0);
  EXPECT_EQ(result.dlogprob[0], 0);
  LossResult broken = one_token(PolicyGradient(config), kNan, -1, 1);
  EXPECT_TRUE(std::isnan(broken.sums.at("actor/loss")));  // a counted NaN must show
}

TEST(GrpoLoss, EmptyMicroBatchHasTheSameKeys) {
  PolicyGradient grpo{AlgorithmConfig{}};
  LossResult empty = grpo.loss({}, {}, {});
  LossResult full = one_token(grpo, -1, -1, 1);
  ASSERT_EQ(empty.sums.size(), full.sums.size());
  for (const auto& [key, value] : empty.sums) {
    EXPECT_EQ(value, 0) << key;
    EXPECT_TRUE(full.sums.contains(key));
  }
  EXPECT_EQ(grpo.metrics(empty.sums).at("actor/ppo_kl"), 0);  // 0 tokens: 0, not NaN
}

TEST(GrpoLoss, CutIntoMicroBatchesGivesTheSameGradient) {
  const Json golden = read_json_file("tests/golden/rl/losses.json");
  PolicyGradient grpo{AlgorithmConfig{}};
  const Batch all = golden_batch(golden, 0, grpo.aggregation());
  const LossResult whole = grpo.loss(all.logprob, all.entropy, all.in);
  std::map<std::string, double> sums;
  for (size_t t = 0; t < all.logprob.size(); ++t) {
    LossResult part = grpo.loss(
        std::vector{all.logprob[t]}, std::vector{all.entropy[t]},
        {{all.in.old_logprob[t]}, {}, {all.in.ref_logprob[t]}, {all.in.advantage[t]}, {all.in.weight[t]}});
    EXPECT_EQ(part.dlogprob[0], whole.dlogprob[t]);
    for (const auto& [key, value] : part.sums) sums[key] += value;
  }
  for (const auto& [key, value] : whole.sums) EXPECT_NEAR(sums.at(key), value, 1e-15) << key;
}

TEST(GrpoLoss, KlInRewardLeavesTheLossAlone) {
  AlgorithmConfig config;
  config.kl_in = "reward";
  config.kl_coef = 0.5;
  PolicyGradient grpo(config);
  LossResult with = grpo.loss(std::vector{-1.0}, std::vector{0.5}, {{-1.1}, {}, {-2}, {1}, {1}});
  LossResult without = grpo.loss(std::vector{-1.0}, std::vector{0.5}, {{-1.1}, {}, {}, {1}, {1}});
  EXPECT_EQ(with.dlogprob, without.dlogprob);
  EXPECT_EQ(with.sums.at("actor/loss"), without.sums.at("actor/loss"));
  EXPECT_GT(with.sums.at("actor/kl_loss"), 0);  // still measured
}

TEST(Aggregation, Weights) {
  const UpdateCounts counts{.tokens = 10, .sequences = 4, .max_response_tokens = 8};
  EXPECT_EQ(omega(Aggregation::token_mean, counts, 3), 1.0 / 10);
  EXPECT_EQ(omega(Aggregation::seq_mean_token_mean, counts, 3), 1.0 / 12);
  EXPECT_EQ(omega(Aggregation::seq_mean_token_sum, counts, 3), 1.0 / 4);
  EXPECT_EQ(omega(Aggregation::seq_mean_token_sum_norm, counts, 3), 1.0 / 32);
  EXPECT_EQ(omega(Aggregation::token_mean, {}, 0), 1);  // an update without counted tokens divides by 1
}

void expect_usage(AlgorithmConfig config, const std::string& part) {
  try {
    make_algorithm(config);
    FAIL() << "accepted, expected an error with " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::usage);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(AlgorithmConfigErrors, NameTheKeyAndTheLegalValues) {
  AlgorithmConfig c;
  c.name = "gprp";
  expect_usage(c, "did you mean `grpo`");
  c = {};
  c.aggregation = "token_mean";
  expect_usage(c, "did you mean `token-mean`");
  expect_usage(c, "seq-mean-token-sum-norm");
  c = {};
  c.kl_estimator = "k4";
  expect_usage(c, "algorithm.kl_estimator");
  c = {};
  c.kl_in = "both";
  expect_usage(c, "legal: loss, reward");
  c = {};
  c.single_group = "keep";
  expect_usage(c, "algorithm.single_group");
  c = {};
  c.clip_low = -0.1;
  expect_usage(c, "algorithm.clip_low");
  c = {};
  c.kl_coef = kNan;
  expect_usage(c, "algorithm.kl_coef");
  c = {};
  c.advantage_eps = std::numeric_limits<double>::infinity();
  expect_usage(c, "algorithm.advantage_eps");
  c = {};
  c.name = "sft";
  c.aggregation = "seq-mean-token-sum-norm";
  expect_usage(c, "SFT has no rollout");
}

TEST(AlgorithmConfigErrors, DescribeSaysTheEffectiveTerms) {
  AlgorithmConfig c;
  EXPECT_NE(make_algorithm(c)->describe().find("KL off, entropy bonus off, token-mean"), std::string::npos);
  c.kl_coef = 0.01;
  EXPECT_NE(make_algorithm(c)->describe().find("KL 0.01 k3 in the loss"), std::string::npos);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
