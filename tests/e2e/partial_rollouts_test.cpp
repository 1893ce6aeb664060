// Responses that take several steps (rollout.tokens_per_step), prompts that are replaced
// (rollout.dynamic_sampling_rounds), and both in runs that are stopped and placed elsewhere. Through the
// program itself.

#include <map>
#include <set>

#include "src/io/checkpoint/manifest.h"
#include "tests/e2e/placed_run.h"
#include "tests/support/background.h"
#include "tests/support/run_list.h"
#include "tests/support/score_check.h"

namespace temper {
namespace {

/// A response takes up to three, weights are up to two old: begin, end, and some that are neither.
constexpr int kManySteps = 8;

class PartialRollouts : public PlacedRun {
 protected:
  void SetUp() override {
    PlacedRun::SetUp();
    std::string data;  // enough that no prompt comes twice
    for (int i = 0; i < 400; ++i)
      data += fmt::format("{{\"prompt\":\"Name {} of them.\",\"answer\":\"{}\"}}\n", i, i);
    program_.write("data.jsonl", data);
  }

  /// A response is likely to end early and to hold a number: rewards of random weights then differ.
  static std::string moving(int tokens_per_step, int rounds) {
    return fmt::format(
        "reward.functions='[{{name=\"gsm8k\",method=\"flexible\",format_score=0.5}}]' "
        "rollout.stop='[\"e\",\"a\"]' "
        "rollout.tokens_per_step={} rollout.dynamic_sampling_rounds={} ",
        tokens_per_step, rounds);
  }
  static std::string many_steps() {
    return fmt::format("run.steps={0} checkpoint.export_hf_every={0} ", kManySteps);
  }

  /// Everything that generation decides, by prompt and sample.
  std::map<std::pair<std::string, int>, Json> responses(const std::string& name, int steps = kSteps) const {
    std::map<std::pair<std::string, int>, Json> all;
    for (int step = 1; step <= steps; ++step)
      for (const Json& line : lines(name, step)) {
        Json kept;
        for (const char* key : {"prompt_tokens", "response_tokens", "logprobs", "ref_logprobs",
                                "finish_reason", "response", "raw_reward"})
          kept[key] = line.at(key);
        const bool first =
            all.emplace(std::pair(line.at("prompt").get<std::string>(), line.at("sample").get<int>()),
                        std::move(kept))
                .second;
        EXPECT_TRUE(first) << name << ": a response came twice";
      }
    return all;
  }
  std::vector<Json> lines(const std::string& name, int step) const {
    if (std::filesystem::file_size(program_.path(rollout_file(name, step))) == 0) return {};
    return program_.json_lines(rollout_file(name, step));
  }
  double metric(const std::string& name, int step, const std::string& key) const {
    return program_.metrics(name)[static_cast<size_t>(step) - 1].value(key, -1.0);
  }
};

/// Weights that never change: a cut moves a response to a later step and changes no bit of it.
TEST_F(PartialRollouts, WithFrozenWeightsACutDoesNotShow) {
  const std::string frozen = moving(0, 0) + "optimizer.lr=0 ";
  std::vector<Run> cuts;
  for (const auto& [tokens, lag] : std::vector<std::pair<int, int>>{{1, 0}, {3, 0}, {3, 2}, {7, 1}})
    cuts.push_back({kOverlapping, lag, fmt::format("cut-{}-{}", tokens, lag),
                    frozen + fmt::format("rollout.tokens_per_step={}", tokens)});
  ASSERT_EQ(train(kColocated, 0, "whole", frozen), 0) << output();
  ASSERT_EQ(train_each(cuts), 0) << output();
  for (const auto& [placement, lag, name, more] : cuts) {
    EXPECT_EQ(responses(name), responses("whole")) << name;
    EXPECT_GT(metric(name, 1, "rollout/prompts_unfinished"), 0) << name;
    EXPECT_EQ(metric(name, kSteps, "rollout/prompts_unfinished"), 0) << "the last step finishes all";
    EXPECT_EQ(metric(name, 3, "actor/rollout_logprob_diff_max"), 0) << "the same weights say the same bits";
  }
  EXPECT_EQ(metric("whole", 1, "rollout/prompts_unfinished"), -1) << "only with a cut";
}

/// Tokens of weights that are several steps old, in a placement that runs ahead.
TEST_F(PartialRollouts, EveryTokenHasTheLogprobOfItsWeights) {
  const std::string more = moving(3, 0) + "checkpoint.export_hf_every=1 ";
  ASSERT_EQ(train(kDisjoint, 2, "behind", more), 0) << output();
  EXPECT_GT(expect_score_agrees(program_, "behind", kSteps, "model", "--threads 1"), 0);
}

/// Versions of a response are one run per step that it took; the weights of older tokens enter the loss.
TEST_F(PartialRollouts, VersionsAreThoseOfTheSteps) {
  const std::string more = moving(3, 0) + many_steps();
  ASSERT_EQ(
      train_each({{kColocated, 0, "run", more}, {kColocated, 0, "ratio", more + "algorithm.tis_cap=0"}}), 0)
      << output();
  int several = 0;
  for (int step = 1; step <= kManySteps; ++step)
    for (const Json& line : lines("run", step)) {
      const auto tokens = static_cast<int>(line.at("response_tokens").size());
      const int low = line.at("policy_version")[0], high = line.at("policy_version")[1];
      EXPECT_LE(high, step - 1);
      if (step < kManySteps) {  // the last one has no cut
        EXPECT_EQ(high - low, (tokens - 1) / 3) << "step " << step << ", " << tokens << " tokens";
      }
      several += high > low;
      EXPECT_EQ(line.contains("policy_versions"), high > low);
      if (high == low) continue;
      const Json& runs = line.at("policy_versions");  // (version, tokens)
      int counted = 0;
      for (size_t i = 0; i < runs.size(); ++i) {
        EXPECT_EQ(runs[i][0], low + static_cast<int>(i));
        counted += runs[i][1].get<int>();
      }
      EXPECT_EQ(counted, tokens);
    }
  EXPECT_GT(several, 20);
  EXPECT_EQ(metric("run", 6, "policy/lag_max"), 2);
  EXPECT_GT(metric("run", 6, "policy/off_policy_share"), 0);
  EXPECT_NE(metric("run", 6, "actor/tis_weight"), 1);
  EXPECT_EQ(metric("ratio", 6, "actor/tis_weight"), 1);
  EXPECT_FALSE(weights("run", kManySteps) == weights("ratio", kManySteps));
}

TEST_F(PartialRollouts, PlacementDoesNotChangeTheRun) {
  const std::string more = moving(3, 2) + many_steps();
  std::vector<Run> runs;
  for (const int lag : {0, 1})
    for (const Placement& placement : {kColocated, kDisjoint, kOverlapping})
      runs.push_back({placement, lag, fmt::format("{}-{}", placement.name, lag), more});
  ASSERT_EQ(train_each(runs), 0) << output();
  for (const Run& run : runs) expect_same_run(fmt::format("colocated-{}", run.lag), run.name, kManySteps);
}

/// Each time in the next placement. With one lag after every step, with the others after some.
TEST_F(PartialRollouts, GoOnAfterEveryStep) {
  const std::string more = moving(3, 1) + many_steps();
  const Placement placements[] = {kColocated, kDisjoint, kOverlapping};
  std::vector<Run> whole, rest;
  for (const int lag : {0, 1, 2}) whole.push_back({kDisjoint, lag, fmt::format("whole-{}", lag), more});
  ASSERT_EQ(train_each(whole), 0) << output();
  for (const Run& run : whole)
    for (int step = 1; step < kManySteps; step += run.lag == 1 ? 1 : 3) {
      rest.push_back(
          {placements[(step + run.lag) % 3], run.lag, fmt::format("{}-from-{}", run.name, step), more});
      copy_until(run.name, rest.back().name, step, kManySteps);
    }
  ASSERT_EQ(train_each(rest), 0) << output();
  for (const Run& run : rest) expect_same_run(fmt::format("whole-{}", run.lag), run.name, kManySteps);
}

TEST_F(PartialRollouts, AnotherNumberOfRanksGeneratesTheSameNextStep) {
  const std::string more = moving(3, 1) + many_steps();
  ASSERT_EQ(train(kColocated, 0, "whole", more), 0) << output();
  const Placement wider{"wider", 4, R"(roles.rollout.ranks='"0-1"' roles.trainer.ranks='"1-3"')"};
  for (const Placement& other : {Placement{"alone", 1, ""}, wider}) {
    copy_until("whole", other.name, 5, kManySteps);
    ASSERT_EQ(train(other, 0, other.name, more), 0) << output();
    EXPECT_FALSE(rollouts("whole", 6).empty());
    EXPECT_TRUE(rollouts(other.name, 6) == rollouts("whole", 6)) << other.name;
  }
}

TEST_F(PartialRollouts, OtherDataIsRefusedOnTheWayOn) {
  ASSERT_EQ(train(kColocated, 0, "run", moving(3, 0)), 0) << output();
  copy_until("run", "other", 2);
  program_.write("data.jsonl", "{\"prompt\":\"Something else\",\"answer\":\"1\"}\n");
  EXPECT_EQ(train(kColocated, 0, "other", moving(3, 0)), 64);
  for (const char* word : {"data.train", "data.jsonl", "checkpoint.accept_changes"})
    EXPECT_NE(output().find(word), std::string::npos) << output();
  for (const int step : {1, 2}) forget_inputs("other", step);
  EXPECT_EQ(train(kColocated, 0, "other", moving(3, 0)), 65);
  EXPECT_NE(output().find("an unfinished response belongs to another prompt"), std::string::npos) << output();
}

/// Another seed has other prompts where the unfinished ones were: new ones take their place.
TEST_F(PartialRollouts, AnotherOrderIsAcceptedOnTheWayOn) {
  ASSERT_EQ(train(kColocated, 0, "run", moving(3, 0)), 0) << output();
  const std::string other = moving(3, 0) + "run.seed=99 ";
  copy_until("run", "other", 2);
  EXPECT_EQ(train(kColocated, 0, "other", other), 64) << output();
  ASSERT_EQ(train(kColocated, 0, "other", other + "checkpoint.accept_changes=true"), 0) << output();
  EXPECT_NE(output().find("new prompts take the place of"), std::string::npos) << output();
  EXPECT_GT(metric("run", 2, "rollout/prompts_unfinished"), 0);
  EXPECT_EQ(metric("other", kSteps, "rollout/prompts_unfinished"), 0);
}

/// So they do where a signal has cut the step. Rewards come only after it: the step does not end before.
TEST_F(PartialRollouts, AnotherOrderIsAcceptedAfterAStopInAStep) {
  prepare_long_model();
  program_.write("reward.sh", R"sh(
while IFS= read -r line; do
  echo begun >> begun
  until [ -e go ]; do sleep 0.01; done
  id=${line##*\"id\":}; id=${id%\}}
  echo "{\"id\":$id,\"reward\":${#line}}"
done
)sh");
  const std::string run =
      "train run.toml run.name=run run.steps=2 model.path=long rollout.ignore_eos=true "
      "rollout.kv_memory=50000000 "
      "rollout.max_running_sequences=2 "
      "'reward.functions=[{name=\"command\",argv=[\"sh\",\"reward.sh\"],limit_seconds=100}]' ";
  {
    Background job(program_, program_.temper() + " " + run + "rollout.max_new_tokens=500");
    ASSERT_TRUE(job.until([&] { return exists("begun"); })) << output();
    ::kill(job.pid(), SIGTERM);
    EXPECT_EQ(job.wait(), 75) << output();
  }
  program_.write("go", "");
  EXPECT_TRUE(says("SIGTERM: saved step 0")) << output();
  EXPECT_TRUE(Manifest::read(program_.path(checkpoint("run", 0))).tensors().contains("unfinished"));
  const std::string other = run + "run.seed=99 rollout.max_new_tokens=8 ";
  EXPECT_EQ(program_.run(other), 64) << output();
  ASSERT_EQ(program_.run(other + "checkpoint.accept_changes=true"), 0) << output();
  EXPECT_TRUE(says("new prompts take the place of")) << output();
  EXPECT_EQ(steps_done("run"), 2);
}

/// No group that is trained has equal raw rewards; prompts are drawn in order, without a gap.
TEST_F(PartialRollouts, PromptsWithoutSignalAreReplaced) {
  ASSERT_EQ(train(kColocated, 0, "all", moving(0, 0)), 0) << output();
  ASSERT_EQ(train(kDisjoint, 0, "run", moving(0, 100)), 0) << output();
  std::set<std::string> trained;
  double replaced = 0, uniform_before = 0;
  for (int step = 1; step <= kSteps; ++step) {
    std::map<int, std::set<double>> rewards, before;
    for (const Json& line : lines("run", step)) {
      rewards[line.at("group")].insert(line.at("raw_reward").get<double>());
      trained.insert(line.at("prompt").get<std::string>());
    }
    EXPECT_EQ(rewards.size(), 5u) << "100 rounds are enough";
    for (const auto& [group, values] : rewards)
      EXPECT_GT(values.size(), 1u) << "step " << step << ", group " << group;
    for (const Json& line : lines("all", step))
      before[line.at("group")].insert(line.at("raw_reward").get<double>());
    for (const auto& [group, values] : before) uniform_before += values.size() == 1;
    replaced += metric("run", step, "rollout/prompts_replaced");
    EXPECT_GE(metric("run", step, "rollout/rounds"),
              metric("run", step, "rollout/prompts_replaced") > 0 ? 1 : 0);
  }
  EXPECT_GT(replaced, 0);
  EXPECT_GT(uniform_before, 0) << "there was nothing to replace";
  EXPECT_EQ(trained.size(), static_cast<size_t>(5 * kSteps));
}

/// The cap: a step goes on with what it has, even with nothing, and says so.
TEST_F(PartialRollouts, NothingToTrainOnIsNoEnd) {
  const std::string never = "reward.functions='[\"exact\"]' rollout.dynamic_sampling_rounds=2 ";
  ASSERT_EQ(train(kColocated, 0, "run", never + "checkpoint.export_hf_every=1"), 0) << output();
  EXPECT_NE(output().find("were not replaced after 2 rounds"), std::string::npos) << output();
  EXPECT_NE(output().find("no group to train on"), std::string::npos) << output();
  EXPECT_EQ(metric("run", 1, "rollout/prompts_replaced"), 15);
  EXPECT_EQ(metric("run", 1, "rollout/replaced_score"), 0);
  EXPECT_TRUE(weights("run", 1) == weights("run", kSteps)) << "the weights stay as they are";
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
