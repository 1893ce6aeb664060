#include "src/run/plan/weight_traffic.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "src/models/layer_kinds.h"
#include "src/models/parameter_specs.h"
#include "src/nn/parallel/row_moves.h"

namespace temper {
namespace {

/// A parameter that stands for `times` of its kind.
struct Alike {
  ParamSpec spec;
  int64_t times = 1;
};

/// Neighbouring layers of a kind that one stage of the trainer has, and one of the rollout, stand for each
/// other.
std::vector<Alike> alike_parameters(const ModelConfig& model, const Holders& sources,
                                    const Holders& receivers) {
  std::set<int64_t> borders{model.num_layers + 1};
  const std::vector<int64_t> kinds = layer_kinds(model);
  for (size_t layer = 1; layer < kinds.size(); ++layer)
    if (kinds[layer] != kinds[layer - 1]) borders.insert(static_cast<int64_t>(layer) + 1);
  for (const Holders& holders : {sources, receivers})
    for (const UnitSet& stage : holders.stages)
      for (const UnitRange& part : stage.ranges) borders.insert(std::max<int64_t>(1, part.begin));
  std::vector<Alike> all;
  for (ParamSpec& spec : parameter_specs(model)) {
    if (spec.whose == Whose::base) continue;
    const int64_t unit = spec.unit_number;
    const bool of_layer = unit >= 1 && unit <= model.num_layers;
    if (of_layer && !borders.contains(unit)) continue;
    all.push_back({std::move(spec), of_layer ? *borders.upper_bound(unit) - unit : 1});
  }
  return all;
}

/// Bytes to one receiver, by number of the sender.
std::map<int, int64_t> bytes_to(const std::vector<Alike>& parameters, DType dtype, const Holders& sources,
                                const ShardPlace& place, int self) {
  std::map<int, int64_t> bytes;
  for (const auto& [spec, times] : parameters) {
    const DType held = spec.wide ? accumulate_dtype(dtype) : dtype;
    const int64_t row = spec.size() / spec.shape.front() * dtype_size(held) * times;
    for (const RowMove& move : row_moves(spec, sources, place, self))
      if (move.holder != self) bytes[move.holder] += move.rows * row;
  }
  return bytes;
}

/// Receivers that get the same: `self` stands for all sources of its stage and its share. Where no source
/// receives, the first of each kind have a whole model together.
struct Receivers {
  ShardPlace place;
  int self = -1;
  int64_t count = 0;
};

std::vector<Receivers> alike_receivers(const RunPlan& plan) {
  const RolePlan &trainer = plan.trainer(), &rollout = *plan.generator();
  std::map<std::array<int, 6>, Receivers> kinds;
  const Holders holders = rollout.holders();
  for (const int receiver : plan.weight_receivers()) {
    const ShardPlace place = holders.place(rollout.number_of(receiver));
    const int self = trainer.has(receiver) ? trainer.number_of(receiver) : -1;
    const std::array<int, 6> kind{place.rank,
                                  place.expert_rank,
                                  rollout.stage_of(receiver),
                                  self < 0 ? -1 : trainer.stage_of(receiver),
                                  self < 0 ? 0 : trainer.grid.at(self, Axis::tp),
                                  self < 0 ? 0 : trainer.grid.at(self, Axis::ep)};
    ++kinds.try_emplace(kind, Receivers{place, self}).first->second.count;
  }
  std::vector<Receivers> all;
  for (const auto& [key, kind] : kinds) all.push_back(kind);
  return all;
}

}  // namespace

WeightTraffic weight_traffic(const RunPlan& plan, const ModelConfig& model) {
  WeightTraffic traffic;
  if (plan.weight_receivers().empty()) return traffic;
  Holders sources = plan.trainer().holders();
  if (sources.stages.size() == 1) sources.stages = {{}};
  const std::vector<Alike> parameters = alike_parameters(model, sources, plan.generator()->holders());
  std::map<int, int64_t> sent, messages, first;
  for (const Receivers& kind : alike_receivers(plan))
    for (const auto& [source, bytes] : bytes_to(parameters, plan.dtype, sources, kind.place, kind.self)) {
      traffic.bytes += kind.count * bytes;
      traffic.most_in_message = std::max(traffic.most_in_message, bytes);
      sent[source] += kind.count * bytes;
      messages[source] += kind.self < 0 ? bytes : kind.count * bytes;
      first[source] += bytes;
    }
  const auto most = [](const std::map<int, int64_t>& by_source) {
    int64_t bytes = 0;
    for (const auto& [source, own] : by_source) bytes = std::max(bytes, own);
    return bytes;
  };
  traffic.most_sent = most(sent);
  traffic.most_messages = most(messages);
  traffic.first_model = most(first);
  return traffic;
}

}  // namespace temper
