// profile.steps through the program: a timeline per named step, lanes of every role, both ends of every
// arrow.

#include <map>
#include <set>

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "traced"
run.steps = 4
run.max_policy_lag = 1
algorithm.kl_coef = 0.1
rollout.prompts_per_step = 4
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 4
reward.functions = ["exact"]
roles.rollout.ranks = "0"
roles.reference.ranks = "1"
roles.trainer.ranks = "2"
profile.steps = "2-3"
)";

class Trace : public RunFixture {
 protected:
  void SetUp() override { prepare(kConfig, sums(9)); }
};

TEST_F(Trace, HasALanePerRoleAndBothEndsOfEveryArrow) {
  ASSERT_EQ(program_.run_ranks(3, "train run.toml"), 0) << output();
  EXPECT_FALSE(exists("runs/traced/trace/step-000001.json"));
  EXPECT_FALSE(exists("runs/traced/trace/step-000004.json"));
  size_t events = 0;
  for (const int step : {2, 3}) {
    const std::string file = fmt::format("runs/traced/trace/step-{:06d}.json", step);
    const Json trace = parse_json(program_.read(file), file);
    std::set<std::string> lanes, spans;
    std::map<std::string, std::string> ends;
    for (const Json& event : trace.at("traceEvents")) {
      const std::string phase = event.at("ph"), name = event.at("name");
      if (phase == "M" && name == "thread_name")
        lanes.insert(
            fmt::format("{} {}", event.at("pid").get<int>(), event.at("args").at("name").get<std::string>()));
      if (phase == "X") {
        spans.insert(name);
        EXPECT_GE(event.at("dur").get<double>(), 0) << name;
        EXPECT_GE(event.at("ts").get<double>(), 0) << name;
      }
      if (phase == "s" || phase == "f") ends[event.at("id")] += phase;
      events += phase != "M";
    }
    EXPECT_EQ(lanes, (std::set<std::string>{"0 rollout", "1 reference", "2 trainer"}));
    for (const std::string& name :
         {fmt::format("generate step {} with weights {}", step, step - 2),
          fmt::format("send weights {}", step), fmt::format("update 1 of step {}", step),
          fmt::format("get groups of step {}", step)})
      EXPECT_TRUE(spans.contains(name)) << name;
    EXPECT_EQ(ends.size(), 2u);  // groups of the step, weights after it
    for (const auto& [id, both] : ends) EXPECT_TRUE(both == "sf" || both == "fs") << both;
  }
  const std::string together = "runs/traced/trace/all-steps.json";
  const Json all = parse_json(program_.read(together), together);
  for (const Json& event : all.at("traceEvents")) events -= event.at("ph") != "M";
  EXPECT_EQ(events, 0u) << "the steps together";
}

TEST_F(Trace, NothingIsWrittenWhenNotAskedFor) {
  ASSERT_EQ(program_.run_ranks(3, "train run.toml profile.steps= run.steps=1"), 0) << output();
  EXPECT_FALSE(exists("runs/traced/trace"));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
