#pragma once
// The optimizer's state as checkpoints name it, in whatever formats a rank holds it.

#include "src/io/checkpoint/checkpoint.h"
#include "src/train/optimizer.h"

namespace temper {

/// `param/`, `opt/m/`, `opt/v/` of this rank's pieces: master weights and moments in fp32 (fp64 in fp64
/// runs); of what is not trained the weights alone, and nothing of the base of adapters. To be saved: what no
/// rank before this one has. What they are loaded into: all; Optimizer::restore follows.
enum class StateUse { save, load };
std::vector<StateTensor> state_tensors(const Optimizer& optimizer, Device device, StateUse use);

}  // namespace temper
