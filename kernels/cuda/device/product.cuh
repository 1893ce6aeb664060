#pragma once
// The products that define the bits of the others, as parts of kernels: a tile of outputs, one chain of the
// sum for each (kernels/cuda/NUMERICS.md, "Linear").

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
};

/// The end of an output, after its sum over K.
template <class Y, class S>
struct Result {
  Y* y;
  const S* bias;
  int64_t pitch;
  bool add;
  float scale = 1;  // times 1 every number is itself
  TEMPER_DEVICE void store(int64_t m, int64_t n, float sum) const {
    Y* at = y + m * pitch + n;
    sum = __fmul_rn(scale, sum);
    if (bias != nullptr) sum = __fadd_rn(sum, cn::load(bias[n]));
    if (add) sum = __fadd_rn(sum, cn::load(*at));
    *at = cn::store<Y>(sum);
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

// ---- fp32: tiles of 64 x 64 through shared memory, one chain per output

constexpr int kTile = 64, kDepth = 16, kFp32Threads = 256;
using Fp32Tile = float[kDepth][kTile + 1];

/// Rows i0.. and steps k0.. of an operand, zero outside; neighbouring threads read neighbouring elements.
TEMPER_DEVICE void load_tile(Fp32Tile& to, const Operand<float>& from, int64_t i0, int64_t count, int64_t k0,
                             int64_t K) {
  for (int at = threadIdx.x; at < kTile * kDepth; at += kFp32Threads) {
    const int i = from.depth == 1 ? at / kDepth : at % kTile, k = from.depth == 1 ? at % kDepth : at / kTile;
    to[k][i] = k0 + k < K && i0 + i < count ? from.data[(i0 + i) * from.outer + (k0 + k) * from.depth] : 0.f;
  }
}

/// kFp32Threads threads: the outputs from (m0, n0) on of M x N.
TEMPER_DEVICE void fp32_tile(const Result<float, float>& result, const Operand<float>& x,
                             const Operand<float>& w, int64_t M, int64_t N, int64_t K, int64_t m0,
                             int64_t n0) {
  __shared__ Fp32Tile xs, ws;
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;  // of 4 x 4 outputs, 16 apart
  float sum[4][4] = {};
  for (int64_t k0 = 0; k0 < K; k0 += kDepth) {
    load_tile(xs, x, m0, M, k0, K);
    load_tile(ws, w, n0, N, k0, K);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          sum[i][j] = __fmaf_rn(xs[k][row + 16 * i], ws[k][column + 16 * j], sum[i][j]);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t m = m0 + row + 16 * i, n = n0 + column + 16 * j;
      if (m < M && n < N) result.store(m, n, sum[i][j]);
    }
}

}  // namespace temper::cuda::product
