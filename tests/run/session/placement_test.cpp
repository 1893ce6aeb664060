// Which roles of a table a rank has, in which order, and who hands what to whom.

#include "src/run/session/placement.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace temper {
namespace {

/// A plan with these ranks; without rollout it is that of sft.
RunPlan plan_with(std::vector<int> rollout, std::vector<int> reference, std::vector<int> trainer) {
  RunPlan plan;
  plan.generates = !rollout.empty();
  std::map<std::string_view, std::vector<int>> ranks{
      {"rollout", std::move(rollout)}, {"reference", std::move(reference)}, {"trainer", std::move(trainer)}};
  for (const RoleTraits& row : built_in_role_traits()) {
    if (ranks[row.name].empty()) continue;
    RolePlan& role = plan.roles.emplace_back();
    role.traits = &row;
    role.ranks = ranks[row.name];
    role.take_stages({{{}}});
  }
  return plan;
}

std::vector<std::string> names(const Placement& placement) {
  std::vector<std::string> list;
  for (const PlacedRole& role : placement.roles) list.emplace_back(role.row->name);
  return list;
}
using Names = std::vector<std::string>;

TEST(Placement, ColocatedRolesRunInOrderOfTheirDuties) {
  LoadedConfig loaded;
  loaded.config.validation.every = 5;
  RunPlan plan = plan_with({0, 1}, {0, 1}, {0, 1});
  plan.validation.generates = true;
  const RunTask task{loaded, plan};
  std::vector<RoleRow> rows(built_in_roles().rbegin(), built_in_roles().rend());  // in any order
  const Placement p = place_roles(task, rows, 1);
  EXPECT_EQ(names(p), (Names{"rollout", "reference", "trainer", "validation"}));
  for (const PlacedRole& role : p.roles) EXPECT_TRUE(role.portion.index == 1 && role.portion.count == 2);
  EXPECT_EQ(p.ranks.producers, (std::vector<int>{0, 1}));
  EXPECT_EQ(p.ranks.stages, (std::vector<std::vector<int>>{{0, 1}}));
  EXPECT_TRUE(p.has(Duty::observes));
}

TEST(Placement, ARankHasItsOwnRolesAndKnowsTheOthers) {
  const LoadedConfig loaded;
  const RunPlan plan = plan_with({0, 2}, {3}, {1, 3});
  const RunTask task{loaded, plan};
  EXPECT_EQ(names(place_roles(task, built_in_roles(), 0)), Names{"rollout"});
  EXPECT_EQ(names(place_roles(task, built_in_roles(), 1)), Names{"trainer"});
  EXPECT_EQ(place_roles(task, built_in_roles(), 2).roles[0].portion.index, 1);
  EXPECT_EQ(names(place_roles(task, built_in_roles(), 3)), (Names{"reference", "trainer"}));
  const Placement idle = place_roles(task, built_in_roles(), 4);
  EXPECT_TRUE(idle.roles.empty());
  EXPECT_EQ(idle.ranks.producers, (std::vector<int>{0, 2}));
  EXPECT_EQ(idle.ranks.trainer, (std::vector<int>{1, 3}));
}

/// Trainer ranks produce; ranks that only generate have nothing to do.
TEST(Placement, ReplayAndSft) {
  const LoadedConfig loaded;
  const RunPlan grpo = plan_with({0}, {1}, {2}), sft = plan_with({}, {}, {0, 1});
  const RunTask replay{loaded, grpo, {"step-000001.jsonl"}}, lines{loaded, sft},
      again{loaded, sft, {"a.jsonl"}};
  EXPECT_TRUE(place_roles(replay, built_in_roles(), 0).roles.empty());
  EXPECT_EQ(names(place_roles(replay, built_in_roles(), 1)), Names{"reference"});
  EXPECT_EQ(names(place_roles(replay, built_in_roles(), 2)), (Names{"replay", "trainer"}));
  EXPECT_EQ(names(place_roles(lines, built_in_roles(), 1)), (Names{"sft", "trainer"}));
  EXPECT_EQ(names(place_roles(again, built_in_roles(), 1)), (Names{"replay", "trainer"}));
}

TEST(Placement, StagesAreNumberedByTheTable) {
  const LoadedConfig loaded;
  const RunPlan plan = plan_with({0}, {1}, {0, 1});
  const RunTask task{loaded, plan};
  std::vector<RoleRow> rows(built_in_roles().begin(), built_in_roles().end());
  rows.push_back({"judge", Duty::annotates, [](const RunTask&) { return std::vector<int>{1}; }, nullptr});
  const Placement p = place_roles(task, rows, 1);
  EXPECT_EQ(names(p), (Names{"reference", "judge", "trainer"}));
  EXPECT_EQ(p.roles[0].stage, 0u);
  EXPECT_EQ(p.roles[1].stage, 1u);
  EXPECT_EQ(p.ranks.stages.size(), 2u);
  rows.push_back({"second", Duty::produces, [](const RunTask&) { return std::vector<int>{1}; }, nullptr});
  expect_error(Exit::internal, {"the role second does what another one does"}, "two producers",
               [&] { place_roles(task, rows, 1); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
