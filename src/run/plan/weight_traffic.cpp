#include "src/run/plan/weight_traffic.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>

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
  std::vector<int> ranks;
};

/// What ranks of one part of the trainer's model have in common: its stage and their share of it.
std::array<int, 3> part_of(const RolePlan& trainer, int number) {
  const auto at = [&](Axis axis) { return trainer.grid.at(number, axis); };
  return {at(Axis::pp), at(Axis::tp), at(Axis::ep)};
}

std::vector<Receivers> alike_receivers(const RunPlan& plan) {
  const RolePlan &trainer = plan.trainer(), &rollout = *plan.generator();
  using OwnPart = std::optional<std::array<int, 3>>;
  std::map<std::tuple<int, int, int, OwnPart>, Receivers> kinds;
  const Holders holders = rollout.holders();
  for (const int receiver : plan.weight_receivers()) {
    const ShardPlace place = holders.place(rollout.number_of(receiver));
    const int self = trainer.has(receiver) ? trainer.number_of(receiver) : -1;
    const OwnPart own = self < 0 ? OwnPart() : part_of(trainer, self);
    Receivers& kind = kinds[{place.rank, place.expert_rank, rollout.stage_of(receiver), own}];
    if (kind.ranks.empty()) kind = {place, self, {}};
    kind.ranks.push_back(receiver);
  }
  std::vector<Receivers> all;
  for (auto& [key, kind] : kinds) all.push_back(std::move(kind));
  return all;
}

}  // namespace

WeightTraffic weight_traffic(const RunPlan& plan, const ModelConfig& model) {
  WeightTraffic traffic;
  traffic.messages.resize(static_cast<size_t>(plan.num_ranks));
  traffic.in_message = traffic.messages;
  if (plan.weight_receivers().empty()) return traffic;
  const RolePlan& trainer = plan.trainer();
  Holders sources = trainer.holders();
  if (sources.stages.size() == 1) sources.stages = {{}};
  const std::vector<Alike> parameters = alike_parameters(model, sources, plan.generator()->holders());
  std::map<int, int64_t> sent, first, messages;
  for (const Receivers& kind : alike_receivers(plan)) {
    const auto count = static_cast<int64_t>(kind.ranks.size());
    for (const auto& [source, bytes] : bytes_to(parameters, plan.dtype, sources, kind.place, kind.self)) {
      traffic.bytes += count * bytes;
      sent[source] += count * bytes;
      messages[source] += kind.self < 0 ? bytes : count * bytes;
      first[source] += bytes;
      for (const int rank : kind.ranks) traffic.in_message[rank] = std::max(traffic.in_message[rank], bytes);
    }
  }
  // A source stands for all of its part.
  std::map<std::array<int, 3>, int64_t> of_part;
  for (const auto& [source, bytes] : messages) {
    int64_t& most = of_part[part_of(trainer, source)];
    most = std::max(most, bytes);
  }
  for (const int rank : trainer.ranks)
    traffic.messages[static_cast<size_t>(rank)] = of_part[part_of(trainer, trainer.number_of(rank))];
  const auto most = [](const std::map<int, int64_t>& by_source) {
    int64_t bytes = 0;
    for (const auto& [source, own] : by_source) bytes = std::max(bytes, own);
    return bytes;
  };
  traffic.most_sent = most(sent);
  traffic.first_model = most(first);
  return traffic;
}

}  // namespace temper
