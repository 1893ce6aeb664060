#pragma once
// Values of which every rank has a shard (ZeRO-3), gathered unit by unit: while a pass works with one, the
// next one is already on its way, on a lane of its own.

#include <vector>

#include "src/comm/collectives.h"
#include "src/nn/parameter.h"

namespace temper {

class UnitGather {
 public:
  /// Over `owners`, all of which make the calls below in the same order.
  UnitGather(Collectives& owners, Device device) : owners_(owners), ahead_(device) {}

  /// The units that a pass gathers from here on, in this order. None is on its way yet.
  void expect(std::vector<const Unit*> order);
  /// The unit's values are whole in their window; that of the next one is being filled, if it is another.
  /// Units that nobody expected are gathered now. Nothing is done with whole values.
  void gather(Ctx& c, const ParameterStore& parameters, const Unit& unit);

 private:
  void fetch(Ctx& c, const ParameterStore& parameters, const Unit& unit);

  Collectives& owners_;
  Lane ahead_;
  std::vector<const Unit*> order_;
  size_t next_ = 0;              // in order_
  const Unit* begun_ = nullptr;  // on its way
};

}  // namespace temper
