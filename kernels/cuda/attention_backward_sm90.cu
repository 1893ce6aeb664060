// Backward of packed causal attention in one pass of five products, deterministic (NUMERICS.md). A block of
// threads takes 128 keys of one kv head and walks the query blocks of its sequence from the last to the
// diagonal, all query heads of the group at each: dK and dV stay in registers. Four warpgroups:
//   0: warps for TMA, for waiting on turns, for adding sums to memory;
//   1, 2: S^T, dP^T, dV, dK of 64 keys each; they leave dS^T in shared memory;
//   3: dQ = dS K of the step, added to fp32 sums in global memory in ascending order of the key blocks (a
//      counter per query block and head says whose turn it is); the last key block writes bf16 dQ itself.
// An item only waits for items that were handed out before it (see list_kernel), so no wait lasts forever,
// however few blocks of threads are on the chip.

#include <cub/block/block_scan.cuh>

#include "kernels/cuda/attention_backward.h"
#include "kernels/cuda/device/backward_consumer.cuh"
#include "kernels/cuda/device/backward_roles.cuh"

namespace temper::cuda {
namespace backward {
namespace {

// 2 * 208 + 64 + 32 = 512: all registers of a multiprocessor
constexpr int kConsumerRegisters = 208, kDqRegisters = 64, kProducerRegisters = 32;

template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    backward_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap kv_map,
                    const __grid_constant__ CUtensorMap do_map, const __grid_constant__ Arguments args) {
  begin_kernel();
  using SM = Smem<D>;
  extern __shared__ __align__(1024) uint8_t smem[];
  volatile int* slots = reinterpret_cast<volatile int*>(smem + SM::kBars + Bars<D>::kSlots);
  const int group = threadIdx.x >> 7, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
  if (threadIdx.x == 0) {
    if (smem_u32(smem) != kSharedBase) __trap();
    Bars<D>::init();
    tma_prefetch_map(&q_map);
    tma_prefetch_map(&kv_map);
    tma_prefetch_map(&do_map);
  }
  __syncthreads();
  const Feed<D> feed{lane};
  if (group == 0) {
    reg_dec<kProducerRegisters>();
    if (warp == 0)
      Producer<D>{args, &q_map, &kv_map, &do_map, lane}.run(slots);
    else if (warp == 1)
      wait_for_turns<D>(args, feed);
    else
      add_sums<D>(args, feed, warp - 2);
  } else if (group == 3) {
    reg_dec<kDqRegisters>();
    DqGroup<D>{args, feed, warp, lane}.run();
  } else {
    reg_inc<kConsumerRegisters>();
    Consumer<D> consumer{args, static_cast<int>(threadIdx.x)};
    consumer.run();
  }
}

// ---- statistics of the rows

constexpr int kPrepareRows = 16, kPrepareThreads = 256, kSumStride = kPrepareRows + 1;

/// <dout, out> of rows 0 .. rows - 1 from `row` on, all heads, to sums[head][row].
template <int D>
TEMPER_DEVICE void row_deltas(float* sums, const AttentionBackwardCall& a, int64_t row, int rows) {
  constexpr int kLanes = D / 8;  // lanes of a head
  const int lane = threadIdx.x & 31, chunks = a.q_heads * kLanes;
  for (int r = threadIdx.x >> 5; r < rows; r += kPrepareThreads / 32) {
    const uint4* x = static_cast<const uint4*>(a.out) + (row + r) * chunks;
    const uint4* y = static_cast<const uint4*>(a.dout) + (row + r) * chunks;
#pragma unroll 4
    for (int i = lane; i < (chunks + 31) / 32 * 32; i += 32) {
      float sum = 0.f;
      if (i < chunks) {
        const uint4 p = __ldcs(x + i), q = y[i];
        const uint32_t u[4] = {p.x, p.y, p.z, p.w}, v[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
          sum = __fmaf_rn(__uint_as_float(u[e] << 16), __uint_as_float(v[e] << 16), sum);
          sum = __fmaf_rn(__uint_as_float(u[e] & 0xffff0000u), __uint_as_float(v[e] & 0xffff0000u), sum);
        }
      }
#pragma unroll
      for (int w = kLanes / 2; w > 0; w /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, w));
      if (i % kLanes == 0 && i < chunks) sums[i / kLanes * kSumStride + r] = sum;
    }
  }
}

/// lse and delta of padded rows, cleared turn counters. A block takes 16 padded rows.
template <int D>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_kernel(const AttentionBackwardCall a, int padded, float* lse, float* delta, int* flags) {
  begin_kernel();
  constexpr int kRows = Smem<D>::kRows;
  extern __shared__ float sums[];  // [q_heads, kSumStride]
  const int first = blockIdx.x * kPrepareRows;
  if (first % kRows == 0)
    for (int h = threadIdx.x; h < a.q_heads; h += kPrepareThreads)
      flags[int64_t{h} * (padded / kRows) + first / kRows] = 0;
  const int sequence = sequence_of_tile(a.cu, a.S, first / kKeys, kKeys), begin = a.cu[sequence];
  const int inside = first - first_tile(begin, sequence, kKeys) * kKeys;
  const int rows = min(a.cu[sequence + 1] - begin - inside, kPrepareRows);
  const int64_t row = int64_t{begin} + inside;
  row_deltas<D>(sums, a, row, rows);
  __syncthreads();
  const int r = threadIdx.x % kPrepareRows;
  for (int h = threadIdx.x / kPrepareRows; h < a.q_heads; h += kPrepareThreads / kPrepareRows) {
    const int64_t to = int64_t{h} * padded + first + r;
    delta[to] = r < rows ? sums[h * kSumStride + r] : 0.f;
    lse[to] = r < rows ? -__fmul_rn(a.lse[int64_t{h} * a.T + row + r], 1.44269504f) : canonical::neg_inf();
  }
}

// ---- work list

constexpr int kListThreads = 1024, kBinsPerThread = 4, kBins = kListThreads * kBinsPerThread;
static_assert(kBins * kKeys == kMostBackwardRows);

/// Tiles of all sequences by the blocks of queries that they meet, most first. Two tiles of one sequence
/// never share a bin: block b has to come before block b + 1, which waits for it. One block of threads.
__global__ void __launch_bounds__(kListThreads)
    list_kernel(Tile* tiles, List* list, const AttentionBackwardCall a, int multiprocessors) {
  begin_kernel();
  using Scan = cub::BlockScan<int, kListThreads>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ int count[kBins];
  const auto for_each_tile = [&](auto&& f) {
    for (int s = threadIdx.x; s < a.S; s += kListThreads) {
      const int row = a.cu[s], length = a.cu[s + 1] - row, blocks = (length + kKeys - 1) / kKeys;
      for (int b = 0; b < blocks; ++b)
        f(Tile{row, length, b, first_tile(row, s, kKeys) * kKeys}, kBins - (blocks - b));
    }
  };
  for (int i = threadIdx.x; i < kBins; i += kListThreads) count[i] = 0;
  __syncthreads();
  for_each_tile([&](const Tile&, int bin) { atomicAdd(&count[bin], 1); });
  __syncthreads();
  int sums[kBinsPerThread], total;
  for (int i = 0; i < kBinsPerThread; ++i) sums[i] = count[threadIdx.x * kBinsPerThread + i];
  Scan(storage).ExclusiveSum(sums, sums, total);
  for (int i = 0; i < kBinsPerThread; ++i) count[threadIdx.x * kBinsPerThread + i] = sums[i];
  if (threadIdx.x == 0) {
    // Few heads at once keep dQ in the L2 cache, enough of them balance the lengths of the items.
    int heads = 1;
    while (2 * total * heads < 3 * multiprocessors && a.kv_heads % (heads * 2) == 0) heads *= 2;
    *list = {total, heads, 0, 0};
  }
  __syncthreads();
  for_each_tile([&](const Tile& tile, int bin) { tiles[atomicAdd(&count[bin], 1)] = tile; });
}

// ---- launch

/// `heads` heads of rows of `width` elements as (64 columns, rows, D / 64, heads), boxes of `rows` rows.
template <int D>
CUtensorMap head_map(const Libraries& libraries, const void* data, int T, int64_t width, int heads,
                     uint32_t rows) {
  return libraries.tensor_map(data, {64, static_cast<uint64_t>(T), D / 64, static_cast<uint64_t>(heads)},
                              {static_cast<uint64_t>(width) * 2, 128, D * 2}, {64, rows, D / 64, 1});
}

template <class T>
T* allocate(Arena& arena, int64_t count) {
  return static_cast<T*>(arena.allocate(count * int64_t{sizeof(T)}));
}

template <int D>
void run(Ctx& ctx, const AttentionBackwardCall& a) {
  using SM = Smem<D>;
  const Libraries& libraries = libraries_of(ctx);
  static_assert(kKeys == kBackwardKeys && SM::kRows == backward_queries(D));
  const int most_tiles = a.T / kKeys + std::min(a.S, a.T);
  ArenaScope scope(ctx.scratch);
  auto* tiles = allocate<Tile>(ctx.scratch, most_tiles);
  auto* list = allocate<List>(ctx.scratch, 1);
  const BackwardSums sums = attention_backward_one_pass_scratch(ctx.scratch, a.T, a.S, a.q_heads, D);
  const auto padded = static_cast<int>(sums.padded);
  auto *lse = sums.lse.as<float>(), *delta = sums.delta.as<float>();
  auto* flags = sums.flags.as<int>();
  launch(ctx.lane, list_kernel, 1, kListThreads, 0, tiles, list, a, libraries.multiprocessors());
  launch(ctx.lane, prepare_kernel<D>, padded / kPrepareRows, kPrepareThreads,
         static_cast<size_t>(a.q_heads * kSumStride) * sizeof(float), a, padded, lse, delta, flags);
  const CUtensorMap q = head_map<D>(libraries, a.qkv, a.T, a.row_width(), a.q_heads, SM::kRows),
                    kv = head_map<D>(libraries, a.qkv, a.T, a.row_width(), a.q_heads + 2 * a.kv_heads, kKeys),
                    dout = head_map<D>(libraries, a.dout, a.T, int64_t{a.q_heads} * D, a.q_heads, SM::kRows);
  const Arguments args{.dqkv = static_cast<bf*>(a.dqkv),
                       .tiles = tiles,
                       .list = list,
                       .lse = lse,
                       .delta = delta,
                       .dq = sums.dq.as<float>(),
                       .flags = flags,
                       .q_heads = a.q_heads,
                       .kv_heads = a.kv_heads,
                       .group = a.group(),
                       .padded = padded,
                       .c = static_cast<float>(a.scale * 1.4426950408889634),
                       .scale = a.scale};
  allow_shared_memory(backward_kernel<D>, SM::kBytes);
  const int64_t most_items = int64_t{most_tiles} * a.kv_heads;
  launch(ctx.lane, backward_kernel<D>,
         static_cast<int>(std::min<int64_t>(libraries.multiprocessors(), most_items)), kThreads, SM::kBytes,
         q, kv, dout, args);
}

}  // namespace
}  // namespace backward

void attention_backward_one_pass(Ctx& ctx, const AttentionBackwardCall& a) {
  CHECK(a.T <= kMostBackwardRows, "{} packed rows, at most {}", a.T, kMostBackwardRows);
  if (a.T == 0) return;
  if (a.head_dim == 128)
    backward::run<128>(ctx, a);
  else
    backward::run<64>(ctx, a);
}

}  // namespace temper::cuda
