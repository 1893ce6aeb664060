// Every loss, advantage and name of config/methods.h against independent formulas in fp64
// (tests/golden/rl/methods.json, tools/golden/golden_methods.py): values and gradients of each token. A row
// without a golden fails by its name.

#include "src/config/methods.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/config/load.h"
#include "src/core/check.h"
#include "src/core/json.h"
#include "src/rl/kl.h"
#include "src/rl/policy_gradient.h"
#include "src/rl/registry.h"

namespace temper {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kClose = 1e-10;

const Json& golden() {
  static const Json json = read_json_file("tests/golden/rl/methods.json");
  return json;
}

template <typename T>
void take(const Json& from, const char* key, T& to) {
  if (from.contains(key)) from[key].get_to(to);
}

void expect_close(const std::vector<double>& found, const Json& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t t = 0; t < found.size(); ++t) {
    const double e = expected[t];
    EXPECT_NEAR(found[t], e, kClose * std::max(1.0, std::fabs(e))) << what << " token " << t;
  }
}

struct Update {
  std::vector<double> logprob, entropy;
  LossInputs in;
};

/// Weights and borders of responses of these lengths.
void add_weights(LossInputs& in, const std::vector<size_t>& lengths, const std::vector<int>& mask,
                 Aggregation aggregation) {
  UpdateCounts counts{.max_response_tokens = golden()["lmax"]};
  std::vector<int64_t> counted;
  for (size_t i = 0, t = 0; i < lengths.size(); ++i) {
    counted.push_back(0);
    for (const size_t end = t + lengths[i]; t < end; ++t) counted.back() += mask[t];
    counts.tokens += counted.back();
    counts.sequences += counted.back() > 0;
  }
  in.sequence_begin = {0};
  for (size_t i = 0, t = 0; i < lengths.size(); ++i) {
    for (const size_t end = t + lengths[i]; t < end; ++t)
      in.weight.push_back(mask[t] ? omega(aggregation, counts, counted[i]) : 0);
    in.sequence_begin.push_back(static_cast<int32_t>(t));
  }
}

/// What is not counted is NaN, so that looking there shows.
Update update_of(const Json& from, Aggregation aggregation) {
  Update update{from["logprob"],
                from["entropy"],
                {from["old_logprob"], from["sampled_logprob"], from["ref_logprob"], from["advantage"], {}}};
  const auto mask = from["mask"].get<std::vector<int>>();
  LossInputs& in = update.in;
  add_weights(in, from["lengths"], mask, aggregation);
  for (auto* values : {&update.logprob, &update.entropy, &in.old_logprob, &in.sampled_logprob,
                       &in.ref_logprob, &in.advantage})
    for (size_t t = 0; t < mask.size(); ++t)
      if (!mask[t]) (*values)[t] = kNan;
  return update;
}

/// The defaults of golden_methods.py and what a case changes.
AlgorithmConfig config_of(const std::string& loss, const Json& from) {
  AlgorithmConfig c;
  c.clip_high = 0.28;
  c.loss = loss;
  for (auto [key, to] : {std::pair{"clip_low", &c.clip_low},
                         {"clip_high", &c.clip_high},
                         {"dual_clip", &c.dual_clip},
                         {"ratio_clamp", &c.ratio_clamp},
                         {"kl_coef", &c.kl_coef},
                         {"entropy_coef", &c.entropy_coef},
                         {"tis_cap", &c.tis_cap}})
    take(from, key, *to);
  take(from, "aggregation", c.aggregation);
  take(from, "importance", c.importance);
  take(from, "importance_form", c.importance_form);
  take(from, "importance_bounds", c.importance_bounds);
  return c;
}

TEST(Losses, EqualTheirFormulas) {
  for (const LossTraits& row : kLosses) {
    const std::string name(row.name);
    ASSERT_TRUE(golden()["losses"].contains(name)) << "loss " << name << " has no golden";
    EXPECT_GE(golden()["losses"][name].size(), 10u) << name;
    for (const Json& expected : golden()["losses"][name]) {
      const std::string what = name + " " + expected["config"].dump() + " batch " + expected["batch"].dump();
      const PolicyGradient algorithm(config_of(name, expected["config"]));
      const Update update =
          update_of(golden()["batches"][expected["batch"].get<size_t>()], algorithm.aggregation());
      const LossResult result = algorithm.loss(update.logprob, update.entropy, update.in);
      expect_close(result.dlogprob, expected["dlogprob"], what);
      if (expected.contains("dentropy"))
        expect_close(result.dentropy, expected["dentropy"], what + " entropy");
      for (const char* key : {"actor/loss", "actor/pg_loss"})
        EXPECT_NEAR(result.sums.at(key), expected[key].get<double>(), kClose) << what << " " << key;
    }
  }
}

/// One micro-batch, or one for each response: the sums are added up, the gradients are equal bits.
TEST(Losses, AreThoseOfTheirSequences) {
  for (const LossTraits& row : kLosses) {
    AlgorithmConfig config = config_of(std::string(row.name), {});
    config.importance = "sequence";
    const PolicyGradient algorithm(config);
    const Update all = update_of(golden()["batches"][1], algorithm.aggregation());
    const LossResult whole = algorithm.loss(all.logprob, all.entropy, all.in);
    std::map<std::string, double> sums;
    for (size_t s = 0; s + 1 < all.in.sequence_begin.size(); ++s) {
      const auto part = [&](const std::vector<double>& values) {
        return std::vector(values.begin() + all.in.sequence_begin[s],
                           values.begin() + all.in.sequence_begin[s + 1]);
      };
      const LossResult one = algorithm.loss(part(all.logprob), part(all.entropy),
                                            {part(all.in.old_logprob),
                                             part(all.in.sampled_logprob),
                                             part(all.in.ref_logprob),
                                             part(all.in.advantage),
                                             part(all.in.weight),
                                             {0, all.in.sequence_begin[s + 1] - all.in.sequence_begin[s]}});
      EXPECT_EQ(one.dlogprob, part(whole.dlogprob)) << row.name;
      for (const auto& [key, value] : one.sums) sums[key] += value;
    }
    for (const auto& [key, value] : whole.sums)
      EXPECT_NEAR(sums.at(key), value, 1e-14) << row.name << " " << key;
  }
}

/// The common batch of two responses, 3 and 2 tokens: numbers by hand and from other trainers.
TEST(Losses, ReferenceTable) {
  struct Case {
    const char* loss;
    double low, high, dual;
    const char* aggregation;
    double value;
    std::array<double, 5> gradient;
  };
  const Case cases[] = {
      {"ppo",
       0.2,
       0.28,
       3,
       "token-mean",
       -0.4061768948,
       {-0.2210341836, -0.1809674836, -0.2210341836, 0.0818730753, 0.1349858808}},
      {"ppo",
       0.2,
       0.28,
       3,
       "seq-mean-token-mean",
       -0.2481228473,
       {-0.1841951530, -0.1508062363, -0.1841951530, 0.1023413441, 0.1687323509}},
      {"ppo",
       0.2,
       0.28,
       3,
       "seq-mean-token-sum-norm",
       -0.2538605592,
       {-0.1381463648, -0.1131046773, -0.1381463648, 0.0511706721, 0.0843661755}},
      {"gspo",
       0.05,
       0.05,
       0,
       "seq-mean-token-mean",
       -0.2541297827,
       {-0.1723158523, -0.1723158523, -0.1723158523, 0.1314088870, 0.1314088870}},
      {"cispo",
       1,
       0.2,
       0,
       "token-mean",
       0.5331284639,
       {-0.2210341836, -0.1809674836, -0.2210341836, 0.0818730753, 0.12}},
  };
  for (const Case& c : cases) {
    AlgorithmConfig config;
    config.loss = c.loss, config.clip_low = c.low, config.clip_high = c.high, config.dual_clip = c.dual;
    config.aggregation = c.aggregation;
    const PolicyGradient algorithm(config);
    const UpdateCounts counts{.tokens = 5, .sequences = 2, .max_response_tokens = 4};
    const double first = omega(algorithm.aggregation(), counts, 3),
                 second = omega(algorithm.aggregation(), counts, 2);
    const LossResult result =
        algorithm.loss(std::vector{-0.9, -2.1, -0.4, -1.2, -0.3}, std::vector<double>(5),
                       {{-1, -2, -0.5, -1, -0.6},
                        {},
                        {},
                        {1, 1, 1, -0.5, -0.5},
                        {first, first, first, second, second},
                        {0, 3, 5}});
    EXPECT_NEAR(result.sums.at("actor/pg_loss"), c.value, 1e-10) << c.loss << " " << c.aggregation;
    for (size_t t = 0; t < 5; ++t)
      EXPECT_NEAR(result.dlogprob[t], c.gradient[t], 1e-10) << c.loss << " " << t;
  }
}

/// A KL of kind k3 in the loss, from the same table: its own ratio is none of it.
TEST(Losses, ReferenceTableWithKl) {
  AlgorithmConfig config;
  config.clip_high = 0.28, config.dual_clip = 3;
  config.kl_coef = 0.04, config.kl_estimator = "k3";
  const LossResult result =
      PolicyGradient(config).loss(std::vector{-0.9, -2.1, -0.4, -1.2, -0.3}, std::vector<double>(5),
                                  {{-1, -2, -0.5, -1, -0.6},
                                   {},
                                   {-1.2, -1.9, -0.6, -1, -0.5},
                                   {1, 1, 1, -0.5, -0.5},
                                   std::vector(5, 0.2),
                                   {0, 3, 5}});
  const double gradient[] = {-0.2189607294, -0.1827387057, -0.2195840296, 0.0801018532, 0.1364360347};
  EXPECT_NEAR(result.sums.at("actor/loss"), -0.4052082128, 1e-10);
  EXPECT_NEAR(result.sums.at("actor/pg_loss"), -0.4061768948, 1e-10);
  for (size_t t = 0; t < 5; ++t) EXPECT_NEAR(result.dlogprob[t], gradient[t], 1e-10) << t;
  for (const auto& [d, k2, k3] :
       {std::array{0.3, 0.045, 0.04081822}, {-0.2, 0.02, 0.02140276}, {0.2, 0.02, 0.01873075}}) {
    EXPECT_NEAR(kl_term(KlEstimator::k2, d - 1, -1, {}).value, k2, 1e-8);
    EXPECT_NEAR(kl_term(KlEstimator::k3, d - 1, -1, {}).value, k3, 1e-8);
  }
}

TEST(Losses, DualClipHoldsOnlyNegativeAdvantages) {
  AlgorithmConfig config;
  config.dual_clip = 3;
  config.clip_high = 9;
  const PolicyGradient algorithm(config);
  const auto one = [&](double log_ratio, double advantage) {
    return algorithm.loss(std::vector{log_ratio}, std::vector{0.5}, {{0}, {}, {}, {advantage}, {1}, {0, 1}});
  };
  EXPECT_EQ(one(1.5, -1).sums.at("actor/pg_loss"), 3);
  EXPECT_EQ(one(1.5, -1).dlogprob[0], 0);
  EXPECT_EQ(algorithm.metrics(one(1.5, -1).sums).at("actor/pg_clipfrac_lower"), 1);
  EXPECT_EQ(one(1.5, -1).sums.at("clipped_tokens"), 0);
  EXPECT_EQ(one(1.5, 1).dlogprob[0], -std::exp(1.5));
  EXPECT_NEAR(one(0.3, -1).dlogprob[0], 1.349859, 1e-6);
}

/// On policy every weight is exactly 1, whatever its form and bounds.
TEST(Importance, IsOneOnPolicy) {
  const std::vector<double> lp{-1, -2, -0.25}, counted{1, 1, 1};
  const std::vector<int32_t> borders{0, 2, 3};
  for (const std::string_view level : kImportanceLevels)
    for (const std::string_view form : kImportanceForms) {
      AlgorithmConfig config;
      config.importance = level, config.importance_form = form;
      config.importance_bounds = {1.5, 2};
      for (const ImportanceWeight& w :
           importance_weights(importance_rule(config), lp, lp, counted, borders)) {
        EXPECT_EQ(w.value, 1);
        EXPECT_FALSE(w.bounded);
      }
    }
}

/// Weights of 0.5, 1, 2 and 0.9, as in the table of golden numbers.
TEST(Importance, EffectiveSampleSize) {
  AlgorithmConfig config;
  config.tis_cap = 3;
  const PolicyGradient algorithm(config);
  const std::vector<double> lp(4, -1.0);
  LossInputs in{lp, {}, {}, std::vector(4, 0.5), std::vector(4, 0.25), {0, 4}};
  for (const double w : {0.5, 1.0, 2.0, 0.9}) in.sampled_logprob.push_back(-1 - std::log(w));
  const auto share = [&](const LossInputs& of) {
    return algorithm.metrics(algorithm.loss(lp, std::vector<double>(4), of).sums).at("actor/tis_ess");
  };
  EXPECT_NEAR(share(in), 0.79867987, 1e-8);
  in.sampled_logprob = lp;
  EXPECT_EQ(share(in), 1) << "on policy";
  EXPECT_EQ(algorithm.metrics(algorithm.loss({}, {}, {}).sums).at("actor/tis_ess"), 0) << "of no token";
}

TEST(Importance, RejectsResponsesThatAreTooFar) {
  const auto with = [](std::vector<double> old_logprobs, std::vector<uint8_t> mask) {
    Group group;
    group.samples.resize(1);
    Trajectory& t = group.samples[0];
    t.response.tokens.assign(mask.size(), 1);
    t.response.mask = std::move(mask);
    t.response.logprobs.assign(t.response.mask.size(), -1);
    t.old_logprobs = std::move(old_logprobs);
    return std::vector<Group>{group};
  };
  const auto rejected = [](std::vector<Group> groups, RejectionRule rule) {
    const int64_t count = reject(groups, rule);
    EXPECT_EQ(count, groups[0].samples[0].counted_tokens() == 0);
    return count == 1;
  };
  const double k3 = std::expm1(0.5) - 0.5;
  EXPECT_FALSE(rejected(with({-0.5, -1}, {1, 1}), {.mean_k3 = k3 / 2}));
  EXPECT_TRUE(rejected(with({-0.5, -1}, {1, 1}), {.mean_k3 = k3 / 2 - 1e-9}));
  EXPECT_FALSE(rejected(with({-0.5, -9}, {1, 0}), {.mean_k3 = k3 + 1e-9, .token_below = 1e-4}));
  EXPECT_TRUE(rejected(with({-1, -10.3}, {1, 1}), {.token_below = 1e-4}));
  EXPECT_FALSE(rejected(with({-1, -10.2}, {1, 1}), {.token_below = 1e-4}));
  EXPECT_FALSE(rejected(with({}, {1, 1}), {.mean_k3 = 1e-12, .token_below = 1})) << "on policy";
}

std::vector<Group> groups_of(const Json& step) {
  std::vector<Group> groups;
  for (const Json& from : step) {
    Group group;
    for (const Json& r : from) {
      Trajectory t;
      t.group = static_cast<int32_t>(groups.size());
      t.sample = static_cast<int32_t>(group.samples.size());
      t.reward = t.raw_reward = r["reward"];
      t.excluded = r["excluded"];
      r["mask"].get_to(t.response.mask);
      t.response.tokens.assign(t.response.mask.size(), 1);
      r["logprobs"].get_to(t.response.logprobs);
      r["ref_logprobs"].get_to(t.ref_logprobs);
      for (size_t i = 0; i < t.response.mask.size(); ++i)
        if (!t.response.mask[i]) t.response.logprobs[i] = t.ref_logprobs[i] = kNan;
      for (const auto& [name, value] : r["parts"].items()) t.reward_parts.emplace_back(name, value);
      group.samples.push_back(std::move(t));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

std::unique_ptr<Algorithm> with_advantage(const std::string& name, const Json& options) {
  AlgorithmConfig c;
  c.advantage = name;
  c.kl_in = "reward";
  c.kl_estimator = "k1";
  take(options, "std", c.advantage_std);
  take(options, "eps", c.advantage_eps);
  take(options, "single_group", c.single_group);
  take(options, "gamma", c.gamma);
  take(options, "kl_coef", c.kl_coef);
  take(options, "kl_estimator", c.kl_estimator);
  std::map<std::string, double> weights{{"exact", 1}, {"length", 0.5}};
  take(options, "weights", weights);
  RewardConfig rewards;
  for (const auto& [part, weight] : weights) rewards.functions.push_back({.name = part, .weight = weight});
  return make_algorithm(c, rewards);
}

TEST(Advantages, EqualTheirFormulas) {
  for (const AdvantageTraits& row : kAdvantages) {
    const std::string name(row.name);
    ASSERT_TRUE(golden()["advantages"].contains(name)) << "advantage " << name << " has no golden";
    EXPECT_GE(golden()["advantages"][name].size(), 9u) << name;
    for (const Json& expected : golden()["advantages"][name]) {
      std::vector<Group> groups = groups_of(golden()["steps"][expected["step"].get<size_t>()]);
      const std::unique_ptr<Algorithm> algorithm = with_advantage(name, expected["options"]);
      algorithm->shape_rewards(groups);
      algorithm->advantages(groups);
      for (const Group& group : groups)
        for (const Trajectory& t : group.samples) {
          const Json& e = expected["advantages"][static_cast<size_t>(t.group)][static_cast<size_t>(t.sample)];
          const std::string what =
              fmt::format("{} {} step {}, group {}, sample {}", name, expected["options"].dump(),
                          expected["step"].dump(), t.group, t.sample);
          if (e.is_null()) {
            EXPECT_EQ(t.counted_tokens(), 0) << what;
            EXPECT_EQ(t.advantage, 0) << what;
            continue;
          }
          for (size_t i = 0; i < t.response.mask.size(); ++i)
            if (t.response.mask[i]) {
              EXPECT_NEAR(t.advantage_of(i), e["tokens"][i].get<double>(), kClose) << what << " token " << i;
            }
          if (!e["a"].is_null()) {
            EXPECT_NEAR(t.advantage, e["a"].get<double>(), kClose) << what;
          }
        }
    }
  }
}

/// A name from rewards to the gradient of every token, with the defaults that it has.
TEST(Names, EqualTheirFormulas) {
  for (const AlgorithmTraits& row : kAlgorithms) {
    const std::string name(row.name);
    ASSERT_TRUE(golden()["names"].contains(name)) << name << " has no golden";
    const Json& expected = golden()["names"][name];
    AlgorithmConfig config = config_defaults(name).algorithm;
    if (row.compares) config.kl_coef = golden()["kl"];
    const std::unique_ptr<Algorithm> algorithm = make_algorithm(config);
    std::vector<Group> groups = groups_of(golden()["steps"][0]);
    if (!row.generates)
      for (Group& group : groups)
        for (Trajectory& t : group.samples) t.excluded = false;
    algorithm->shape_rewards(groups);
    algorithm->advantages(groups);
    LossInputs in;
    std::vector<size_t> lengths;
    std::vector<int> mask;
    for (const Trajectory* t : in_order(groups)) {
      lengths.push_back(t->response.mask.size());
      mask.insert(mask.end(), t->response.mask.begin(), t->response.mask.end());
      for (size_t i = 0; i < lengths.back(); ++i) in.advantage.push_back(t->advantage_of(i));
      for (auto [to, from] :
           {std::pair{&in.old_logprob, &t->response.logprobs}, {&in.ref_logprob, &t->ref_logprobs}})
        to->insert(to->end(), from->begin(), from->end());
    }
    add_weights(in, lengths, mask, algorithm->aggregation());
    const std::vector<double> logprob = expected["logprob"], entropy(logprob.size());
    const LossResult result = algorithm->loss(logprob, entropy, in);
    expect_close(result.dlogprob, expected["dlogprob"], name);
    const char* total = row.generates ? "actor/loss" : "train/loss";
    EXPECT_NEAR(result.sums.at(total), expected["loss"].get<double>(), kClose) << name;
  }
}

TEST(Advantages, ReferenceNumbers) {
  std::vector<Group> groups(1);
  for (const double reward : {1, 0, 0, 1, 1}) {
    Trajectory t;
    t.reward = reward;
    t.response.mask = {1};
    groups[0].samples.push_back(t);
  }
  const auto filled = [&](const char* name) {
    fill_advantages(advantage_traits(name), groups, {});
    return std::pair{groups[0].samples[0].advantage, groups[0].samples[1].advantage};
  };
  EXPECT_NEAR(filled("rloo").first, 0.5, 1e-15);
  EXPECT_NEAR(filled("rloo").second, -0.75, 1e-15);
  EXPECT_NEAR(filled("grpo").first, 0.73030, 1e-5);
  EXPECT_EQ(filled("pass@k").first, 0) << "several are best";
}

/// Returns before they are whitened: 0.91, 0.9 and 1 of gamma 0.9, rewards 0.1, 0, 1 and a tool token
/// between.
TEST(Advantages, ReturnsSkipToolTokens) {
  std::vector<Group> groups(1);
  Trajectory t;
  t.response.tokens.assign(4, 1);
  t.response.mask = {1, 0, 1, 1};
  t.response.logprobs = {-0.1, kNan, 0, 0};  // k1 of the first token: -0.1
  t.ref_logprobs = {0, kNan, 0, 0};
  t.reward = 1.1;
  groups[0].samples = {t};
  fill_advantages(advantage_traits("reinforce++"), groups,
                  {.gamma = 0.9, .kl_coef = 1, .kl_estimator = KlEstimator::k1});
  const double mean = (0.91 + 0.9 + 1) / 3,
               var = (std::pow(0.91 - mean, 2) + std::pow(0.9 - mean, 2) + std::pow(1 - mean, 2)) / 2;
  const double g[] = {0.91, 0, 0.9, 1};
  for (const size_t i : {0, 2, 3})
    EXPECT_NEAR(groups[0].samples[0].advantages[i], (g[i] - mean) / std::sqrt(var + 1e-8), 1e-12) << i;
  EXPECT_EQ(groups[0].samples[0].advantages[1], 0);
  EXPECT_NEAR(groups[0].samples[0].advantage, 0, 1e-12) << "the mean over counted tokens";
}

TEST(Advantages, CutResponsesCountInTheirGroupAlone) {
  AlgorithmConfig config;
  config.mask_truncated = true;
  std::vector<Group> groups = groups_of(golden()["steps"][0]), whole = groups;
  groups[0].samples[0].response.finish = FinishReason::length;
  make_algorithm(config)->advantages(groups);
  config.mask_truncated = false;
  make_algorithm(config)->advantages(whole);
  EXPECT_EQ(groups[0].samples[0].counted_tokens(), 0);
  EXPECT_EQ(groups[0].samples[1].advantage, whole[0].samples[1].advantage);
  EXPECT_EQ(groups[0].samples[1].counted_tokens(), whole[0].samples[1].counted_tokens());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
