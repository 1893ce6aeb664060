// The time that is foretold for a step on a GPU is near what was measured (tests/bench/RESULTS.md: GRPO with
// 16 prompts x 8 samples x 512 new tokens on an H200).

#include "src/run/plan/report/step_time.h"

#include <gtest/gtest.h>

#include "src/run/plan/model_facts.h"
#include "tests/config/config_text.h"

namespace temper {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

std::optional<StepTime> time_of(const char* model, std::vector<std::string> more, int ranks = 1,
                                int64_t gib = 139) {
  more.insert(more.begin(), {"run.device=cuda", "rollout.prompts_per_step=16", "rollout.samples_per_prompt=8",
                             "rollout.max_new_tokens=512", "rollout.max_prompt_tokens=76"});
  const Config config = load_text(kMinimalConfig, more).config;
  const ModelConfig facts = read_config_facts(std::string("conf/models/") + model);
  const PlanResult result = try_plan(config, ranks, facts, {.device = {gib * kGiB}, .host = {}});
  EXPECT_TRUE(result.errors.empty());
  return gpu_step_time(result.plan, facts, config, gib * kGiB);
}

TEST(StepTime, IsNearWhatWasMeasured) {
  const std::vector<std::string> large{"optimizer.state=bf16", "train.recompute.granularity=selective"};
  for (const auto& [model, more, seconds] :
       {std::tuple{"Qwen3-0.6B.json", std::vector<std::string>{}, 2.31}, {"Qwen3-8B.json", large, 9.94}}) {
    const std::optional<StepTime> time = time_of(model, more);
    ASSERT_TRUE(time) << model;
    EXPECT_NEAR(time->seconds, seconds, 0.15 * seconds) << model;
    EXPECT_EQ(time->from.find("generate "), 0u) << time->from;
    EXPECT_NE(time->from.find("; of samples of full length, at rates of an H200"), std::string::npos)
        << time->from;
  }
}

TEST(StepTime, IsKnownOfWhatWasMeasuredAlone) {
  const char* const small = "Qwen3-0.6B.json";
  const double one = time_of(small, {})->seconds;
  EXPECT_GT(time_of(small, {}, 1, 79)->seconds, one) << "an H100 reads slower";
  EXPECT_LT(time_of(small, {}, 2)->seconds, one);
  EXPECT_GT(time_of(small, {"train.recompute.granularity=full"})->seconds, one);
  EXPECT_GT(time_of(small, {"algorithm.kl_coef=0.1"})->seconds, one);
  EXPECT_FALSE(time_of(small, {}, 1, 48)) << "another card";
  EXPECT_FALSE(time_of(small, {"roles.trainer.tp=2"}, 2));
  EXPECT_FALSE(time_of(small, {"run.dtype=fp32"}));
  EXPECT_FALSE(time_of(small, {}, 8));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
