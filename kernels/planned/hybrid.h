#pragma once
// The scratch memory that the ops of hybrid models take on a GPU, as kernels/planned/planned.h has that of
// the others.

#include "kernels/delta_types.h"
#include "kernels/types.h"
#include "src/core/ctx.h"

namespace temper::planned {
#define KERNEL(name, ...) \
  inline void name(Ctx&, auto&&...) {}
#define SCRATCH_KERNEL(name, ...) void name(Ctx& ctx, __VA_ARGS__);
#include "kernels/hybrid_kernels.h"
#undef SCRATCH_KERNEL
#undef KERNEL
}  // namespace temper::planned
