#include "src/run/session/placement.h"

#include <algorithm>

#include "src/core/check.h"

namespace temper {

bool Placement::has(Duty duty) const {
  return std::any_of(roles.begin(), roles.end(),
                     [duty](const PlacedRole& role) { return role.row->duty == duty; });
}

namespace {

/// Appends the first rank of each team, and the others of it.
void add_teams(const std::vector<int>& ranks, int team, std::vector<int>& leaders, std::vector<int>& others) {
  for (size_t i = 0; i < ranks.size(); ++i)
    (i % static_cast<size_t>(team) == 0 ? leaders : others).push_back(ranks[i]);
  std::sort(others.begin(), others.end());
}

}  // namespace

Placement place_roles(const RunTask& task, std::span<const RoleRow> rows, int rank) {
  Placement placement;
  RoleRanks& all = placement.ranks;
  for (const RoleRow& row : rows) {
    const std::vector<int> ranks = row.ranks(task);
    if (ranks.empty()) continue;
    const int team = row.shares_model_of ? task.plan.role(*row.shares_model_of)->team_size() : 1;
    const size_t stage = all.stages.size();
    if (row.duty == Duty::annotates) add_teams(ranks, team, all.stages.emplace_back(), all.with_stages);
    if (row.duty == Duty::produces || row.duty == Duty::trains) {
      std::vector<int>& only = row.duty == Duty::produces ? all.producers : all.trainer;
      CHECK(only.empty(), "the role {} does what another one does", row.name);
      add_teams(ranks, team, only, all.with_producers);
    }
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
    if (at != ranks.end() && *at == rank)
      placement.roles.push_back(
          {&row, {(at - ranks.begin()) / team, static_cast<int64_t>(ranks.size()) / team}, stage});
  }
  std::stable_sort(placement.roles.begin(), placement.roles.end(),
                   [](const PlacedRole& a, const PlacedRole& b) { return a.row->duty < b.row->duty; });
  return placement;
}

WeightRoutes weight_routes(const RunTask& task, const RoleRanks& ranks) {
  const RolePlan& trainer = *task.plan.role(RoleKind::trainer);
  WeightRoutes routes{.sources = trainer.ranks,
                      .holders = trainer.holders(),
                      .receivers = {},
                      .apart = ranks.generate_apart()};
  if (task.replay()) return routes;
  for (const int rank : task.plan.weight_receivers()) {
    const RolePlan& rollout = *task.plan.role(RoleKind::rollout);
    const auto at =
        std::lower_bound(rollout.ranks.begin(), rollout.ranks.end(), rank) - rollout.ranks.begin();
    routes.receivers.push_back({rank, {static_cast<int>(at) % rollout.tp, rollout.tp}});
  }
  return routes;
}

}  // namespace temper
