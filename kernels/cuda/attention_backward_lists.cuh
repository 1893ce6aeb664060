#pragma once
// What the kernels of the attention backward on tensor cores share: statistics of the rows, the list of work,
// tensor maps.

#include <cub/block/block_scan.cuh>

#include "kernels/cuda/attention_backward.h"
#include "kernels/cuda/device/backward_barriers.cuh"

namespace temper::cuda::backward {
namespace {

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

/// lse and delta of padded rows; a cleared turn counter for each kRows of them, if kRows > 0. A block takes
/// 16 padded rows.
template <int D, int kRows>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_kernel(const AttentionBackwardCall a, int padded, float* lse, float* delta, int* flags) {
  begin_kernel();
  extern __shared__ float sums[];  // [q_heads, kSumStride]
  const int first = blockIdx.x * kPrepareRows;
  if constexpr (kRows > 0)
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

}  // namespace
}  // namespace temper::cuda::backward
