#pragma once
// Times of products on this GPU; no other backend has a library to compare with.

#include "kernels/product_times.h"
#include "src/core/ctx.h"

namespace temper::cuda {

/// src/ops/product_times.h; waits for the lane.
LinearTimes time_linear(Ctx& ctx, int64_t tokens, int64_t outputs, int64_t inputs);

}  // namespace temper::cuda
