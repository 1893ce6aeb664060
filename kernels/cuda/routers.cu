// What routers have of their own: counts of choices, and losses on their logits. Nothing is atomic: a block
// counts the choices of a stretch, each thread those of experts of its own; a warp has kRowsPerWarp rows, in
// order, and one block then adds what warps have, in order.

#include "kernels/cuda/launch.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int kThreads = 256, kWarps = kThreads / 32, kRowsPerWarp = 32;

__global__ void __launch_bounds__(kThreads)
    count_kernel(int32_t* counts, const int32_t* ids, const int32_t* begins, int experts, int count) {
  begin_kernel();
  __shared__ int32_t chosen[kThreads];
  const int64_t begin = begins[blockIdx.x] * int64_t{count}, end = begins[blockIdx.x + 1] * int64_t{count};
  for (int first = 0; first < experts; first += kThreads) {
    const int own = first + static_cast<int>(threadIdx.x);
    int32_t sum = 0;
    for (int64_t at = begin; at < end; at += kThreads) {
      __syncthreads();
      if (at + threadIdx.x < end) chosen[threadIdx.x] = ids[at + threadIdx.x];
      __syncthreads();
      const int here = static_cast<int>(min(end - at, int64_t{kThreads}));
      for (int i = 0; i < here; ++i) sum += chosen[i] == own;
    }
    if (own < experts) counts[blockIdx.x * int64_t{experts} + own] += sum;
  }
}

TEMPER_DEVICE float warp_max(float x) {
#pragma unroll
  for (int w = 16; w > 0; w /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, w));
  return x;
}

/// A row's losses, in every lane; adds their gradient.
TEMPER_DEVICE float2 add_row(float* du, const float* u, const float* slopes, int experts, float z) {
  const int lane = threadIdx.x & 31;
  float largest = cn::neg_inf();
  for (int e = lane; e < experts; e += 32) largest = fmaxf(largest, u[e]);
  largest = warp_max(largest);
  float sum = 0.f, weighted = 0.f;
  for (int e = lane; e < experts; e += 32) {
    const float power = expf(__fsub_rn(u[e], largest));
    sum = __fadd_rn(sum, power);
    weighted = __fmaf_rn(power, slopes[e], weighted);
  }
  sum = cn::warp_sum(sum);
  const float mean = __fdiv_rn(cn::warp_sum(weighted), sum), lse = __fadd_rn(largest, logf(sum)),
              pull = __fsub_rn(__fmul_rn(__fmul_rn(2.f, z), lse), mean);
  for (int e = lane; e < experts; e += 32) {
    const float p = __fdiv_rn(expf(__fsub_rn(u[e], largest)), sum);
    du[e] = __fmaf_rn(p, __fadd_rn(slopes[e], pull), du[e]);
  }
  return {mean, __fmul_rn(z, __fmul_rn(lse, lse))};
}

/// Choices among those that are given which are not the own ones: one block.
__global__ void __launch_bounds__(kThreads)
    other_routes_kernel(int32_t* count, const int32_t* ids, const int32_t* given, int64_t choices,
                        int per_token) {
  begin_kernel();
  __shared__ int32_t of_warp[kWarps];
  int32_t sum = 0;
  for (int64_t i = threadIdx.x; i < choices; i += kThreads) {
    const int32_t wanted = given[i];
    const int32_t* const row = ids + i / per_token * per_token;
    bool found = wanted < 0;
    for (int j = 0; j < per_token; ++j) found |= row[j] == wanted;
    sum += !found;
  }
  sum = __reduce_add_sync(~0u, sum);
  if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int w = 1; w < kWarps; ++w) sum += of_warp[w];
  *count += sum;
}

/// A warp for each row.
__global__ void __launch_bounds__(kThreads)
    follow_kernel(int32_t* ids, float* weights, const int32_t* given, const float* logits, int64_t rows,
                  int64_t pitch, int experts, int count, bool normalize) {
  begin_kernel();
  const int64_t t = blockIdx.x * int64_t{kWarps} + threadIdx.x / 32;
  if (t >= rows || given[t * count] < 0) return;
  const int lane = threadIdx.x & 31;
  const float* const u = logits + t * pitch;
  float largest = cn::neg_inf();
  for (int e = lane; e < experts; e += 32) largest = fmaxf(largest, u[e]);
  largest = warp_max(largest);
  float all = 0.f;
  for (int e = lane; e < experts; e += 32) all = __fadd_rn(all, expf(__fsub_rn(u[e], largest)));
  all = cn::warp_sum(all);
  const int32_t id = lane < count ? given[t * count + lane] : 0;
  const float p = __fdiv_rn(expf(__fsub_rn(u[id], largest)), all);
  float sum = 0.f;
  for (int j = 0; normalize && j < count; ++j) sum = __fadd_rn(sum, __shfl_sync(~0u, p, j));
  if (lane >= count) return;
  ids[t * count + lane] = id;
  weights[t * count + lane] = normalize ? __fdiv_rn(p, sum) : p;
}

/// The last stretch that begins at or before a row.
TEMPER_DEVICE int stretch_of(const int32_t* begins, int stretches, int64_t row) {
  int low = 0, high = stretches;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (begins[middle] <= row)
      low = middle;
    else
      high = middle;
  }
  return low;
}

__global__ void __launch_bounds__(kThreads)
    losses_kernel(float2* parts, float* dlogits, const float* logits, const float* slopes,
                  const int32_t* begins, int64_t rows, int64_t pitch, int stretches, int experts, float z) {
  begin_kernel();
  const int64_t warp = blockIdx.x * int64_t{kWarps} + threadIdx.x / 32;
  int64_t t = warp * kRowsPerWarp;
  if (t >= rows) return;
  const int64_t end = min(min(t + kRowsPerWarp, rows), int64_t{begins[stretches]});
  t = max(t, int64_t{begins[0]});
  float2 sum = {0.f, 0.f};
  int s = stretch_of(begins, stretches, t);
  for (; t < end; ++t) {
    while (t >= begins[s + 1]) ++s;
    const float2 row =
        add_row(dlogits + t * pitch, logits + t * pitch, slopes + s * int64_t{experts}, experts, z);
    sum = {__fadd_rn(sum.x, row.x), __fadd_rn(sum.y, row.y)};
  }
  if ((threadIdx.x & 31) == 0) parts[warp] = sum;
}

__global__ void __launch_bounds__(32) add_losses_kernel(float* losses, const float2* parts, int64_t count) {
  begin_kernel();
  float2 sum = {0.f, 0.f};
  for (int64_t i = threadIdx.x; i < count; i += 32)
    sum = {__fadd_rn(sum.x, parts[i].x), __fadd_rn(sum.y, parts[i].y)};
  const float balance = cn::warp_sum(sum.x), z = cn::warp_sum(sum.y);
  if (threadIdx.x > 0) return;
  losses[0] = __fadd_rn(losses[0], balance);
  losses[1] = __fadd_rn(losses[1], z);
}

}  // namespace

void add_router_counts(Ctx& ctx, Tensor counts, CTensor ids, CTensor begins) {
  launch(ctx.lane, count_kernel, static_cast<unsigned>(counts.dim(0)), kThreads, 0, counts.as<int32_t>(),
         ids.as<int32_t>(), begins.as<int32_t>(), static_cast<int>(counts.dim(1)),
         static_cast<int>(ids.dim(1)));
}

void count_other_routes(Ctx& ctx, Tensor count, CTensor ids, CTensor given) {
  launch(ctx.lane, other_routes_kernel, ids.size() > 0 ? 1u : 0u, kThreads, 0, count.as<int32_t>(),
         ids.as<int32_t>(), given.as<int32_t>(), ids.size(), static_cast<int>(ids.dim(1)));
}

void follow_routes(Ctx& ctx, Tensor ids, Tensor weights, CTensor given, CTensor logits, int64_t num_experts,
                   bool normalize) {
  CHECK(ids.dim(1) <= 32, "{} choices of a token in a warp", ids.dim(1));
  launch(ctx.lane, follow_kernel, blocks_for(ids.dim(0), kWarps), kThreads, 0, ids.as<int32_t>(),
         data_of<float>(weights), given.as<int32_t>(), data_of<float>(logits), ids.dim(0), logits.dim(1),
         static_cast<int>(num_experts), static_cast<int>(ids.dim(1)), normalize);
}

void router_losses_backward(Ctx& ctx, Tensor dlogits, Tensor losses, CTensor logits, CTensor slopes,
                            CTensor begins, double z) {
  const int64_t rows = logits.dim(0), warps = (rows + kRowsPerWarp - 1) / kRowsPerWarp;
  if (slopes.dim(0) == 0) return;
  const ArenaScope scope(ctx.scratch);
  const Tensor parts = ctx.scratch.make({warps, 2}, DType::f32);
  auto* const sums = reinterpret_cast<float2*>(parts.raw());
  launch(ctx.lane, losses_kernel, blocks_for(warps, kWarps), kThreads, 0, sums, data_of<float>(dlogits),
         data_of<float>(logits), data_of<float>(slopes), begins.as<int32_t>(), rows, logits.dim(1),
         static_cast<int>(slopes.dim(0)), static_cast<int>(slopes.dim(1)), static_cast<float>(z));
  launch(ctx.lane, add_losses_kernel, 1, 32, 0, data_of<float>(losses), static_cast<const float2*>(sums),
         warps);
}

}  // namespace temper::cuda
