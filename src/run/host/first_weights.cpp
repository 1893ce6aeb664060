#include "src/run/host/first_weights.h"

namespace temper {

FirstWeights::FirstWeights(Ctx& c, Model& model, bool keeps)
    : model_(model), memory_(model.device(), MemoryUse::weights), uses_adapters_(keeps) {
  const ParameterStore& parameters = model.parameters();
  for (const Unit& unit : parameters.units()) {
    if (!keeps || !unit.trained || unit.range.size() == 0) continue;
    const Tensor values = parameters.values_of(unit);
    kept_.push_back(memory_.make({values.size()}, values.dtype));
    device::copy(c.lane, kept_.back().raw(), values.data, values.bytes());
  }
  c.lane.wait();
}

void FirstWeights::swap(Ctx& c) {
  if (!uses_adapters_) return model_.use_adapters(!model_.uses_adapters());
  const ArenaScope scope(c.scratch);
  size_t next = 0;
  for (const Unit& unit : model_.parameters().units()) {
    if (!unit.trained || unit.range.size() == 0) continue;
    const Tensor values = model_.parameters().values_of(unit), &kept = kept_.at(next++);
    const ArenaScope of_unit(c.scratch);
    const Tensor aside = c.scratch.like(values);
    device::copy(c.lane, aside.raw(), values.data, values.bytes());
    device::copy(c.lane, values.raw(), kept.data, values.bytes());
    device::copy(c.lane, kept.raw(), aside.data, values.bytes());
  }
}

}  // namespace temper
