// Layers of experts around their products: choosing (one warp a token), sorting (choices in blocks, counted,
// then placed), weighing and adding (16 bytes a thread where rows allow it).

#include <algorithm>
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/scratch/experts.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kMostExperts = 1024, kMostChoices = 32;

/// The row of this warp, where blocks have one warp per row.
TEMPER_DEVICE int64_t row_of_warp() { return blockIdx.x * int64_t{kWarps} + threadIdx.x / 32; }

// ---- choosing. A lane has the experts lane, lane + 32, ...

/// Unsigned numbers in the order of floats: +0 as -0, NaN as -inf. None is zero.
TEMPER_DEVICE uint32_t order_of(float u) {
  const uint32_t bits = __float_as_uint(u == u ? __fadd_rn(u, 0.f) : cn::neg_inf());
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// The largest logit of a token and the sum of e^(u - largest), in every lane.
struct Softmax {
  float largest = cn::neg_inf(), sum = 0.f;
  TEMPER_DEVICE void find_largest(float u) { largest = fmaxf(largest, u); }
  TEMPER_DEVICE void share_largest() {
#pragma unroll
    for (int w = 16; w > 0; w /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, w));
  }
  TEMPER_DEVICE void add(float u) { sum = __fadd_rn(sum, power(u)); }
  TEMPER_DEVICE void share_sum() { sum = cn::warp_sum(sum); }
  TEMPER_DEVICE float of(float u) const { return __fdiv_rn(power(u), sum); }
  TEMPER_DEVICE float power(float u) const { return expf(__fsub_rn(u, largest)); }
};

/// Bits v of the lanes: expert v * 32 + lane is one of the `count` with the largest logits.
template <int kPerLane>
TEMPER_DEVICE uint32_t choose(const float (&u)[kPerLane], int experts, int count) {
  const int lane = threadIdx.x & 31;
  uint32_t order[kPerLane], chosen = 0;
#pragma unroll
  for (int v = 0; v < kPerLane; ++v) order[v] = v * 32 + lane < experts ? order_of(u[v]) : 0u;
  for (int j = 0; j < count; ++j) {
    uint32_t best = 0;
#pragma unroll
    for (int v = 0; v < kPerLane; ++v) best = max(best, order[v]);
    best = __reduce_max_sync(~0u, best);
    uint32_t first = ~0u;
#pragma unroll
    for (int v = kPerLane - 1; v >= 0; --v)
      if (order[v] == best) first = static_cast<uint32_t>(v * 32 + lane);
    first = __reduce_min_sync(~0u, first);
#pragma unroll
    for (int v = 0; v < kPerLane; ++v)
      if (static_cast<uint32_t>(v * 32 + lane) == first) order[v] = 0, chosen |= 1u << v;
  }
  return chosen;
}

template <int kPerLane>
__global__ void __launch_bounds__(kThreads)
    choose_kernel(int32_t* ids, float* weights, const float* logits, int64_t rows, int64_t pitch, int experts,
                  int count, bool normalize) {
  begin_kernel();
  __shared__ float shared[kWarps][kMostChoices];
  const int64_t t = row_of_warp();
  if (t >= rows) return;
  const int lane = threadIdx.x & 31;
  float* const p = shared[threadIdx.x / 32];
  float u[kPerLane];
  Softmax softmax;
#pragma unroll
  for (int v = 0; v < kPerLane; ++v) {
    const int e = v * 32 + lane;
    u[v] = e < experts ? logits[t * pitch + e] : cn::neg_inf();
    softmax.find_largest(u[v]);
  }
  softmax.share_largest();
#pragma unroll
  for (int v = 0; v < kPerLane; ++v)
    if (v * 32 + lane < experts) softmax.add(u[v]);
  softmax.share_sum();
  const uint32_t chosen = choose(u, experts, count);
  int before = 0;
#pragma unroll
  for (int v = 0; v < kPerLane; ++v) {
    const bool mine = chosen >> v & 1;
    const uint32_t all = __ballot_sync(~0u, mine);
    const int j = before + __popc(all & ((1u << lane) - 1));
    if (mine) {
      ids[t * count + j] = v * 32 + lane;
      p[j] = softmax.of(u[v]);
    }
    before += __popc(all);
  }
  __syncwarp();
  float sum = 0.f;
  for (int j = 0; normalize && j < count; ++j) sum = __fadd_rn(sum, p[j]);
  if (lane < count) weights[t * count + lane] = normalize ? __fdiv_rn(p[lane], sum) : p[lane];
}

__global__ void __launch_bounds__(kThreads)
    choose_backward_kernel(float* dlogits, const float* dweights, const int32_t* ids, const float* weights,
                           const float* logits, int64_t rows, int64_t pitch, int experts, int count,
                           bool normalize) {
  begin_kernel();
  const int64_t t = row_of_warp();
  if (t >= rows) return;
  const int lane = threadIdx.x & 31;
  const float *const u = logits + t * pitch, *const p = weights + t * count, *const dp = dweights + t * count;
  float* const du = dlogits + t * pitch;
  float mean = 0.f;
  for (int j = 0; j < count; ++j) mean = __fmaf_rn(dp[j], p[j], mean);
  Softmax softmax;
  if (!normalize) {
    for (int e = lane; e < experts; e += 32) softmax.find_largest(u[e]);
    softmax.share_largest();
    for (int e = lane; e < experts; e += 32) softmax.add(u[e]);
    softmax.share_sum();
  }
  for (int e = lane; e < experts; e += 32)
    du[e] = normalize ? 0.f : __fmul_rn(softmax.of(u[e]), __fsub_rn(0.f, mean));
  __syncwarp();
  if (lane < count) du[ids[t * count + lane]] = __fmul_rn(p[lane], __fsub_rn(dp[lane], mean));
}

// ---- sorting. A warp has neighbouring choices of its block's and a number of its own for every expert,
// [warp, expert] in shared memory: which lane of a warp comes first is known, so nothing is atomic.

constexpr int kChoicesOfWarp = static_cast<int>(kSortedChoices) / kWarps;
constexpr int kExpertsOfThread = kMostExperts / kThreads;
using Scan = cub::BlockScan<int, kThreads>;

/// f(choice, next[its expert], which is then one more) for the choices of this warp in ascending order.
template <class F>
TEMPER_DEVICE void for_choices(int* next, const int32_t* ids, int64_t choices, int experts, F&& f) {
  const int lane = threadIdx.x & 31;
  const int64_t first = blockIdx.x * kSortedChoices + threadIdx.x / 32 * kChoicesOfWarp,
                end = min(first + kChoicesOfWarp, choices);
  for (int64_t i = first + lane; i - lane < end; i += 32) {
    const int id = i < end ? ids[i] : -1;
    if (i < end && (id < 0 || id >= experts)) __trap();  // the host checks ids that do not come from here
    const uint32_t same = __match_any_sync(~0u, id);
    const int before = __popc(same & ((1u << lane) - 1)), all = __popc(same);
    const int start = id >= 0 ? next[id] : 0;
    __syncwarp();
    if (id >= 0 && before == 0) next[id] = start + all;
    __syncwarp();
    if (id >= 0) f(i, start + before);
  }
}

/// Fills this block's counts, [warp, expert].
TEMPER_DEVICE void count_choices(int* counts, const int32_t* ids, int64_t choices, int experts) {
  for (int i = threadIdx.x; i < kWarps * experts; i += kThreads) counts[i] = 0;
  __syncthreads();
  for_choices(counts + threadIdx.x / 32 * experts, ids, choices, experts, [](int64_t, int) {});
  __syncthreads();
}

TEMPER_DEVICE int sum_of_warps(const int* counts, int expert, int experts) {
  int sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += counts[w * experts + expert];
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    count_kernel(int* of_blocks, const int32_t* ids, int64_t choices, int experts) {
  begin_kernel();
  extern __shared__ int counts[];
  count_choices(counts, ids, choices, experts);
  for (int e = threadIdx.x; e < experts; e += kThreads)
    of_blocks[blockIdx.x * int64_t{experts} + e] = sum_of_warps(counts, e, experts);
}

/// Every block adds up the counts of all; those of a block alone are only its own.
__global__ void __launch_bounds__(kThreads)
    place_kernel(int32_t* offsets, int32_t* tokens, int32_t* places, const int32_t* ids, const int* of_blocks,
                 int64_t choices, int experts, int per_token) {
  begin_kernel();
  extern __shared__ int counts[];
  __shared__ typename Scan::TempStorage storage;
  int *const totals = counts + kWarps * experts, *const before = totals + experts;
  count_choices(counts, ids, choices, experts);
  const int blocks = gridDim.x, block = blockIdx.x;
  for (int e = threadIdx.x; e < experts; e += kThreads) {
    int total = blocks == 1 ? sum_of_warps(counts, e, experts) : 0, earlier = 0;
#pragma unroll 8
    for (int b = 0; blocks > 1 && b < blocks; ++b) {
      const int count = of_blocks[b * int64_t{experts} + e];
      total += count;
      earlier += b < block ? count : 0;
    }
    totals[e] = total, before[e] = earlier;
  }
  __syncthreads();
  const int first = threadIdx.x * kExpertsOfThread;
  int sums[kExpertsOfThread], all;
#pragma unroll
  for (int i = 0; i < kExpertsOfThread; ++i) sums[i] = first + i < experts ? totals[first + i] : 0;
  Scan(storage).ExclusiveSum(sums, sums, all);
#pragma unroll
  for (int i = 0; i < kExpertsOfThread; ++i)
    if (const int e = first + i; e < experts) {
      if (block == 0) offsets[e] = sums[i];
      int row = sums[i] + before[e];
      for (int w = 0; w < kWarps; ++w) {
        const int count = counts[w * experts + e];
        counts[w * experts + e] = row;
        row += count;
      }
    }
  if (block == 0 && threadIdx.x == 0) offsets[experts] = all;
  __syncthreads();
  for_choices(counts + threadIdx.x / 32 * experts, ids, choices, experts, [&](int64_t i, int row) {
    places[i] = row;
    tokens[row] = static_cast<int32_t>(i / per_token);
  });
}

// ---- weighing and adding. Rows in groups of 8 elements; kWhole: all of them are whole and aligned.

TEMPER_DEVICE float sigmoid(float u) { return __frcp_rn(__fadd_rn(1.f, expf(-u))); }

/// A group of a row: which one, and its elements that exist.
struct Group {
  int64_t row;
  int at, count;
};
/// Groups of this thread, neighbouring threads of neighbouring groups.
TEMPER_DEVICE Group group_of_thread(int width, int groups) {
  const uint32_t i = blockIdx.x * uint32_t{kThreads} + threadIdx.x, of = static_cast<uint32_t>(groups);
  const int at = static_cast<int>(i % of) * kGroup;
  return {i / of, at, min(kGroup, width - at)};
}

constexpr int kRowsAhead = 4;  // loaded before the first of them is used

/// f(choice, elements of its row) in ascending order for a token's choices.
template <bool kWhole, class S, class F>
TEMPER_DEVICE void for_expert_rows(const S* x, const int32_t* places, int choices, const Group& g, int width,
                                   F&& f) {
  for (int j = 0; j < choices; j += kRowsAhead) {
    RawGroup<S> raw[kRowsAhead];
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (j + k < choices)
        load_raw(raw[k], x + places[g.row * choices + j + k] * int64_t{width} + g.at, g.count, kWhole);
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (j + k < choices) f(j + k, raw[k].at);
  }
}

template <class S, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(S* y, const S* x, const int32_t* places, const float* weights, const S* shared,
                   const float* logits, int64_t rows, int64_t pitch, int width, int groups, int choices) {
  begin_kernel();
  const Group g = group_of_thread(width, groups);
  if (g.row >= rows) return;
  float sum[kGroup] = {};
  for_expert_rows<kWhole>(x, places, choices, g, width, [&](int j, const S* from) {
    const float w = weights[g.row * choices + j];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) sum[i] = __fmaf_rn(w, cn::load(from[i]), sum[i]);
  });
  if (shared != nullptr) {
    const float open = sigmoid(logits[(g.row + 1) * pitch - 1]);
    float from[kGroup];
    load_group(from, shared + g.row * width + g.at, g.count, kWhole);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) sum[i] = __fmaf_rn(open, from[i], sum[i]);
  }
  store_group(y + g.row * width + g.at, sum, g.count, kWhole);
}

template <class S, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    sum_rows_kernel(S* dx, const S* x, const int32_t* places, const float* router, const S* shared,
                    int64_t rows, int width, int groups, int choices) {
  begin_kernel();
  const Group g = group_of_thread(width, groups);
  if (g.row >= rows) return;
  float sum[kGroup], other[kGroup];
  for_expert_rows<kWhole>(x, places, choices, g, width, [&](int j, const S* from) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      sum[i] = j == 0 ? cn::load(from[i]) : __fadd_rn(sum[i], cn::load(from[i]));
  });
  const int64_t at = g.row * width + g.at;
  load_group(other, router + at, g.count, kWhole);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) sum[i] = __fadd_rn(sum[i], other[i]);
  if (shared != nullptr) {
    load_group(other, shared + at, g.count, kWhole);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) sum[i] = __fadd_rn(sum[i], other[i]);
  }
  store_group(dx + at, sum, g.count, kWhole);
}

/// <x, y> of two rows by one warp: lane i adds the elements of groups i, i + 32, ... by fused multiply-adds
/// from zero, then butterfly. What `each` makes of two elements goes to x_to and y_to (which may be null),
/// that may be the memory of x and y.
template <bool kWhole, class S, class Each>
TEMPER_DEVICE float weigh_row(S* x_to, S* y_to, const S* x, const S* y, int width, Each&& each) {
  float sum = 0.f;
  for (int first = threadIdx.x % 32 * kGroup; first < width; first += 32 * kGroup * kRowsAhead) {
    RawGroup<S> left[kRowsAhead], right[kRowsAhead];
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (const int at = first + k * 32 * kGroup; at < width) {
        load_raw(left[k], x + at, min(kGroup, width - at), kWhole);
        load_raw(right[k], y + at, min(kGroup, width - at), kWhole);
      }
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k)
      if (const int at = first + k * 32 * kGroup; at < width) {
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          sum = __fmaf_rn(cn::load(left[k].at[i]), cn::load(right[k].at[i]), sum);
          left[k].at[i] = each(left[k].at[i]), right[k].at[i] = each(right[k].at[i]);
        }
        store_raw(x_to + at, left[k], min(kGroup, width - at), kWhole);
        if (y_to != nullptr) store_raw(y_to + at, right[k], min(kGroup, width - at), kWhole);
      }
  }
  return cn::warp_sum(sum);
}

template <class S, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    weigh_rows_kernel(S* da, S* wa, float* dweights, const S* dweighted, const S* a, const int32_t* places,
                      const float* weights, int64_t count, int width) {
  begin_kernel();
  const int64_t i = row_of_warp();
  if (i >= count) return;
  const float w = weights[i];
  const int64_t row = places[i] * int64_t{width};
  const float sum = weigh_row<kWhole>(da + row, wa + row, dweighted + row, a + row, width,
                                      [&](S x) { return cn::store<S>(__fmul_rn(w, cn::load(x))); });
  if (threadIdx.x % 32 == 0) dweights[i] = sum;
}

template <class S, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    shared_backward_kernel(S* dshared, float* dlogits, const S* dy, const S* shared, const float* logits,
                           int64_t rows, int64_t pitch, int width) {
  begin_kernel();
  const int64_t t = row_of_warp();
  if (t >= rows) return;
  const float open = sigmoid(logits[(t + 1) * pitch - 1]);
  const float sum =
      weigh_row<kWhole, S>(dshared + t * width, nullptr, dy + t * width, shared + t * width, width,
                           [&](S x) { return cn::store<S>(__fmul_rn(open, cn::load(x))); });
  if (threadIdx.x % 32 == 0)
    dlogits[(t + 1) * pitch - 1] = __fmul_rn(sum, __fmul_rn(open, __fsub_rn(1.f, open)));
}

// ---- on the host

/// go(S{}, whole) for the storage of these tensors: their rows lie in whole, aligned groups.
template <class Go>
void with_groups(DType dtype, int64_t width, std::initializer_list<const void*> data, Go&& go) {
  bool whole = width % kGroup == 0;
  for (const void* at : data) whole = whole && reinterpret_cast<uintptr_t>(at) % 16 == 0;
  dispatch_gpu_storage(dtype, [&](auto s) {
    if (whole)
      go(s, std::true_type{});
    else
      go(s, std::false_type{});
  });
}

int groups_of(int64_t width) { return static_cast<int>((width + kGroup - 1) / kGroup); }
int blocks_of_groups(const Tensor& y) {
  const int64_t groups = y.dim(0) * groups_of(y.dim(1));
  CHECK(groups < int64_t{1} << 31, "{} groups of 8 elements at once", groups);
  return blocks_for(groups, kThreads);
}

template <int kPerLane>
void run_choose(Lane& lane, const Tensor& ids, const Tensor& weights, const CTensor& logits, int experts,
                bool normalize) {
  if constexpr (kPerLane < kMostExperts / 32)
    if (experts > kPerLane * 32)
      return run_choose<kPerLane * 2>(lane, ids, weights, logits, experts, normalize);
  launch(lane, choose_kernel<kPerLane>, blocks_for(ids.dim(0), kWarps), kThreads, 0, ids.as<int32_t>(),
         weights.as<float>(), logits.as<float>(), ids.dim(0), logits.dim(1), experts,
         static_cast<int>(ids.dim(1)), normalize);
}

int checked_experts(int64_t experts) {
  CHECK(experts >= 1 && experts <= kMostExperts, "{} experts, the GPU's kernels take 1 to {}", experts,
        kMostExperts);
  return static_cast<int>(experts);
}

}  // namespace

void choose_experts(Ctx& ctx, Tensor ids, Tensor weights, CTensor logits, int64_t num_experts,
                    bool normalize) {
  CHECK(ids.dim(1) <= kMostChoices, "{} experts of each token, the GPU's kernels take up to {}", ids.dim(1),
        kMostChoices);
  run_choose<1>(ctx.lane, ids, weights, logits, checked_experts(num_experts), normalize);
}

void choose_experts_backward(Ctx& ctx, Tensor dlogits, CTensor dweights, CTensor ids, CTensor weights,
                             CTensor logits, int64_t num_experts, bool normalize) {
  launch(ctx.lane, choose_backward_kernel, blocks_for(ids.dim(0), kWarps), kThreads, 0, dlogits.as<float>(),
         dweights.as<float>(), ids.as<int32_t>(), weights.as<float>(), logits.as<float>(), ids.dim(0),
         logits.dim(1), checked_experts(num_experts), static_cast<int>(ids.dim(1)), normalize);
}

void sort_by_expert(Ctx& ctx, Tensor offsets, Tensor tokens, Tensor places, CTensor ids) {
  const int experts = checked_experts(offsets.dim(0) - 1), per_token = static_cast<int>(ids.dim(1));
  const int64_t choices = ids.size();
  CHECK(choices <= 0x7fffffff, "{} choices of experts at once", choices);
  auto *const o = offsets.as<int32_t>(), *const t = tokens.as<int32_t>(), *const p = places.as<int32_t>();
  const auto* const from = ids.as<int32_t>();
  ArenaScope scope(ctx.scratch);
  const Tensor counts = sort_by_expert_scratch(ctx.scratch, choices, experts);
  const int blocks = blocks_for(std::max<int64_t>(choices, 1), kSortedChoices);
  const size_t row = static_cast<size_t>(experts) * sizeof(int);
  if (blocks > 1)
    launch(ctx.lane, count_kernel, blocks, kThreads, kWarps * row, counts.as<int>(), from, choices, experts);
  launch(ctx.lane, place_kernel, blocks, kThreads, (kWarps + 2) * row, o, t, p, from, counts.as<int>(),
         choices, experts, per_token);
}

void combine_experts(Ctx& ctx, Tensor y, CTensor x, CTensor places, CTensor weights, CTensor shared,
                     CTensor logits) {
  const int64_t width = y.dim(1);
  with_groups(y.dtype, width, {y.raw(), x.data, shared.data}, [&](auto s, auto whole) {
    using S = decltype(s);
    launch(ctx.lane, combine_kernel<S, decltype(whole)::value>, blocks_of_groups(y), kThreads, 0,
           data_of<S>(y), data_of<S>(x), places.as<int32_t>(), weights.as<float>(), data_of<S>(shared),
           data_of<float>(logits), y.dim(0), logits.dim(1), static_cast<int>(width), groups_of(width),
           static_cast<int>(places.dim(1)));
  });
}

void sum_expert_rows(Ctx& ctx, Tensor dx, CTensor rows, CTensor places, CTensor router, CTensor shared) {
  const int64_t width = dx.dim(1);
  with_groups(dx.dtype, width, {dx.raw(), rows.data, router.data, shared.data}, [&](auto s, auto whole) {
    using S = decltype(s);
    launch(ctx.lane, sum_rows_kernel<S, decltype(whole)::value>, blocks_of_groups(dx), kThreads, 0,
           data_of<S>(dx), data_of<S>(rows), places.as<int32_t>(), router.as<float>(), data_of<S>(shared),
           dx.dim(0), static_cast<int>(width), groups_of(width), static_cast<int>(places.dim(1)));
  });
}

void weigh_expert_rows_backward(Ctx& ctx, Tensor da, Tensor wa, Tensor dweights, CTensor dweighted, CTensor a,
                                CTensor places, CTensor weights) {
  const int64_t width = a.dim(1);
  with_groups(a.dtype, width, {da.raw(), wa.raw(), dweighted.data, a.data}, [&](auto s, auto whole) {
    using S = decltype(s);
    launch(ctx.lane, weigh_rows_kernel<S, decltype(whole)::value>, blocks_for(places.size(), kWarps),
           kThreads, 0, data_of<S>(da), data_of<S>(wa), dweights.as<float>(), data_of<S>(dweighted),
           data_of<S>(a), places.as<int32_t>(), weights.as<float>(), places.size(), static_cast<int>(width));
  });
}

void shared_expert_backward(Ctx& ctx, Tensor dshared, Tensor dlogits, CTensor dy, CTensor shared,
                            CTensor logits) {
  const int64_t width = dy.dim(1);
  with_groups(dy.dtype, width, {dshared.raw(), dy.data, shared.data}, [&](auto s, auto whole) {
    using S = decltype(s);
    launch(ctx.lane, shared_backward_kernel<S, decltype(whole)::value>, blocks_for(dy.dim(0), kWarps),
           kThreads, 0, data_of<S>(dshared), dlogits.as<float>(), data_of<S>(dy), data_of<S>(shared),
           logits.as<float>(), dy.dim(0), logits.dim(1), static_cast<int>(width));
  });
}

}  // namespace temper::cuda
