#pragma once
// `train --dump-gradients DIR`: one update-XXXXXX.safetensors per optimizer update, Hugging Face names and
// shapes, summed over all ranks, before clipping; fp32 (fp64 in fp64 runs).

#include <optional>
#include <string>

#include "src/run/exchange/shared_weights.h"
#include "src/train/trainer.h"

namespace temper {

/// `over`: as the trainer sums. `model`: of the ranks that have the first whole model together; the other
/// ranks have none.
Trainer::GradientHook gradient_dump(const std::string& folder, const SumRanks& over,
                                    const std::optional<SharedModel>& model);

}  // namespace temper
