#include "src/nn/unit_gather.h"

namespace temper {

void UnitGather::expect(std::vector<const Unit*> order) {
  CHECK(begun_ == nullptr && next_ == order_.size(), "a pass left {} of {} units", order_.size() - next_,
        order_.size());
  order_ = std::move(order);
  next_ = 0;
}

void UnitGather::fetch(Ctx& c, const ParameterStore& parameters, const Unit& unit) {
  if (unit.range.size() == 0) return;
  parameters.place_own(c.lane, unit);
  owners_.all_gather_shards(c, parameters.values_of(unit), "weights of a unit, copied from their dp owners");
}

void UnitGather::gather(Ctx& c, const ParameterStore& parameters, const Unit& unit) {
  if (!parameters.split()) {
    next_ = order_.size();
    return;
  }
  const bool expected = next_ < order_.size();
  CHECK(!expected || order_[next_] == &unit, "{} is gathered, {} was to be", unit.name, order_[next_]->name);
  if (std::exchange(begun_, nullptr) == nullptr)
    fetch(c, parameters, unit);
  else
    c.lane.follow(ahead_);
  if (!expected || ++next_ == order_.size()) return;
  const Unit& next = *order_[next_];
  if (parameters.values_of(next).data == parameters.values_of(unit).data) return;
  begun_ = &next;
  ahead_.follow(c.lane);  // what the window had may be in use until here
  Ctx beside{c.scratch, ahead_, c.threads, nullptr};
  fetch(beside, parameters, next);
}

}  // namespace temper
