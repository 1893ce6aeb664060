#pragma once
// `train --dump-gradients DIR`: one update-XXXXXX.safetensors per optimizer update, Hugging Face names and
// shapes, summed over all ranks, before clipping; fp32 (fp64 in fp64 runs).

#include <string>

#include "src/run/plan/layout/role_plan.h"
#include "src/train/trainer.h"

namespace temper {

/// `mesh`: of the role that trains. Its ranks that have the first whole model together write.
Trainer::GradientHook gradient_dump(const std::string& folder, const Mesh& mesh, const RolePlan& role);

}  // namespace temper
