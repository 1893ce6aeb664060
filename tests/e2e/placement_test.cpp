// The same run with its roles on other ranks, and with a policy lag: rollouts, metrics (but timing_s/ and
// perf/) and weights are the same bytes, and each step is generated with exactly the version that the lag
// says.

#include "tests/e2e/placed_run.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

class PlacementTest : public PlacedRun {
 protected:
  /// Step s is generated with version max(0, s - 1 - lag) and by no other.
  void expect_versions(const std::string& name, int lag) const {
    const std::vector<Json> lines = program_.metrics(name);
    ASSERT_EQ(lines.size(), static_cast<size_t>(kSteps)) << name;
    for (int step = 1; step <= kSteps; ++step) {
      const int version = std::max(0, step - 1 - lag);
      const Json& line = lines[static_cast<size_t>(step) - 1];
      EXPECT_EQ(line.at("policy/lag_max").get<double>(), step - 1 - version) << name << ", step " << step;
      EXPECT_EQ(line.at("policy/version").get<double>(), step) << name;
      const std::vector<Json> responses = program_.json_lines(rollout_file(name, step));
      EXPECT_EQ(responses.size(), 10u) << name << ", step " << step;
      for (const Json& response : responses)
        EXPECT_EQ(response.at("policy_version"), Json::array({version, version}))
            << name << ", step " << step;
    }
  }
};

TEST_F(PlacementTest, DoesNotChangeTheRun) {
  std::vector<Run> runs;
  for (int lag : {0, 1, 2})
    for (const Placement& placement : {kColocated, kDisjoint, kOverlapping})
      runs.push_back({placement, lag, fmt::format("{}-{}", placement.name, lag)});
  for (int lag : {1, 2}) runs.push_back({kDisjoint, lag, fmt::format("again-{}", lag)});
  ASSERT_EQ(train_each(runs), 0) << output();
  for (const Run& run : runs) {
    expect_versions(run.name, run.lag);
    expect_same_run(fmt::format("colocated-{}", run.lag), run.name);
  }
  EXPECT_TRUE(rollouts("colocated-0", 1) == rollouts("colocated-2", 1));
  EXPECT_FALSE(weights("colocated-0") == weights("colocated-1")) << "a lag has to change something";
  EXPECT_FALSE(weights("colocated-1") == weights("colocated-2"));
}

/// One trainer rank, and three.
TEST_F(PlacementTest, AnyNumberOfTrainerRanksMayBePlacedAnyhow) {
  const Placement alone{"alone", 1, ""}, three{"three", 3, ""};
  const Placement apart{
      "apart", 3, R"(roles.rollout.ranks='"0-1"' roles.reference.ranks='"2"' roles.trainer.ranks='"2"')"};
  const Placement shifted{
      "shifted", 4,
      R"(roles.rollout.ranks='"0-2"' roles.reference.ranks='"0-2"' roles.trainer.ranks='"1-3"')"};
  const auto name = [&](const Placement& p, int lag) { return fmt::format("{}-{}", p.name, lag); };
  std::vector<Run> runs;
  for (const int lag : {0, 2})
    for (const Placement& p : {alone, apart, three, shifted}) runs.push_back({p, lag, name(p, lag)});
  ASSERT_EQ(train_each(runs), 0) << output();
  for (const int lag : {0, 2}) {
    expect_same_run(name(alone, lag), name(apart, lag));
    expect_same_run(name(three, lag), name(shifted, lag));
  }
}

TEST_F(PlacementTest, AnotherNumberOfTrainerRanksHasTheSameFirstRollouts) {
  ASSERT_EQ(train(kColocated, 0, "two"), 0) << output();
  const Placement others[] = {
      {"three", 3, ""},
      {"apart", 3, R"(roles.rollout.ranks='"1-2"' roles.reference.ranks='"1-2"' roles.trainer.ranks='"0"')"}};
  for (const Placement& other : others) {
    ASSERT_EQ(train(other, 0, other.name, "run.steps=2"), 0) << output();
    EXPECT_TRUE(rollouts(other.name, 1) == rollouts("two", 1)) << other.name;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
