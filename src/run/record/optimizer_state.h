#pragma once
// The optimizer's state as checkpoints name it, in whatever formats a rank holds it.

#include "src/io/checkpoint.h"
#include "src/train/optimizer.h"

namespace temper {

/// `param/`, `opt/m/`, `opt/v/` of this rank's pieces: master weights and moments in fp32 (fp64 in fp64
/// runs). What they are loaded into are these tensors too; Optimizer::restore follows.
std::vector<StateTensor> state_tensors(const Optimizer& optimizer, Device device);

}  // namespace temper
