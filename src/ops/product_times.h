#pragma once
// What the one order of sums costs: the products of a linear layer (ops/linear.h) beside the fastest ones that
// a library of the GPU's maker has for them, in whatever order it sums.

#include <optional>

#include "kernels/product_times.h"
#include "src/core/ctx.h"

namespace temper {

/// How long y, dx and dw += take for T rows and w [N, K] of random bf16 numbers. Nothing on a CPU, where there
/// is no other library to compare with.
std::optional<LinearTimes> time_linear(Ctx& c, int64_t T, int64_t N, int64_t K);

}  // namespace temper
