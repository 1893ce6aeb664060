#include "src/run/plan/weight_traffic.h"

#include <algorithm>
#include <map>

#include "src/models/parameter_specs.h"
#include "src/nn/row_moves.h"

namespace temper {
namespace {

/// Bytes to one receiver, by number of the sender. Layers of one stage are alike: one stands for all.
std::map<int, int64_t> bytes_to(const RunPlan& plan, const ModelConfig& model, const Holders& sources,
                                const ShardPlace& place, int self) {
  const bool staged = sources.stages.size() > 1;
  ModelConfig some = model;
  if (!staged) some.num_layers = 1;
  std::map<int, int64_t> bytes;
  for (const ParamSpec& spec : parameter_specs(some)) {
    const int64_t times = !staged && spec.unit == layer_unit_name(0) ? model.num_layers : 1;
    const int64_t row = spec.size() / spec.shape.front() * dtype_size(plan.dtype) * times;
    for (const RowMove& move : row_moves(spec, sources, place, self))
      if (move.holder != self) bytes[move.holder] += move.rows * row;
  }
  return bytes;
}

}  // namespace

WeightTraffic weight_traffic(const RunPlan& plan, const ModelConfig& model) {
  WeightTraffic traffic;
  const std::vector<int> receivers = plan.weight_receivers();
  if (receivers.empty()) return traffic;
  const RolePlan &trainer = *plan.role(RoleKind::trainer), &rollout = *plan.role(RoleKind::rollout);
  Holders sources = trainer.holders();
  if (trainer.pp() == 1) sources.stages = {{}};
  const auto index = [](const std::vector<int>& ranks, int rank) {
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
    return at != ranks.end() && *at == rank ? static_cast<int>(at - ranks.begin()) : -1;
  };
  std::map<std::pair<int, int>, std::map<int, int64_t>> known;  // by place and number among the sources
  std::map<int, int64_t> sent, first;
  for (size_t i = 0; i < receivers.size(); ++i) {
    const ShardPlace place{index(rollout.ranks, receivers[i]) % rollout.tp, rollout.tp};
    const int self = index(trainer.ranks, receivers[i]);
    auto [to, is_new] = known.try_emplace({place.rank, self});
    if (is_new) to->second = bytes_to(plan, model, sources, place, self);
    for (const auto& [source, bytes] : to->second) {
      traffic.bytes += bytes;
      traffic.most_in_message = std::max(traffic.most_in_message, bytes);
      sent[source] += bytes;
      if (i < static_cast<size_t>(rollout.tp)) first[source] += bytes;
    }
  }
  for (const auto& [source, bytes] : sent) traffic.most_sent = std::max(traffic.most_sent, bytes);
  for (const auto& [source, bytes] : first) traffic.first_model = std::max(traffic.first_model, bytes);
  return traffic;
}

}  // namespace temper
