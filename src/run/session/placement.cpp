#include "src/run/session/placement.h"

#include <algorithm>
#include <iterator>

#include "src/core/check.h"

namespace temper {

bool Placement::has(Duty duty) const {
  return std::any_of(roles.begin(), roles.end(),
                     [duty](const PlacedRole& role) { return role.row->duty == duty; });
}

bool Placement::learns() const {
  return std::any_of(roles.begin(), roles.end(), [](const PlacedRole& role) { return role.learns(); });
}

namespace {

std::vector<int> united(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> all;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}
/// Some rank is in both, the second in order.
bool meet(const std::vector<int>& some, const std::vector<int>& ranks) {
  return std::any_of(some.begin(), some.end(),
                     [&](int rank) { return std::binary_search(ranks.begin(), ranks.end(), rank); });
}

/// How the ranks that have the role of a row work together: who speaks for others, and which portion each
/// has. `model`: the role whose teams work as one; null: every rank for itself.
struct Teams {
  const std::vector<int>& ranks;
  const RolePlan* model;

  /// That of a rank, itself included.
  std::vector<int> of(int rank) const { return model ? model->team(rank) : std::vector{rank}; }
  std::vector<int> leaders() const { return model ? model->leaders() : ranks; }
  Portion portion(int rank) const {
    if (model) return {model->team_number(rank), model->teams()};
    return {std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin(), std::ssize(ranks)};
  }
  /// Appends the first rank of each team, and the others of it, which stay in order.
  void add_to(std::vector<int>& first, std::vector<int>& others) const {
    const std::vector<int> leading = leaders();
    first.insert(first.end(), leading.begin(), leading.end());
    std::set_difference(ranks.begin(), ranks.end(), leading.begin(), leading.end(),
                        std::back_inserter(others));
    std::sort(others.begin(), others.end());
  }
};

/// The role whose teams work as one in a row; null: every rank for itself, as those that train do.
const RolePlan* team_role(const RunTask& task, const RoleRow& row) {
  return row.model_of && row.duty != Duty::trains ? task.plan.role(row.model_of) : nullptr;
}

}  // namespace

Placement place_roles(const RunTask& task, std::span<const RoleRow> rows, int rank) {
  Placement placement;
  RoleRanks& all = placement.ranks;
  std::vector<int> producing;
  for (const RoleRow& row : rows)
    if (row.duty == Duty::produces) producing = united(producing, row.ranks(task));
  for (const RoleRow& row : rows) {
    const std::vector<int> ranks = row.ranks(task);
    if (ranks.empty()) continue;
    const Teams teams{ranks, team_role(task, row)};
    const size_t stage = all.stages.size();
    CHECK(row.state != State::learned || row.duty == Duty::annotates,
          "the role {} learns and does not annotate", row.name);
    if (row.state != State::none) all.keepers = united(all.keepers, ranks);
    if (row.state == State::learned) {
      all.learners = united(all.learners, ranks);
      all.learning_stages.insert(stage);
    }
    if (row.duty == Duty::annotates) teams.add_to(all.stages.emplace_back(), all.with_stages);
    if (row.duty == Duty::produces || row.duty == Duty::trains) {
      std::vector<int>& only = row.duty == Duty::produces ? all.producers : all.trainer;
      CHECK(only.empty(), "the role {} does what another one does", row.name);
      teams.add_to(only, all.with_producers);
    }
    if (std::binary_search(ranks.begin(), ranks.end(), rank))
      placement.roles.push_back({&row, teams.portion(rank), stage,
                                 row.state != State::learned && meet(teams.of(rank), producing), ranks});
  }
  all.keepers = united(all.keepers, all.trainer);
  std::stable_sort(placement.roles.begin(), placement.roles.end(),
                   [](const PlacedRole& a, const PlacedRole& b) { return a.row->duty < b.row->duty; });
  return placement;
}

WeightRoutes weight_routes(const RunTask& task, const RoleRanks& ranks) {
  const RolePlan& trainer = task.plan.trainer();
  WeightRoutes routes{.sources = trainer.ranks,
                      .holders = trainer.holders(),
                      .receivers = {},
                      .apart = ranks.generate_apart()};
  if (task.replay()) return routes;
  for (const int rank : task.plan.weight_receivers()) {
    const RolePlan& rollout = *task.plan.generator();
    routes.receivers.push_back({rank, rollout.holders().place(rollout.number_of(rank))});
  }
  return routes;
}

}  // namespace temper
