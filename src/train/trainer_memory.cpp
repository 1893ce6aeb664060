// What a trainer holds, and gives back between steps.

#include "src/train/trainer.h"

namespace temper {

int64_t Trainer::activation_bytes() const {
  int64_t bytes = 0;
  for (const OpenMicrobatch& open : open_) bytes += open.memory.peak_bytes();
  return bytes;
}

int64_t Trainer::held_bytes() const {
  int64_t bytes = 0;
  for (const OpenMicrobatch& open : open_) bytes += open.memory.held_bytes();
  return bytes;
}

AxisBytes Trainer::trim(Ctx& c) {
  const AxisBytes before = bytes_sent();
  for (OpenMicrobatch& open : open_) open.memory.trim(c.lane);
  model_.parameters().suspend_grads(c.lane);
  if (!model_.parameters().split()) return {};
  model_.parameters().join_values(c.lane);
  optimizer_.gather_weights(c, "trained weights, copied from their dp owners");
  c.lane.wait();
  return bytes_sent() - before;
}

}  // namespace temper
