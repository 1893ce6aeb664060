#pragma once
// Entry points of the CUDA backend that hybrid models have, declared from the one list in
// kernels/hybrid_kernels.h.

#include "kernels/delta_types.h"
#include "kernels/types.h"
#include "src/core/ctx.h"

namespace temper::cuda {
#define KERNEL(name, ...) void name(Ctx& ctx, __VA_ARGS__);
#define SCRATCH_KERNEL KERNEL
#include "kernels/hybrid_kernels.h"
#undef SCRATCH_KERNEL
#undef KERNEL
}  // namespace temper::cuda
