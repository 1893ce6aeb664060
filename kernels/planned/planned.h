#pragma once
// The scratch memory that each op takes on a GPU, known without one: ops of a context of Device::meta_cuda
// count it and do nothing else. Entry points from the one list in kernels/kernels.h; those that take none
// have their (empty) body here.

#include <span>

#include "kernels/types.h"
#include "src/core/ctx.h"

namespace temper::planned {
#define KERNEL(name, ...) \
  inline void name(Ctx&, auto&&...) {}
#define SCRATCH_KERNEL(name, ...) void name(Ctx& ctx, __VA_ARGS__);
#include "kernels/kernels.h"
#undef SCRATCH_KERNEL
#undef KERNEL
}  // namespace temper::planned
