#include "src/run/plan/layout/role_plan.h"

#include <algorithm>
#include <numeric>

namespace temper {

void RolePlan::split(Axis axis, int64_t along) {
  grid.set(axis, static_cast<int>(along));
  grid.set(Axis::dp, 1);
  grid.set(Axis::dp, groups_of(AxisSet::all()));
}

void RolePlan::fit_experts() {
  if (grid.size(Axis::tp | Axis::cp | Axis::dp) % ep() != 0) grid.set(Axis::ep, std::gcd(tp(), ep()));
}

void RolePlan::take_stages(std::vector<LayerRanges> all) {
  stages = std::move(all);
  split(Axis::pp, std::ssize(stages));
}

LayerRanges RolePlan::parts() const {
  LayerRanges all;
  for (size_t part = 0; part < stages.front().size(); ++part)
    for (const LayerRanges& stage : stages) all.push_back(stage[part]);
  return all;
}

std::vector<LayerRanges> RolePlan::whole_stages() const {
  std::vector<LayerRanges> whole;
  for (int64_t begin = 0; const LayerRanges& stage : stages) {
    whole.push_back({{begin, begin + num_layers(stage)}});
    begin = whole.back().back().end;
  }
  return whole;
}

bool RolePlan::has(int rank) const { return std::binary_search(ranks.begin(), ranks.end(), rank); }

int RolePlan::number_of(int rank) const {
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

std::vector<int> RolePlan::group(int rank, AxisSet axes) const {
  std::vector<int> all;
  for (const int number : grid.group(number_of(rank), axes))
    all.push_back(ranks[static_cast<size_t>(number)]);
  return all;
}

bool RolePlan::shares_base(const RolePlan& lead, int rank) const {
  const bool first = !traits->of_policy && !traits->trains() && !own_model;
  return first && has(rank) && lead.has(rank) && tp() == lead.tp() && cp() == lead.cp() &&
         ep() == lead.ep() && stages == lead.stages && group(rank, kTeam) == lead.group(rank, kTeam);
}

bool RolePlan::shares_base(const RolePlan& lead) const {
  const auto shares = [&](int rank) { return shares_base(lead, rank); };
  return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), shares);
}

std::vector<int> RolePlan::leaders() const {
  std::vector<int> first;
  for (const int rank : ranks)
    if (grid.at(number_of(rank), team_axes()) == 0) first.push_back(rank);
  return first;
}

}  // namespace temper
