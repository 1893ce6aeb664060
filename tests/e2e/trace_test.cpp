// profile.steps through the program: a timeline per named step, lanes of every role, both ends of every
// arrow.

#include <algorithm>
#include <cmath>
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

/// As Perfetto's importer reads them: spans of a lane nest, either end of an arrow hangs on a span of its
/// lane ("bp": "e" is the one around it), ends meet by category, name and id, and none ends before it begins.
void expect_importable(const Json& events, const std::string& file) {
  std::map<std::pair<int, int>, std::vector<std::pair<int64_t, int64_t>>> spans;  // of a lane, nanoseconds
  std::map<std::string, std::map<std::string, int64_t>> arrows;                   // time by end
  const auto time = [](const Json& event, const char* key) {
    return std::llround(event.at(key).get<double>() * 1e3);
  };
  const auto lane = [](const Json& event) {
    return std::pair(event.at("pid").get<int>(), event.at("tid").get<int>());
  };
  for (const Json& event : events)
    if (event.at("ph") == "X")
      spans[lane(event)].emplace_back(time(event, "ts"), time(event, "ts") + time(event, "dur"));
  for (const auto& [unused, of_lane] : spans)
    for (const auto& [begin, end] : of_lane)
      for (const auto& [from, to] : of_lane)
        EXPECT_FALSE(begin < from && from < end && end < to) << file << ": spans overlap in part";
  for (const Json& event : events) {
    const std::string phase = event.at("ph");
    if (phase != "s" && phase != "f") continue;
    const int64_t at = time(event, "ts");
    const auto& around = spans[lane(event)];
    EXPECT_TRUE(std::any_of(around.begin(), around.end(),
                            [&](const auto& span) { return span.first <= at && at < span.second; }))
        << file << ": " << event.dump();
    EXPECT_TRUE(phase == "s" || event.at("bp") == "e") << file << ": " << event.dump();
    const std::string id = event.at("id"), name = event.at("name"), category = event.at("cat");
    EXPECT_TRUE(arrows[category + "|" + name + "|" + id].emplace(phase, at).second) << file << ": " << name;
  }
  EXPECT_FALSE(arrows.empty()) << file;
  for (const auto& [arrow, ends] : arrows) {
    ASSERT_EQ(ends.size(), 2u) << file << ": one end of " << arrow;
    EXPECT_LT(ends.at("s"), ends.at("f")) << file << ": " << arrow;
  }
}

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
    expect_importable(trace.at("traceEvents"), file);
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
    EXPECT_GT(std::erase_if(lanes, [](const std::string& lane) { return lane.starts_with("0 rewards "); }),
              0u);
    EXPECT_EQ(lanes,
              (std::set<std::string>{"0 rollout", "0 CPU", "1 reference", "1 CPU", "2 trainer", "2 CPU"}));
    for (const char* begin : {"prefill, sequences ", "decode, sequences ", "micro-batch, rows ",
                              "optimizer, update ", "reward of prompt "}) {
      const auto at = spans.lower_bound(begin);
      EXPECT_TRUE(at != spans.end() && at->starts_with(begin)) << begin;
    }
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
  expect_importable(all.at("traceEvents"), together);
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
