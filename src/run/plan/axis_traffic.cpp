#include "src/run/plan/axis_traffic.h"

#include <algorithm>
#include <array>
#include <map>

#include "src/core/check.h"
#include "src/models/parameter_specs.h"
#include "src/run/plan/dry_run.h"
#include "src/run/plan/layout/layer_samples.h"
#include "src/run/plan/memory/memory.h"

namespace temper {
namespace {

/// How many micro-batches with so many sequences there are on all dp ranks, by the number of sequences.
using Microbatches = std::map<int64_t, int64_t>;

/// Sequences of one length in a full micro-batch.
int64_t full_microbatch(const RunPlan& plan) { return plan.microbatch_tokens() / (plan.lengths.longest - 1); }

/// Sequences of one length are dealt in turn, and fill micro-batches one after the other (train/packing.h).
Microbatches microbatches_of(const RunPlan& plan, const RolePlan& trainer, int64_t samples) {
  const int64_t ranks = trainer.dp();
  const int64_t full = full_microbatch(plan);
  Microbatches all;
  const auto add = [&](int64_t of_ranks, int64_t share) {
    if (of_ranks * (share / full) > 0) all[full] += of_ranks * (share / full);
    if (of_ranks > 0 && share % full > 0) all[share % full] += of_ranks;
  };
  add(samples % ranks, samples / ranks + 1);
  add(ranks - samples % ranks, samples / ranks);
  return all;
}

/// `place` as the replica with this number.
GridPlace replica_at(const RolePlan& role, GridPlace place, int replica) {
  place.at[Axis::cp] = place.at[Axis::dp] = 0;
  const int number = role.grid.group(role.grid.number(place.at), kReplicas)[static_cast<size_t>(replica)];
  place.replica = replica;
  place.at[Axis::ep] = role.grid.at(number, Axis::ep);
  place.expert_replica = role.grid.at(number, Axis::edp);
  return place;
}

FlatRange owned(const RolePlan& role, const Unit& unit, const GridPlace& place) {
  return unit.summed_over == kReplicas
             ? shard_range(unit.range.size(), place.replica, role.replicas())
             : shard_range(unit.range.size(), place.expert_replica, role.grid.along(Axis::edp));
}

/// Replicas that own as much of each unit stand as one: the first of them, and how many there are.
std::vector<std::pair<int, int64_t>> alike_owners(const ModelConfig& model, const RolePlan& trainer,
                                                  const GridPlace& place) {
  ParameterStore store;
  const ShardPlace share = trainer.holders().place(trainer.grid.number(place.at));
  for (ParamSpec& spec : parameter_specs(model)) store.add(std::move(spec), share);
  std::map<std::vector<int64_t>, std::pair<int, int64_t>> kinds;
  for (int replica = 0; replica < trainer.replicas(); ++replica) {
    std::vector<int64_t> sizes;
    for (const Unit& unit : store.units())
      if (const int64_t size = owned(trainer, unit, replica_at(trainer, place, replica)).size();
          sizes.empty() || sizes.back() != size)
        sizes.push_back(size);
    ++kinds.try_emplace(sizes, replica, 0).first->second.second;
  }
  std::vector<std::pair<int, int64_t>> all;
  for (const auto& [sizes, kind] : kinds) all.push_back(kind);
  return all;
}

/// Stages with as many layers at the same end of the model send the same: one of each kind, and how many
/// there are.
std::vector<std::pair<int, int64_t>> alike_stages(const RolePlan& role, const ModelConfig& model) {
  std::map<std::vector<int64_t>, std::pair<int, int64_t>> kinds;
  for (int stage = 0; stage < role.pp(); ++stage)
    ++kinds.try_emplace(stage_kind(role, model, stage), stage, 0).first->second.second;
  std::vector<std::pair<int, int64_t>> all;
  for (const auto& [key, kind] : kinds) all.push_back(kind);
  return all;
}

/// Updates of a step that have as many samples.
struct AlikeUpdates {
  int64_t count = 0, samples = 0;
};

std::vector<AlikeUpdates> alike_updates(const BatchPlan& batch) {
  return {{batch.updates_per_step - 1, batch.samples_per_update}, {1, batch.last_update_samples}};
}

/// What a micro-batch sends that goes through all parts of a stage, from what it sends through one: a stream
/// leaves each part but the last, a gradient each but the first.
AxisBytes with_all_borders(const RolePlan& trainer, int stage, AxisBytes of_one) {
  const int ends = (stage == 0 ? 1 : 0) + (stage == trainer.pp() - 1 ? 1 : 0);
  if (trainer.vpp() > 1) of_one[Axis::pp] = of_one[Axis::pp] / (2 - ends) * (2 * trainer.vpp() - ends);
  return of_one;
}

/// What all ranks with one share of one stage's model send in an update: without micro-batches, what each of
/// these adds, and where ranks keep shards of gradients what each but the first adds to their sums, which all
/// ranks make as often.
AxisBytes share_traffic(const RunPlan& plan, const RolePlan& trainer, const ModelConfig& model,
                        const Config& config, GridPlace place, int64_t samples) {
  const int64_t ranks = trainer.dp();
  const int64_t full = full_microbatch(plan), most = ((samples + ranks - 1) / ranks + full - 1) / full;
  const auto of = [&](int64_t sequences) {
    return update_bytes(plan, trainer, model, config, place, sequences);
  };
  AxisBytes all;
  for (; place.at[Axis::cp] < trainer.cp(); ++place.at[Axis::cp]) {
    const AxisBytes none = of(0);
    for (const auto& [sequences, count] : microbatches_of(plan, trainer, samples))
      all = all + count * with_all_borders(trainer, place.at[Axis::pp], of(sequences) - none);
  }
  place.at[Axis::cp] = 0;
  for (const auto& [replica, alike] : alike_owners(model, trainer, place)) {
    place = replica_at(trainer, place, replica);
    const AxisBytes ends = of(0);
    all = all + alike * ends;
    if (most > 1 && trainer.zero > 1)
      all = all + alike * (most - 1) * (of(2 * full) - of(full) - (of(full) - ends));
  }
  return all;
}

/// What all ranks with one share of one stage's model send to gather its weights once from their shards
/// (ZeRO-3). `passes`: as a forward does, which takes a tied embedding twice.
AxisBytes gathered_weights(const RunPlan& plan, const ModelConfig& model, const RolePlan& role, int stage,
                           int tp_rank, bool passes = false) {
  if (!role.splits_weights()) return {};
  PerAxis<int> place;
  place[Axis::tp] = tp_rank, place[Axis::pp] = stage;
  const ShardPlace share = role.holders().place(role.grid.number(place));
  ParameterStore store;
  for (ParamSpec& spec : parameter_specs(model)) store.add(std::move(spec), share);
  const bool twice = passes && model.tie_word_embeddings && role.pp() == 1;
  int64_t elements = twice ? (role.replicas() - 1) * store.units().front().range.size() : 0;
  const int64_t edp = role.grid.along(Axis::edp);
  for (const Unit& unit : store.units())
    elements += places_of(unit, unit.range.size(), plan.dtype) *
                (unit.summed_over == kReplicas ? role.replicas() - 1 : role.replicas() * (edp - 1) / edp);
  return {{Axis::dp, elements * dtype_size(plan.dtype)}};
}

GridPlace place_at(int tp, int cp, int stage) {
  GridPlace place;
  place.at[Axis::tp] = tp;
  place.at[Axis::cp] = cp;
  place.at[Axis::pp] = stage;
  return place;
}

AxisBytes trainer_traffic(const RunPlan& plan, const RolePlan& trainer, const ModelConfig& model,
                          const Config& config) {
  AxisBytes step, once;
  for (const auto& [stage, stages] : alike_stages(trainer, model))
    for (int tp = 0; tp < trainer.tp(); ++tp) {
      for (const AlikeUpdates& updates : alike_updates(plan.batch))
        if (updates.count > 0)
          step =
              step + stages * updates.count *
                         share_traffic(plan, trainer, model, config, place_at(tp, 0, stage), updates.samples);
      once = once + stages * gathered_weights(plan, model, trainer, stage, tp);
    }
  return plan.batch.epochs_per_step * step + once;
}

/// Most micro-batches of a rank in a step of a role that scores with shards of weights: all gather for each.
int64_t gathering_passes(const RunPlan& plan, const RolePlan& role) {
  const int64_t samples = (plan.batch.samples_per_step + role.dp() - 1) / role.dp();
  const int64_t full = plan.budget_of(role) / (plan.lengths.longest - 1);
  return (samples + full - 1) / full;
}

/// What a role sends in a step that only goes forward over each sample. Where stages have parts a stream
/// leaves each part but the model's last.
AxisBytes forward_traffic(const RunPlan& plan, const RolePlan& role, const ModelConfig& model,
                          const Config& config) {
  AxisBytes sample, gathers;
  for (const auto& [stage, stages] : alike_stages(role, model))
    for (int tp = 0; tp < role.tp(); ++tp) {
      gathers = gathers + stages * gathered_weights(plan, model, role, stage, tp, /*passes=*/true);
      for (int cp = 0; cp < role.cp(); ++cp) {
        const auto bytes_at = [&](int of) {
          return logprob_bytes(plan, role, model, config, place_at(tp, cp, of));
        };
        AxisBytes of_one = bytes_at(stage);
        if (role.vpp() > 1)
          of_one[Axis::pp] = bytes_at(0)[Axis::pp] * (role.vpp() - (stage == role.pp() - 1 ? 1 : 0));
        sample = sample + stages * of_one;
      }
    }
  const AxisBytes all = plan.batch.samples_per_step * sample;
  return role.keeps_shards() ? all + gathering_passes(plan, role) * gathers : all;
}

/// Warns where blocks of so many neighbours, over which an axis sends, are on several nodes.
void warn_across(std::vector<std::string>& warnings, const RolePlan& role, const AxisRow& axis, int64_t bytes,
                 int ranks_per_node) {
  const int block = role.grid.span(axis.axis);
  int64_t across = 0, blocks = 0, first = 0;
  for (int64_t at = 0; at < std::ssize(role.ranks); at += block, ++blocks) {
    const int begin = role.ranks[static_cast<size_t>(at)],
              end = role.ranks[static_cast<size_t>(at + block - 1)];
    if (begin / ranks_per_node != end / ranks_per_node && across++ == 0) first = at;
  }
  if (across == 0) return;
  warnings.push_back(fmt::format(
      "roles.{0}.{1} = {2}: {3} of {4} groups of ranks are on several nodes of {5} (as ranks {6}-{7}); {1} "
      "sends "
      "{8} a step, {9} by each rank, at the speed of the network between nodes. Let {1} divide the ranks "
      "of a node and begin each role at a node",
      role.name(), axis.name, role.grid.along(axis.axis), across, blocks, ranks_per_node,
      role.ranks[static_cast<size_t>(first)], role.ranks[static_cast<size_t>(first + block - 1)],
      gib_text(bytes), gib_text(bytes / std::ssize(role.ranks))));
}

}  // namespace

std::vector<RoleTraffic> axis_traffic(const RunPlan& plan, const RunModels& models, const Config& config) {
  std::vector<RoleTraffic> all;
  for (const RolePlan& role : plan.roles) {
    const bool trains = role.traits->trains();
    if (role.ranks.size() == 1 || (!trains && role.team_size() == 1)) continue;
    all.push_back(
        {role.traits, (trains ? trainer_traffic : forward_traffic)(plan, role, models.of(role), config)});
  }
  return all;
}

std::vector<std::string> node_warnings(const RunPlan& plan, const std::vector<RoleTraffic>& traffic,
                                       int ranks_per_node) {
  std::vector<std::string> warnings;
  for (const RoleTraffic& of : traffic) {
    const RolePlan& role = *plan.role(of.role->name);
    for (const AxisRow& row : kAxes)
      if (row.within_layers && role.grid.along(row.axis) > 1)
        warn_across(warnings, role, row, of.bytes[row.axis], ranks_per_node);
  }
  return warnings;
}

}  // namespace temper
