#pragma once
// Values of which every rank has a shard (ZeRO-3), gathered unit by unit where a pass is about to read them.

#include "src/comm/collectives.h"
#include "src/nn/parameter.h"

namespace temper {

/// A unit's values are whole in their window, or were so anyway. All of `owners` call it, in the same order.
inline void gather_unit(Ctx& c, const ParameterStore& parameters, Collectives& owners, const Unit& unit) {
  if (!parameters.split() || unit.range.size() == 0) return;
  parameters.place_own(c.lane, unit);
  owners.all_gather_shards(c, parameters.values_of(unit), "weights of a unit, copied from their dp owners");
  c.lane.order();
}

}  // namespace temper
