#pragma once
// A role of a run in numbers: its ranks, their grid, and which layers each stage of them has. A pure value
// that plan, meshes, exchange and placement ask.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "src/comm/grid.h"
#include "src/config/roles.h"
#include "src/models/stages.h"
#include "src/nn/parallel/row_moves.h"

namespace temper {

struct RolePlan {
  const RoleTraits* traits = nullptr;
  std::vector<int> ranks;                    // ascending
  Grid grid;                                 // of them
  std::vector<LayerRanges> stages = {{{}}};  // layers of each stage of a pipeline, in one part or several
  int zero = 1;            // 2: a learner keeps its shard of gradients; 3: of weights, as those that score do
  bool own_model = false;  // its section names a path
  bool in_host = false;    // weights lie in host memory but for the role's phase

  std::string_view name() const { return traits->name; }
  int tp() const { return grid.along(Axis::tp); }
  int cp() const { return grid.along(Axis::cp); }
  int dp() const { return grid.along(Axis::dp); }
  int pp() const { return grid.along(Axis::pp); }
  int ep() const { return grid.has_experts() ? grid.along(Axis::ep) : 1; }
  /// Ranks of ep have different batches.
  bool ep_spans_batches() const { return grid.size(Axis::tp | Axis::cp) % ep() != 0; }
  /// How many groups its ranks make that are as large as the grid along these axes.
  int groups_of(AxisSet axes) const { return static_cast<int>(ranks.size()) / grid.size(axes); }
  /// So many ranks along an axis; what is left of them is data parallel.
  void split(Axis axis, int64_t along);
  /// Experts are spread within tp alone where the ranks of a stage do not divide by ep.
  void fit_experts();
  /// Stages of the pipeline, and with them the ranks along pp.
  void take_stages(std::vector<LayerRanges> all);

  /// Parts of each stage (virtual stages): part c of stage s is number c * pp + s of all.
  int vpp() const { return static_cast<int>(stages.front().size()); }
  /// All of them in the order of layers.
  LayerRanges parts() const;
  /// The same stages with as many layers in one part each.
  std::vector<LayerRanges> whole_stages() const;
  const LayerRanges& layers_of(int rank) const { return stages[static_cast<size_t>(stage_of(rank))]; }

  bool has(int rank) const;
  /// The place of a rank among those of the role, which it is one of.
  int number_of(int rank) const;
  int stage_of(int rank) const { return grid.at(number_of(rank), Axis::pp); }
  /// The ranks that differ from this one along these axes alone.
  std::vector<int> group(int rank, AxisSet axes) const;

  /// Where `lead` trains adapters: what this rank has for the role is the base beside which it does.
  bool shares_base(const RolePlan& lead, int rank) const;
  bool shares_base(const RolePlan& lead) const;  // on all of its ranks

  /// How many ranks have the same part of the model, and share the optimizer's state.
  int replicas() const { return grid.size(kReplicas); }
  /// What a rank keeps that has this place among them, and this one among those with the same experts.
  UnitShards unit_shards(int replica, int expert_replica) const {
    if (zero == 1) return {};
    return {replica,
            replicas(),
            zero > 2,
            !traits->trains(),
            {{Axis::edp, {expert_replica, grid.along(Axis::edp)}}}};
  }
  bool splits_weights() const { return zero > 2 && replicas() > 1; }
  /// Weights are shards in every phase, not only while they are trained.
  bool keeps_shards() const { return splits_weights() && !traits->trains(); }
  Holders holders() const { return {grid, stage_units(stages)}; }
  /// Ranks that have one whole model: more than its tp and pp where experts are on others, too.
  AxisSet one_model() const { return ep() > tp() ? AxisSet::all() : kModel; }
  bool is_of_first_model(int number) const { return grid.at(number, one_model().others()) == 0; }
  /// The same, by their numbers along these axes.
  Holders holders_of_one() const {
    if (ep() > tp()) return holders();
    return {{{Axis::tp, tp()}, {Axis::pp, pp()}, {Axis::ep, ep()}}, stage_units(stages)};
  }

  /// A team does the same work together: the ranks that have one whole model, where they do not train also
  /// those that share its tokens; where weights stay shards all that gather them, and where experts are on
  /// ranks with other tokens all that send them some.
  AxisSet team_axes() const { return traits->trains() ? kModel : works_together() ? AxisSet::all() : kTeam; }
  /// All ranks of a role that scores make the passes of a step together.
  bool works_together() const { return keeps_shards() || (!traits->trains() && ep_spans_batches()); }
  int team_size() const { return grid.size(team_axes()); }
  int teams() const { return grid.size(team_axes().others()); }
  /// The team of a rank that has the role.
  int team_number(int rank) const { return grid.group_of(number_of(rank), team_axes()); }
  std::vector<int> team(int rank) const { return group(rank, team_axes()); }
  /// The first ranks of the teams: what others hand to the role goes to them, and what it makes comes from
  /// them.
  std::vector<int> leaders() const;
};

}  // namespace temper
