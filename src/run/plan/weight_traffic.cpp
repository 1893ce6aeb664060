#include "src/run/plan/weight_traffic.h"

#include <algorithm>
#include <map>

#include "src/models/parameter_specs.h"
#include "src/nn/row_moves.h"

namespace temper {
namespace {

/// A parameter that stands for `times` of its kind.
struct Alike {
  ParamSpec spec;
  int64_t times = 1;
};

/// Layers of one stage are alike.
std::vector<Alike> alike_parameters(const ModelConfig& model, const std::vector<UnitRange>& stages) {
  std::vector<Alike> all;
  for (ParamSpec& spec : parameter_specs(model)) {
    const int64_t unit = spec.unit_number, layers = model.num_layers;
    if (unit < 1 || unit > layers) {
      all.push_back({std::move(spec)});
      continue;
    }
    for (const UnitRange& stage : stages)
      if (unit == std::max<int64_t>(1, stage.begin))
        all.push_back({spec, std::min(layers + 1, stage.end) - unit});
  }
  return all;
}

/// Bytes to one receiver, by number of the sender.
std::map<int, int64_t> bytes_to(const std::vector<Alike>& parameters, DType dtype, const Holders& sources,
                                const ShardPlace& place, int self) {
  std::map<int, int64_t> bytes;
  for (const auto& [spec, times] : parameters) {
    const int64_t row = spec.size() / spec.shape.front() * dtype_size(dtype) * times;
    for (const RowMove& move : row_moves(spec, sources, place, self))
      if (move.holder != self) bytes[move.holder] += move.rows * row;
  }
  return bytes;
}

/// Receivers that get the same: `self` stands for all sources of its stage and its share.
struct Receivers {
  ShardPlace place;
  int self = -1;
  int64_t count = 0, first_model = 0;  // of these, among those that first have a whole model
};

std::vector<Receivers> alike_receivers(const RunPlan& plan) {
  const RolePlan &trainer = *plan.role(RoleKind::trainer), &rollout = *plan.role(RoleKind::rollout);
  const auto index = [](const std::vector<int>& ranks, int rank) {
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
    return at != ranks.end() && *at == rank ? static_cast<int>(at - ranks.begin()) : -1;
  };
  std::map<std::pair<int, std::pair<int, int>>, Receivers> kinds;
  int number = 0;
  for (const int receiver : plan.weight_receivers()) {
    const int share = index(rollout.ranks, receiver) % rollout.tp, self = index(trainer.ranks, receiver);
    const std::pair<int, int> has{self < 0 ? -1 : trainer.stage_of(receiver),
                                  self < 0 ? 0 : self % trainer.tp};
    Receivers& kind = kinds.try_emplace({share, has}, Receivers{{share, rollout.tp}, self}).first->second;
    ++kind.count;
    kind.first_model += number++ < rollout.tp;
  }
  std::vector<Receivers> all;
  for (const auto& [key, kind] : kinds) all.push_back(kind);
  return all;
}

}  // namespace

WeightTraffic weight_traffic(const RunPlan& plan, const ModelConfig& model) {
  WeightTraffic traffic;
  if (plan.weight_receivers().empty()) return traffic;
  Holders sources = plan.role(RoleKind::trainer)->holders();
  if (sources.stages.size() == 1) sources.stages = {{}};
  const std::vector<Alike> parameters = alike_parameters(model, sources.stages);
  std::map<int, int64_t> sent, first;
  for (const Receivers& kind : alike_receivers(plan))
    for (const auto& [source, bytes] : bytes_to(parameters, plan.dtype, sources, kind.place, kind.self)) {
      traffic.bytes += kind.count * bytes;
      traffic.most_in_message = std::max(traffic.most_in_message, bytes);
      sent[source] += kind.count * bytes;
      first[source] += kind.first_model * bytes;
    }
  for (const auto& [source, bytes] : sent) traffic.most_sent = std::max(traffic.most_sent, bytes);
  for (const auto& [source, bytes] : first) traffic.first_model = std::max(traffic.first_model, bytes);
  return traffic;
}

}  // namespace temper
