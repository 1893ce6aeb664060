#include "src/run/session/placement.h"

#include <algorithm>

#include "src/core/check.h"

namespace temper {

bool Placement::has(Duty duty) const {
  return std::any_of(roles.begin(), roles.end(),
                     [duty](const PlacedRole& role) { return role.row->duty == duty; });
}

Placement place_roles(const RunTask& task, std::span<const RoleRow> rows, int rank) {
  Placement placement;
  RoleRanks& all = placement.ranks;
  for (const RoleRow& row : rows) {
    const std::vector<int> ranks = row.ranks(task);
    if (ranks.empty()) continue;
    const size_t stage = all.stages.size();
    if (row.duty == Duty::annotates) all.stages.push_back(ranks);
    if (row.duty == Duty::produces || row.duty == Duty::trains) {
      std::vector<int>& only = row.duty == Duty::produces ? all.producers : all.trainer;
      CHECK(only.empty(), "the role {} does what another one does", row.name);
      only = ranks;
    }
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
    if (at != ranks.end() && *at == rank)
      placement.roles.push_back({&row, {at - ranks.begin(), static_cast<int64_t>(ranks.size())}, stage});
  }
  std::stable_sort(placement.roles.begin(), placement.roles.end(),
                   [](const PlacedRole& a, const PlacedRole& b) { return a.row->duty < b.row->duty; });
  return placement;
}

}  // namespace temper
