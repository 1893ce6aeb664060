// Group advantages and KL in the reward against fp64 goldens, the rules for single and equal groups, and the
// metrics of a step.

#include "src/rl/advantages/advantage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/core/check.h"
#include "src/core/json.h"
#include "src/rl/registry.h"
#include "src/rl/rollout_metrics.h"

namespace temper {
namespace {

Group group_of(const std::vector<double>& rewards) {
  Group group;
  for (double reward : rewards) {
    Trajectory t;
    t.sample = static_cast<int32_t>(group.samples.size());
    t.prompt_tokens = {1, 2};
    t.response.tokens = {3, 4, 5};
    t.response.mask = {1, 0, 1};
    t.reward = reward;
    group.samples.push_back(t);
  }
  return group;
}

void grpo_advantages(std::span<Group> groups, double eps, SingleGroup rule) {
  fill_advantages(advantage_traits("grpo"), groups, {.eps = eps, .single_group = rule});
}

TEST(Advantage, MatchesTheFormulaInDouble) {
  const Json golden = read_json_file("tests/golden/rl/advantages.json");
  ASSERT_EQ(golden["cases"].size(), 22u);
  for (const Json& expected : golden["cases"]) {
    std::vector<Group> groups{group_of(expected["rewards"])};
    grpo_advantages(groups, expected["eps"], SingleGroup::verl);
    const auto advantages = expected["advantages"].get<std::vector<double>>();
    // Rewards near 1e6 lose 1e-10 of their differences in the mean, in any order of summation.
    const double largest = std::fabs(expected["rewards"][0].get<double>());
    const double tolerance = largest > 1e5 ? 1e-9 : 1e-12;
    for (size_t i = 0; i < advantages.size(); ++i) {
      EXPECT_NEAR(groups[0].samples[i].advantage, advantages[i], tolerance) << expected.dump();
    }
  }
}

TEST(Advantage, ReferenceNumbers) {
  std::vector<Group> groups{group_of({1, 0, 0, 1, 1})};
  grpo_advantages(groups, 1e-6, SingleGroup::drop);
  EXPECT_NEAR(groups[0].samples[0].advantage, 0.73030, 1e-5);
  EXPECT_NEAR(groups[0].samples[1].advantage, -1.09544, 1e-5);
}

TEST(Advantage, EqualRewardsGiveExactlyZero) {
  for (double reward : {0.1, 1.0 / 3, 1e300, -1e-300}) {
    std::vector<Group> groups{group_of(std::vector<double>(7, reward))};
    grpo_advantages(groups, 0, SingleGroup::drop);
    for (const Trajectory& t : groups[0].samples) {
      EXPECT_EQ(t.advantage, 0);
      EXPECT_EQ(t.counted_tokens(), 2);  // a dull group still counts
    }
  }
}

TEST(Advantage, SingleGroupRules) {
  for (auto [rule, advantage, counted] :
       {std::tuple{SingleGroup::drop, 0.0, 0}, std::tuple{SingleGroup::zero, 0.0, 2},
        std::tuple{SingleGroup::verl, 3.0 / (1 + 1e-6), 2}}) {
    std::vector<Group> groups{group_of({3}), group_of({1, 2})};
    grpo_advantages(groups, 1e-6, rule);
    EXPECT_EQ(groups[0].samples[0].advantage, advantage);
    EXPECT_EQ(groups[0].samples[0].counted_tokens(), counted);
    EXPECT_EQ(groups[0].samples[0].response.mask.size(), 3u);
    EXPECT_EQ(groups[1].samples[0].counted_tokens(), 2);
    EXPECT_LT(groups[1].samples[0].advantage, 0);
  }
}

TEST(Advantage, ResponsesWithoutCountedTokensKeepTheirReward) {
  std::vector<Group> with{group_of({1, 0, 0})};
  with[0].samples[2].response.tokens.clear();
  with[0].samples[2].response.mask.clear();
  std::vector<Group> without{group_of({1, 0, 0})};
  grpo_advantages(with, 1e-6, SingleGroup::drop);
  grpo_advantages(without, 1e-6, SingleGroup::drop);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(with[0].samples[i].advantage, without[0].samples[i].advantage);
  }
}

/// Whatever stands in their reward.
TEST(Advantage, ExcludedResponsesAreNotThere) {
  std::vector<Group> with{group_of({1, 5, 0, 0}), group_of({3, 3}), group_of({1, 2})};
  with[0].samples[1].excluded = with[1].samples[0].excluded = true;
  for (Trajectory& t : with[2].samples) t.excluded = true;
  std::vector<Group> without{group_of({1, 0, 0}), group_of({3})};
  grpo_advantages(with, 1e-6, SingleGroup::verl);
  grpo_advantages(without, 1e-6, SingleGroup::verl);
  for (const auto& [sample, twin] : {std::pair{0, 0}, {2, 1}, {3, 2}}) {
    EXPECT_EQ(with[0].samples[static_cast<size_t>(sample)].advantage,
              without[0].samples[static_cast<size_t>(twin)].advantage);
    EXPECT_EQ(with[0].samples[static_cast<size_t>(sample)].counted_tokens(), 2);
  }
  EXPECT_EQ(with[1].samples[1].advantage, without[1].samples[0].advantage) << "a group of one is left";
  for (const Trajectory* t : {&with[0].samples[1], &with[1].samples[0], &with[2].samples[0]}) {
    EXPECT_EQ(t->advantage, 0);
    EXPECT_EQ(t->counted_tokens(), 0);
    EXPECT_EQ(t->response.mask.size(), 3u);
  }
}

TEST(Advantage, NonFiniteNumbersStopTheRun) {
  for (std::vector<double> rewards : {std::vector<double>{1, std::nan("")}, {1e308, -1e308, 1e308, 1e308}}) {
    std::vector<Group> groups{group_of(rewards)};
    try {
      grpo_advantages(groups, 1e-6, SingleGroup::drop);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::numerics);
      EXPECT_NE(std::string(error.what()).find("group 0, sample"), std::string::npos);
    }
  }
}

/// Statistics are those of the task's rewards; what the teacher adds comes after them.
TEST(Teacher, IsSubtractedFromTheAdvantageOfTheTask) {
  const auto scored = [] {
    std::vector<Group> groups{group_of({2, 0}), group_of({1, 1})};
    for (Group& group : groups)
      for (Trajectory& t : group.samples) {
        t.response.logprobs = {-0.5, std::nan(""), -2};
        t.teacher_logprobs = {-1.5, std::nan(""), -0.25};
      }
    groups[0].samples[1].teacher_logprobs = {-0.5, 7, -2};  // it agrees where tokens count
    groups[1].samples[1].teacher_logprobs.clear();          // it scored none
    return groups;
  };
  AlgorithmConfig config;
  config.advantage_std = "none";
  config.teacher_coef = 0.5;
  std::vector<Group> groups = scored();
  make_algorithm(config)->advantages(groups);
  const Trajectory &first = groups[0].samples[0], &second = groups[0].samples[1];
  EXPECT_EQ(first.advantages, (std::vector<double>{1 - 0.5 * 1, 0, 1 + 0.5 * 1.75}));
  EXPECT_EQ(first.advantage, (0.5 + 1.875) / 2);
  EXPECT_EQ(second.advantages, (std::vector<double>{-1, 0, -1}));
  EXPECT_EQ(second.advantage, -1);
  EXPECT_EQ(groups[1].samples[0].advantages, (std::vector<double>{-0.5, 0, 0.875})) << "equal rewards";
  EXPECT_TRUE(groups[1].samples[1].advantages.empty());
  EXPECT_EQ(groups[1].samples[1].advantage, 0);
  for (const Group& group : groups)
    for (const Trajectory& t : group.samples) EXPECT_EQ(t.response.mask, (std::vector<uint8_t>{1, 0, 1}));

  config.teacher_coef = 0;
  std::vector<Group> without = scored();
  make_algorithm(config)->advantages(without);
  EXPECT_TRUE(without[0].samples[0].advantages.empty());
  EXPECT_EQ(without[0].samples[0].advantage, 1);
}

/// Where advantages differ by token each has its own before.
TEST(Teacher, IsSubtractedFromAdvantagesByToken) {
  std::vector<Group> groups{group_of({1})};
  Trajectory& t = groups[0].samples[0];
  t.advantages = {3, 0, -2};
  t.advantage = 0.5;
  t.response.logprobs = {-1, -5, -1};
  t.teacher_logprobs = {-1.25, -1, -3};
  subtract_teacher(groups, 2);
  EXPECT_EQ(t.advantages, (std::vector<double>{3 - 2 * 0.25, 0, -2 - 2 * 2}));
  EXPECT_EQ(t.advantage, (2.5 - 6) / 2);
}

TEST(KlInReward, MatchesTheGolden) {
  const Json golden = read_json_file("tests/golden/rl/losses.json");
  const Json& batch = golden["batches"][0];
  for (const Json& expected : golden["kl_reward"]) {
    std::vector<Group> groups(1);
    size_t at = 0;
    for (size_t n : batch["lengths"]) {
      Trajectory t;
      for (size_t end = at + n; at < end; ++at) {
        t.response.tokens.push_back(1);
        t.response.mask.push_back(batch["mask"][at]);
        t.response.logprobs.push_back(t.response.mask.back() ? batch["old_logprob"][at].get<double>()
                                                             : std::nan(""));
        t.ref_logprobs.push_back(batch["ref_logprob"][at]);
      }
      t.reward = t.raw_reward = 0.5;
      groups[0].samples.push_back(t);
    }
    AlgorithmConfig config;
    config.kl_in = "reward";
    config.kl_coef = 0.25;
    config.kl_estimator = expected["estimator"];
    make_algorithm(config)->shape_rewards(groups);
    for (size_t i = 0; i < groups[0].samples.size(); ++i) {
      EXPECT_NEAR(groups[0].samples[i].reward, 0.5 - 0.25 * expected["kl"][i].get<double>(), 1e-13);
      EXPECT_EQ(groups[0].samples[i].raw_reward, 0.5);
    }
    config.kl_in = "loss";
    std::vector<Group> untouched{group_of({1})};
    make_algorithm(config)->shape_rewards(untouched);
    EXPECT_EQ(untouched[0].samples[0].reward, 1);
  }
}

TEST(KlInReward, IsHeldAsInTheLoss) {
  std::vector<Group> groups{group_of({1})};
  Trajectory& t = groups[0].samples[0];
  t.response.logprobs = {-91, 0, -1};
  t.ref_logprobs = {-1, 0, -1};
  AlgorithmConfig config;
  config.kl_in = "reward";
  config.kl_coef = 1;
  config.k3_clamp = true;
  make_algorithm(config)->shape_rewards(groups);
  EXPECT_EQ(t.reward, 1.0 - 10.0);
}

/// A mean over responses would be 0 whatever the rewards; responses of unequal lengths show which it is.
TEST(RolloutMetrics, AdvantagesAreOverCountedTokens) {
  std::vector<Group> groups{group_of({1, 0}), group_of({3})};
  groups[0].samples[0].response.mask = {1, 0, 0};
  groups[1].samples[0].response.mask = {0, 0, 0};
  groups[0].samples[0].advantage = 0.75;
  groups[0].samples[1].advantage = -0.5;
  groups[1].samples[0].advantage = 9;  // no token of it is trained
  const auto metrics = rollout_metrics(groups);
  EXPECT_EQ(metrics.at("critic/advantages/mean"), (1 * 0.75 + 2 * -0.5) / 3);
  EXPECT_EQ(metrics.at("critic/advantages/max"), 0.75);
  EXPECT_EQ(metrics.at("critic/advantages/min"), -0.5);
  const std::span<const Group> uncounted(&groups[1], 1);
  EXPECT_FALSE(rollout_metrics(uncounted).contains("critic/advantages/mean"));
  EXPECT_TRUE(rollout_metrics(uncounted).contains("critic/score/mean"));
}

TEST(RolloutMetrics, OverResponsesInOrder) {
  std::vector<Group> groups{group_of({0.1, 0.2}), group_of({0.3})};
  groups[0].samples[1].response.finish = FinishReason::length;
  groups[0].samples[1].response.tokens.clear();
  groups[1].samples[0].raw_reward = -2;
  groups[1].samples[0].advantage = 4;
  auto metrics = rollout_metrics(groups);
  EXPECT_EQ(metrics.size(), 17u);
  EXPECT_EQ(metrics.at("critic/rewards/mean"), ((0.1 + 0.2) + 0.3) / 3);
  EXPECT_EQ(metrics.at("critic/rewards/max"), 0.3);
  EXPECT_EQ(metrics.at("critic/rewards/min"), 0.1);
  EXPECT_EQ(metrics.at("critic/score/mean"), -2.0 / 3);
  EXPECT_EQ(metrics.at("critic/score/max"), 0);
  EXPECT_EQ(metrics.at("critic/score/min"), -2);
  EXPECT_EQ(metrics.at("critic/advantages/max"), 4);
  EXPECT_EQ(metrics.at("rollout/no_signal_share"), 0.5);
  EXPECT_EQ(metrics.at("response_length/mean"), 2);
  EXPECT_EQ(metrics.at("response_length/min"), 0);
  EXPECT_EQ(metrics.at("response_length/clip_ratio"), 1.0 / 3);
  EXPECT_EQ(metrics.at("prompt_length/mean"), 2);
  EXPECT_TRUE(rollout_metrics({}).empty());

  groups[1].samples[0].excluded = true;
  groups[1].samples[0].reward_parts = {{"exact", 1}};
  groups[0].samples[0].reward_parts = {{"exact", 0}, {"command", 3}};
  metrics = rollout_metrics(groups);
  EXPECT_EQ(metrics.at("critic/rewards/max"), 0.2);
  EXPECT_EQ(metrics.at("critic/rewards/mean"), (0.1 + 0.2) / 2);
  EXPECT_EQ(metrics.at("critic/score/min"), 0);
  EXPECT_EQ(metrics.at("critic/advantages/max"), 0);
  EXPECT_EQ(metrics.at("reward/exact/mean"), 0.5);
  EXPECT_EQ(metrics.at("reward/command/mean"), 3);
  EXPECT_EQ(metrics.at("reward/excluded"), 1);
  for (Trajectory& t : groups[0].samples) t.excluded = true;
  EXPECT_FALSE(rollout_metrics(groups).contains("critic/rewards/mean"));
}

/// Squares of such rewards overflow: every advantage is 0, and that is counted.
TEST(RolloutMetrics, RewardsTooFarApartAreCounted) {
  std::vector<Group> groups{group_of({1e308, -1e308}), group_of({1e160, 0, 0}), group_of({1e308, 1e308}),
                            group_of({1e150, 0}), group_of({0.5, 1})};
  grpo_advantages(groups, 1e-6, SingleGroup::drop);
  EXPECT_EQ(groups[0].samples[0].advantage, 0);
  EXPECT_EQ(groups[1].samples[0].advantage, 0);
  EXPECT_GT(groups[3].samples[0].advantage, 0.7);
  EXPECT_EQ(rollout_metrics(groups).at("reward/signal_lost"), 2);
  for (const size_t far : {0, 1}) groups[far].samples[0].excluded = true;
  EXPECT_FALSE(rollout_metrics(groups).contains("reward/signal_lost"));
}

/// Names without end give no metrics without end: those that most responses have stay, the rest is counted.
TEST(RolloutMetrics, PartsAreBounded) {
  std::vector<Group> groups{group_of({0.1, 0.2, 0.3})};
  int made = 0;
  for (Trajectory& t : groups[0].samples) {
    t.reward_parts = {{"zz", 6}};
    while (t.reward_parts.size() < 200) t.reward_parts.emplace_back(fmt::format("n{:04}", made++), 1);
  }
  const auto metrics = rollout_metrics(groups);
  const auto named = std::count_if(metrics.begin(), metrics.end(), [](const auto& m) {
    return m.first.starts_with("reward/") && m.first.ends_with("/mean");
  });
  EXPECT_EQ(static_cast<size_t>(named), kMaxPartNames);
  EXPECT_EQ(metrics.at("reward/zz/mean"), 6);
  EXPECT_TRUE(metrics.contains("reward/n0062/mean"));
  EXPECT_FALSE(metrics.contains("reward/n0063/mean"));
  EXPECT_EQ(metrics.at("reward/parts_left_out"), 3 * 199 + 1 - 64);
  for (Trajectory& t : groups[0].samples) t.reward_parts.resize(22);
  EXPECT_FALSE(rollout_metrics(groups).contains("reward/parts_left_out"));
}

TEST(Sft, AdvantagesAreOne) {
  AlgorithmConfig config;
  config.name = "sft";
  std::vector<Group> groups{group_of({0})};
  make_algorithm(config)->advantages(groups);
  EXPECT_EQ(groups[0].samples[0].advantage, 1);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
