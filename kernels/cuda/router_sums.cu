// What routers do, for metrics: rows of experts, and entropies. A warp has kRowsPerWarp rows, in order; then one
// block adds what warps have, in order.

#include "kernels/cuda/launch.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int kThreads = 256, kWarps = kThreads / 32, kRowsPerWarp = 32;

/// log(sum e^(u - m)) - sum p (u - m), m the largest u.
TEMPER_DEVICE float entropy_of(const float* u, int experts) {
  const int lane = threadIdx.x & 31;
  float largest = cn::neg_inf();
  for (int e = lane; e < experts; e += 32) largest = fmaxf(largest, u[e]);
#pragma unroll
  for (int w = 16; w > 0; w /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, w));
  float sum = 0.f, weighted = 0.f;
  for (int e = lane; e < experts; e += 32) {
    const float off = __fsub_rn(u[e], largest), power = expf(off);
    sum = __fadd_rn(sum, power);
    weighted = __fmaf_rn(power, off, weighted);
  }
  sum = cn::warp_sum(sum);
  return __fsub_rn(logf(sum), __fdiv_rn(cn::warp_sum(weighted), sum));
}

__global__ void __launch_bounds__(kThreads)
    entropy_kernel(float* parts, const float* logits, int64_t rows, int64_t pitch, int experts) {
  begin_kernel();
  const int64_t warp = blockIdx.x * int64_t{kWarps} + threadIdx.x / 32, begin = warp * kRowsPerWarp;
  if (begin >= rows) return;
  const int64_t end = min(begin + kRowsPerWarp, rows);
  float sum = 0.f;
  for (int64_t t = begin; t < end; ++t) sum = __fadd_rn(sum, entropy_of(logits + t * pitch, experts));
  if ((threadIdx.x & 31) == 0) parts[warp] = sum;
}

__global__ void __launch_bounds__(kThreads)
    add_sums_kernel(float* sums, const float* parts, int64_t count, const int32_t* offsets, int experts) {
  begin_kernel();
  for (int e = threadIdx.x; e < experts; e += kThreads)
    sums[e] = __fadd_rn(sums[e], static_cast<float>(offsets[e + 1] - offsets[e]));
  if (threadIdx.x >= 32) return;
  float sum = 0.f;
  for (int64_t i = threadIdx.x; i < count; i += 32) sum = __fadd_rn(sum, parts[i]);
  sum = cn::warp_sum(sum);
  if (threadIdx.x == 0) sums[experts] = __fadd_rn(sums[experts], sum);
}

}  // namespace

void add_router_sums(Ctx& ctx, Tensor sums, CTensor logits, CTensor offsets) {
  const int64_t rows = logits.dim(0), warps = (rows + kRowsPerWarp - 1) / kRowsPerWarp;
  const int experts = static_cast<int>(offsets.dim(0) - 1);
  const ArenaScope scope(ctx.scratch);
  const Tensor parts = ctx.scratch.make({warps}, DType::f32);
  launch(ctx.lane, entropy_kernel, blocks_for(warps, kWarps), kThreads, 0, data_of<float>(parts),
         data_of<float>(logits), rows, logits.dim(1), experts);
  launch(ctx.lane, add_sums_kernel, 1, kThreads, 0, data_of<float>(sums), data_of<float>(parts), warps,
         offsets.as<int32_t>(), experts);
}

}  // namespace temper::cuda
