// profile.steps through the program: a timeline per named step, lanes of every role, both ends of every
// arrow.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/program.h"

namespace temper {
namespace {

const char* kConfig = R"([run]
name = "traced"
steps = 4
threads = 1
max_policy_lag = 1
[model]
path = "model"
[algorithm]
kl_coef = 0.1
[rollout]
prompts_per_step = 4
samples_per_prompt = 2
max_new_tokens = 4
[optimizer]
lr = 1e-3
[data]
train = "data.jsonl"
chat = false
[reward]
functions = ["exact"]
[roles]
rollout.ranks = "0"
reference.ranks = "1"
trainer.ranks = "2"
[profile]
steps = "2-3"
)";

TEST(Trace, HasALanePerRoleAndBothEndsOfEveryArrow) {
  Program program;
  program.write("run.toml", kConfig);
  std::string data;
  for (int i = 0; i < 9; ++i)
    data += fmt::format("{{\"prompt\":\"{} and {}\",\"answer\":\"1\"}}\n", i, i + 1);
  program.write("data.jsonl", data);
  ASSERT_EQ(program.init_model("model"), 0) << program.output();
  ASSERT_EQ(program.run_ranks(3, "train run.toml"), 0) << program.output();
  EXPECT_FALSE(path_exists(program.path("runs/traced/trace/step-000001.json")));
  EXPECT_FALSE(path_exists(program.path("runs/traced/trace/step-000004.json")));
  size_t events = 0;
  for (const int step : {2, 3}) {
    const std::string file = fmt::format("runs/traced/trace/step-{:06d}.json", step);
    const Json trace = parse_json(program.read(file), file);
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
  const Json all = parse_json(program.read(together), together);
  for (const Json& event : all.at("traceEvents")) events -= event.at("ph") != "M";
  EXPECT_EQ(events, 0u) << "the steps together";
}

TEST(Trace, NothingIsWrittenWhenNotAskedFor) {
  Program program;
  program.write("run.toml", kConfig);
  program.write("data.jsonl", "{\"prompt\":\"1\",\"answer\":\"1\"}\n");
  ASSERT_EQ(program.init_model("model"), 0) << program.output();
  ASSERT_EQ(program.run_ranks(3, "train run.toml profile.steps= run.steps=1"), 0) << program.output();
  EXPECT_FALSE(path_exists(program.path("runs/traced/trace")));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
