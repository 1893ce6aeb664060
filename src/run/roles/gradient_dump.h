#pragma once
// `train --dump-gradients DIR`: one update-XXXXXX.safetensors per optimizer update, Hugging Face names and
// shapes, summed over all ranks, before clipping; fp32 (fp64 in fp64 runs).

#include <string>

#include "src/run/exchange/shared_weights.h"
#include "src/train/trainer.h"

namespace temper {

Trainer::GradientHook gradient_dump(const std::string& folder, Collectives& dp, const SharedModel& model);

}  // namespace temper
