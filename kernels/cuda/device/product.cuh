#pragma once
// The products that define the bits of the others, as parts of kernels: a tile of outputs, one chain of the
// sum for each (kernels/cuda/NUMERICS.md, "Linear").

#include <cuda_pipeline_primitives.h>

#include "kernels/cuda/device/canonical.cuh"
#include "kernels/cuda/device/ptx.cuh"

namespace temper::cuda::product {

using bf = __nv_bfloat16;
namespace cn = canonical;

/// An operand in memory: element (i, k) of the rows or columns i of the outputs.
template <class S>
struct Operand {
  const S* data;
  int64_t outer, depth;  // elements from one i, and from one k, to the next
  /// Four numbers of fp32 of neighbouring i, of `count`, are there together or not, and 16 bytes aligned.
  TEMPER_DEVICE bool has_fours(int64_t count) const {
    return count % 4 == 0 && depth % 4 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
  }
};

/// The end of an output, after its sum over K.
template <class Y, class S>
struct Result {
  Y* y;
  const S* bias;
  int64_t pitch;
  bool add;
  float scale = 1;  // times 1 every number is itself
  /// `held`: what is there, where it adds.
  TEMPER_DEVICE float finish(int64_t n, float sum, float held) const {
    sum = __fmul_rn(scale, sum);
    if (bias != nullptr) sum = __fadd_rn(sum, cn::load(bias[n]));
    return add ? __fadd_rn(sum, held) : sum;
  }
  TEMPER_DEVICE void store(int64_t m, int64_t n, float sum) const {
    Y* at = y + m * pitch + n;
    *at = cn::store<Y>(finish(n, sum, add ? cn::load(*at) : 0.f));
  }
  /// Rows of fp32 begin at multiples of 16 bytes.
  TEMPER_DEVICE bool takes_fours() const {
    return pitch % 4 == 0 && reinterpret_cast<uintptr_t>(y) % 16 == 0;
  }
  /// Four neighbouring outputs of fp32, those below N; at once where they are `whole`.
  TEMPER_DEVICE void store_four(int64_t m, int64_t n, int64_t N, const float (&sum)[4], bool whole) const {
    if (!whole) {
      for (int j = 0; j < 4; ++j)
        if (n + j < N) store(m, n + j, sum[j]);
      return;
    }
    auto* at = reinterpret_cast<float4*>(y + m * pitch + n);
    const float4 held = add ? *at : float4{};
    *at = make_float4(finish(n, sum[0], held.x), finish(n + 1, sum[1], held.y), finish(n + 2, sum[2], held.z),
                      finish(n + 3, sum[3], held.w));
  }
};

// ---- bf16

/// Two neighbouring elements of the sum, zero outside.
TEMPER_DEVICE uint32_t pair(const bf* row, int64_t depth, int64_t k, int64_t K, bool exists) {
  const auto one = [&](int64_t i) -> uint32_t {
    return exists && i < K ? __bfloat16_as_ushort(row[i * depth]) : 0u;
  };
  return one(k) | one(k + 1) << 16;
}

constexpr int kChainRows = 16, kChainColumns = 8;

/// One warp: the outputs from (m0, n0) on of M x N, each a chain over K in steps of 16.
template <class Y>
TEMPER_DEVICE void chain_tile(const Result<Y, bf>& result, const Operand<bf>& x, const Operand<bf>& w,
                              int64_t M, int64_t N, int64_t K, int64_t m0, int64_t n0) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const bool low = m0 + g < M, high = m0 + g + 8 < M, column = n0 + g < N;
  const bf *xl = x.data + (m0 + g) * x.outer, *xh = xl + 8 * x.outer, *wr = w.data + (n0 + g) * w.outer;
  float c[4] = {0.f, 0.f, 0.f, 0.f};
  for (int64_t k = 2 * t; k < K + 2 * t; k += 16) {
    const uint32_t a[4] = {pair(xl, x.depth, k, K, low), pair(xh, x.depth, k, K, high),
                           pair(xl, x.depth, k + 8, K, low), pair(xh, x.depth, k + 8, K, high)};
    mma16816(c, a, pair(wr, w.depth, k, K, column), pair(wr, w.depth, k + 8, K, column));
  }
  for (int i = 0; i < 4; ++i) {
    const int64_t m = m0 + g + (i >= 2 ? 8 : 0), n = n0 + 2 * t + (i & 1);
    if (m < M && n < N) result.store(m, n, c[i]);
  }
}

// ---- fp32: tiles through shared memory, 4 x 4 outputs a thread, one chain per output

constexpr int kDepth = 16;  // steps of a stage
constexpr int kStages = 4;  // under way
constexpr int kOwn = 4;     // rows and columns of a thread

/// Tiles of 64 rows and so many columns.
template <int kColumns>
struct Fp32 {
  static constexpr int kRows = 64, kThreads = kRows * kColumns / (kOwn * kOwn);
  struct Stage {
    float x[kDepth][kRows + kOwn], w[kDepth][kColumns + kOwn];
  };

  /// Rows i0.. and steps k0.. of an operand, zero outside; neighbouring threads read neighbouring elements,
  /// four at once where rows of fours lie side by side.
  template <int kSpan>
  TEMPER_DEVICE static void copy(float (&to)[kDepth][kSpan + kOwn], const Operand<float>& from, int64_t i0,
                                 int64_t count, int64_t k0, int64_t K) {
    if (from.outer == 1 && from.has_fours(count)) return copy_by<4, kSpan, false>(to, from, i0, count, k0, K);
    if (from.depth == 1) return copy_by<1, kSpan, true>(to, from, i0, count, k0, K);
    copy_by<1, kSpan, false>(to, from, i0, count, k0, K);
  }
  template <int kBy, int kSpan, bool kAlongSum>
  TEMPER_DEVICE static void copy_by(float (&to)[kDepth][kSpan + kOwn], const Operand<float>& from, int64_t i0,
                                    int64_t count, int64_t k0, int64_t K) {
#pragma unroll
    for (int j = 0; j < kSpan * kDepth / kBy / kThreads; ++j) {
      const int at = threadIdx.x + j * kThreads, i = kAlongSum ? at / kDepth : at % (kSpan / kBy) * kBy,
                k = kAlongSum ? at % kDepth : at / (kSpan / kBy);
      if (k0 + k < K && i0 + i < count)
        __pipeline_memcpy_async(&to[k][i], from.data + (i0 + i) * from.outer + (k0 + k) * from.depth,
                                kBy * sizeof(float));
      else
        for (int e = 0; e < kBy; ++e) to[k][i + e] = 0.f;
    }
  }

  /// kThreads threads: the outputs from (m0, n0) on of M x N.
  TEMPER_DEVICE static void tile(const Result<float, float>& result, const Operand<float>& x,
                                 const Operand<float>& w, int64_t M, int64_t N, int64_t K, int64_t m0,
                                 int64_t n0) {
    __shared__ __align__(16) Stage stages[kStages];
    const int row = threadIdx.x / (kColumns / kOwn) * kOwn, column = threadIdx.x % (kColumns / kOwn) * kOwn;
    const auto fetch = [&](int64_t step) {
      if (step * kDepth < K) {
        Stage& to = stages[step % kStages];
        copy<kRows>(to.x, x, m0, M, step * kDepth, K);
        copy<kColumns>(to.w, w, n0, N, step * kDepth, K);
      }
      __pipeline_commit();
    };
    for (int step = 0; step < kStages - 1; ++step) fetch(step);
    float sum[kOwn][kOwn] = {};
    for (int64_t step = 0; step * kDepth < K; ++step) {
      __pipeline_wait_prior(kStages - 2);
      __syncthreads();  // the stage is there, and all are through with the one before, where the next is put
      fetch(step + kStages - 1);
      const Stage& s = stages[step % kStages];
#pragma unroll
      for (int k = 0; k < kDepth; ++k) {
        const float4 a = *reinterpret_cast<const float4*>(&s.x[k][row]),
                     b = *reinterpret_cast<const float4*>(&s.w[k][column]);
        const float as[kOwn] = {a.x, a.y, a.z, a.w}, bs[kOwn] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
#pragma unroll
          for (int j = 0; j < kOwn; ++j) sum[i][j] = __fmaf_rn(as[i], bs[j], sum[i][j]);
      }
    }
    const bool whole = n0 + column + kOwn <= N && result.takes_fours();
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (m0 + row + i < M) result.store_four(m0 + row + i, n0 + column, N, sum[i], whole);
  }
};

}  // namespace temper::cuda::product
