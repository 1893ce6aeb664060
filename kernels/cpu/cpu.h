#pragma once
// Entry points of the CPU backend, declared from the one list in kernels/kernels.h.
// The canonical arithmetic of this backend is described in kernels/cpu/NUMERICS.md.

#include <span>

#include "kernels/types.h"
#include "src/core/ctx.h"

namespace temper::cpu {
#define KERNEL(name, ...) void name(Ctx& ctx, __VA_ARGS__);
#define SCRATCH_KERNEL KERNEL
#include "kernels/kernels.h"
#undef SCRATCH_KERNEL
#undef KERNEL
}  // namespace temper::cpu
