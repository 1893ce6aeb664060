#pragma once
// What log-prob and sampling share: windows of fp32 logits, and the statistics of a chunk of a row, as
// NUMERICS.md defines them. Both ops call these very functions, so a sampled token's log-prob has the bits
// that scoring gives it.

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/scratch/head.h"

namespace temper::cuda {

inline constexpr int kHeadThreads = canonical::kNormThreads;
inline constexpr int kPerThread = canonical::kVocabularyChunk / kHeadThreads;
static_assert(canonical::kVocabularyChunk == kVocabularyChunk, "ranks share whole chunks");
static_assert(kPerThread == 8, "two groups of four ids a thread");

/// 1/T, rounded once; temperature 0 (greedy) reports log-probs at T = 1.
__host__ __device__ inline float inverse_temperature(double temperature) {
  return temperature == 0.0 ? 1.f : 1.f / static_cast<float>(temperature);
}

/// Logits of rows [first_row, first_row + rows) against ids [first_id, first_id + ids).
struct LogitsWindow {
  const float* z;
  int64_t pitch, first_row, rows, first_id, ids;
};

/// body(window) over all rows and ids; rows in blocks of at most `most_rows`, ids in whole chunks.
template <class Body>
void for_each_window(Ctx& ctx, const CTensor& hidden, const CTensor& w, int64_t most_rows, Body&& body) {
  const int64_t n = hidden.dim(0), K = hidden.dim(1), V = w.dim(0), size = dtype_size(hidden.dtype);
  for (int64_t row = 0; row < n; row += most_rows) {
    ArenaScope scope(ctx.scratch);
    const int64_t rows = std::min(most_rows, n - row);
    const auto [most_ids, pitch, memory] = logits_scratch(ctx.scratch, rows, V);
    auto* z = memory.template as<float>();
    for (int64_t id = 0; id < V; id += most_ids) {
      const int64_t ids = std::min(most_ids, V - id);
      multiply(ctx, {z, static_cast<const char*>(hidden.data) + row * K * size,
                     static_cast<const char*>(w.data) + id * K * size, nullptr, rows, ids, K, pitch,
                     hidden.dtype, DType::f32});
      body(LogitsWindow{z, pitch, row, rows, id, ids});
    }
  }
}

/// The tempered logits of this thread: ids 4i..4i+3 and 1024+4i..4i+3 of a chunk of `count` ids; -inf beyond.
struct ThreadLogits {
  float t[kPerThread];
  TEMPER_DEVICE static int id(int i) {
    return (i / 4) * 4 * kHeadThreads + 4 * static_cast<int>(threadIdx.x) + i % 4;
  }
  TEMPER_DEVICE ThreadLogits(const float* z, int count, float scale) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      t[i] = id(i) < count ? canonical::tempered(z[id(i)], scale) : canonical::neg_inf();
  }
};

/// Largest value over the block, for every thread. `shared`: 8 floats.
TEMPER_DEVICE float block_max(float x, float* shared) {
#pragma unroll
  for (int w = 16; w > 0; w /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, w));
  __syncthreads();
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
#pragma unroll
  for (int w = 1; w < kHeadThreads / 32; ++w) x = fmaxf(x, shared[w]);
  return x;
}

/// Statistics of one chunk, for every thread of the block.
TEMPER_DEVICE canonical::ChunkStats chunk_stats(const ThreadLogits& logits, int count, float* shared) {
  float mx = canonical::neg_inf();
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) mx = fmaxf(mx, logits.t[i]);
  canonical::ChunkStats s{block_max(mx, shared), 0.f, 0.f};
#pragma unroll
  for (int i = 0; i < kPerThread; ++i)
    if (ThreadLogits::id(i) < count) canonical::add_logit(s, logits.t[i]);
  s.sum = canonical::block_sum(s.sum, shared);
  s.weighted = canonical::block_sum(s.weighted, shared);
  return s;
}

/// A row's chunks merged in ascending order by one warp; chunk c is at stats[c * pitch]. Every lane gets the
/// result. The running maxima, and with them the factors of canonical::merge, are known before the sums are.
TEMPER_DEVICE canonical::ChunkStats merge_chunks(const canonical::ChunkStats* stats, int chunks,
                                                 int64_t pitch = 1) {
  const int lane = threadIdx.x & 31;
  canonical::ChunkStats all{canonical::neg_inf(), 0.f, 0.f};
  for (int first = 0; first < chunks; first += 32) {
    canonical::ChunkStats own{canonical::neg_inf(), 0.f, 0.f};
    if (first + lane < chunks) own = stats[(first + lane) * pitch];
    float most = own.max;
    for (int w = 1; w < 32; w *= 2) {
      const float lower = __shfl_up_sync(~0u, most, w);
      if (lane >= w) most = fmaxf(most, lower);
    }
    most = fmaxf(most, all.max);
    float before = __shfl_up_sync(~0u, most, 1);
    if (lane == 0) before = all.max;
    const canonical::MergeFactors own_factors = canonical::merge_factors(before, own.max);
    for (int c = 0; c < min(32, chunks - first); ++c) {
      const canonical::ChunkStats one{__shfl_sync(~0u, own.max, c), __shfl_sync(~0u, own.sum, c),
                                      __shfl_sync(~0u, own.weighted, c)};
      const canonical::MergeFactors f{__shfl_sync(~0u, own_factors.max, c),
                                      __shfl_sync(~0u, own_factors.a, c), __shfl_sync(~0u, own_factors.b, c)};
      all = first + c == 0 ? one : canonical::merge(f, all, one);
    }
  }
  return all;
}

}  // namespace temper::cuda
