#pragma once
// Values of which every rank has a shard (ZeRO-3), gathered unit by unit: while a pass works with one, the
// next one is already on its way, on a lane of its own.

#include <vector>

#include "src/comm/collectives.h"
#include "src/nn/parameter.h"

namespace temper {

class UnitGather {
 public:
  /// Over `owners`, of units of experts over others; all of each make the calls below in the same order.
  UnitGather(Collectives& owners, Collectives& of_experts, Device device)
      : owners_(owners), of_experts_(of_experts), ahead_(device) {}

  /// The units that a pass gathers from here on, in this order. None is on its way yet.
  void expect(std::vector<UnitGroup> order);
  /// The values of these units are whole in their window; that of the next ones is being filled, if it is
  /// another. Units that nobody expected are gathered now. Nothing is done with whole values.
  void gather(Ctx& c, const ParameterStore& parameters, UnitGroup units);

 private:
  void fetch(Ctx& c, const ParameterStore& parameters, UnitGroup units);

  Collectives &owners_, &of_experts_;
  Lane ahead_;
  std::vector<UnitGroup> order_;
  size_t next_ = 0;     // in order_
  bool begun_ = false;  // it is on its way
};

}  // namespace temper
