#include <cuda_bf16.h>

#include "src/core/cuda.h"
#include "tests/gpu/hybrid/recurrence.h"

namespace temper {
namespace {

constexpr int kDim = 128, kThreads = 256, kWarps = kThreads / 32, kRows = kDim / kWarps;

/// Sums of the warps' four columns a lane, for everybody.
__device__ float4 sum_of_warps(float4 x, float4 (&parts)[kWarps][32]) {
  __syncthreads();
  parts[threadIdx.x / 32][threadIdx.x % 32] = x;
  __syncthreads();
  float4 sum = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float4 p = parts[w][threadIdx.x % 32];
    sum.x += p.x, sum.y += p.y, sum.z += p.z, sum.w += p.w;
  }
  return sum;
}
__device__ void add(float4& sum, float a, const float4& x) {
  sum.x = fmaf(a, x.x, sum.x), sum.y = fmaf(a, x.y, sum.y), sum.z = fmaf(a, x.z, sum.z),
  sum.w = fmaf(a, x.w, sum.w);
}

/// One block per sequence and head; a warp has 16 rows of the state in registers, four columns a lane.
__global__ void __launch_bounds__(kThreads)
    recurrence_kernel(__nv_bfloat16* o, float* states, const __nv_bfloat16* qkv, const float* beta,
                      const float* g, int heads, int group) {
  __shared__ float4 parts[kWarps][32];
  __shared__ float q[kDim], k[kDim];
  const int head = static_cast<int>(blockIdx.x), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t sequence = blockIdx.y, gate = sequence * heads + head;
  auto* const state = reinterpret_cast<float4*>(states + gate * kDim * kDim) + warp * kRows * 32 + lane;
  float4 s[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) s[i] = __ldcs(state + i * 32);
  const int key_width = heads / group * kDim;
  const __nv_bfloat16* const row = qkv + sequence * (2 * key_width + heads * kDim);
  if (threadIdx.x < kDim) {
    q[threadIdx.x] = __bfloat162float(row[head / group * kDim + threadIdx.x]);
    k[threadIdx.x] = __bfloat162float(row[key_width + head / group * kDim + threadIdx.x]);
  }
  __syncthreads();
  const float decay = expf(g[gate]), b = beta[gate];
  float4 held = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    s[i].x *= decay, s[i].y *= decay, s[i].z *= decay, s[i].w *= decay;
    add(held, k[warp * kRows + i], s[i]);
  }
  held = sum_of_warps(held, parts);
  const __nv_bfloat16* const v = row + 2 * key_width + head * kDim + lane * 4;
  const float4 u{b * (__bfloat162float(v[0]) - held.x), b * (__bfloat162float(v[1]) - held.y),
                 b * (__bfloat162float(v[2]) - held.z), b * (__bfloat162float(v[3]) - held.w)};
  float4 out = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    add(s[i], k[warp * kRows + i], u);
    add(out, q[warp * kRows + i], s[i]);
    __stcs(state + i * 32, s[i]);
  }
  out = sum_of_warps(out, parts);
  if (warp > 0) return;
  __nv_bfloat16* const to = o + gate * kDim + lane * 4;
  to[0] = __float2bfloat16_rn(out.x), to[1] = __float2bfloat16_rn(out.y);
  to[2] = __float2bfloat16_rn(out.z), to[3] = __float2bfloat16_rn(out.w);
}

}  // namespace

void recurrence_step(Lane& lane, void* o, float* states, const void* qkv, const float* beta, const float* g,
                     int sequences, int heads, int group) {
  recurrence_kernel<<<dim3(static_cast<unsigned>(heads), static_cast<unsigned>(sequences)), kThreads, 0,
                      stream_of(lane)>>>(static_cast<__nv_bfloat16*>(o), states,
                                         static_cast<const __nv_bfloat16*>(qkv), beta, g, heads, group);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace temper
