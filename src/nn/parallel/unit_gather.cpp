#include "src/nn/parallel/unit_gather.h"

namespace temper {
namespace {

/// Where the window of these begins; null: none of them has elements.
const void* begin_of(const ParameterStore& parameters, const UnitGroup& units) {
  for (const Unit& unit : units)
    if (unit.range.size() > 0) return parameters.values_of(unit).data;
  return nullptr;
}

}  // namespace

void UnitGather::expect(std::vector<UnitGroup> order) {
  CHECK(!begun_ && next_ == order_.size(), "a pass left {} of {} units", order_.size() - next_,
        order_.size());
  order_ = std::move(order);
  next_ = 0;
}

void UnitGather::fetch(Ctx& c, const ParameterStore& parameters, UnitGroup units) {
  for (const Unit& unit : units) {
    if (unit.range.size() == 0) continue;
    parameters.place_own(c.lane, unit);
    (unit.summed_over == kReplicas ? owners_ : of_experts_)
        .all_gather_shards(c, parameters.values_of(unit), "weights of a unit, copied from their dp owners");
  }
}

void UnitGather::gather(Ctx& c, const ParameterStore& parameters, UnitGroup units) {
  if (!parameters.split()) {
    next_ = order_.size();
    return;
  }
  const bool expected = next_ < order_.size();
  CHECK(!expected || order_[next_].data() == units.data(), "{} is gathered, {} was to be", units.front().name,
        order_[next_].front().name);
  if (!std::exchange(begun_, false))
    fetch(c, parameters, units);
  else
    c.lane.follow(ahead_);
  if (!expected || ++next_ == order_.size()) return;
  const UnitGroup next = order_[next_];
  if (const void* window = begin_of(parameters, next); window && window == begin_of(parameters, units))
    return;
  begun_ = true;
  ahead_.follow(c.lane);  // what the window had may be in use until here
  Ctx beside{c.scratch, ahead_, c.threads, nullptr};
  fetch(beside, parameters, next);
}

}  // namespace temper
