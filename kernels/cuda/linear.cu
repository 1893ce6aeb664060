// The plain kernels of products, and what the self-tests of the others need.

#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"

namespace temper::cuda {
namespace {

using bf = __nv_bfloat16;
namespace cn = canonical;

// ---- bf16, plain chain

/// Two neighbouring elements of a row, zero outside.
TEMPER_DEVICE uint32_t pair(const bf* row, int64_t k, int64_t K, bool exists) {
  const auto one = [&](int64_t i) -> uint32_t { return exists && i < K ? __bfloat16_as_ushort(row[i]) : 0u; };
  return one(k) | one(k + 1) << 16;
}

template <class Y>
TEMPER_DEVICE void store_output(Y* y, float sum, const bf* bias, int64_t n) {
  *y = cn::store<Y>(bias != nullptr ? __fadd_rn(sum, cn::load(bias[n])) : sum);
}

template <class Y>
__global__ void chain_kernel(Y* y, const bf* x, const bf* w, const bf* bias, int64_t M, int64_t N, int64_t K,
                             int64_t pitch) {
  begin_kernel();
  const int lane = threadIdx.x, g = lane >> 2, t = lane & 3;
  const int64_t m0 = blockIdx.y * int64_t{16}, n0 = blockIdx.x * int64_t{8};
  const bool low = m0 + g < M, high = m0 + g + 8 < M, column = n0 + g < N;
  const bf *xl = x + (m0 + g) * K, *xh = xl + 8 * K, *wr = w + (n0 + g) * K;
  float c[4] = {0.f, 0.f, 0.f, 0.f};
  for (int64_t k = 2 * t; k < K + 2 * t; k += 16) {
    const uint32_t a[4] = {pair(xl, k, K, low), pair(xh, k, K, high), pair(xl, k + 8, K, low),
                           pair(xh, k + 8, K, high)};
    mma16816(c, a, pair(wr, k, K, column), pair(wr, k + 8, K, column));
  }
  for (int i = 0; i < 4; ++i) {
    const int64_t m = m0 + g + (i >= 2 ? 8 : 0), n = n0 + 2 * t + (i & 1);
    if (m < M && n < N) store_output(y + m * pitch + n, c[i], bias, n);
  }
}

// ---- fp32: tiles of 64 x 64 through shared memory, one chain per output

constexpr int kTile = 64, kDepth = 16, kFp32Threads = 256;

__global__ void __launch_bounds__(kFp32Threads)
    fp32_kernel(float* y, const float* x, const float* w, const float* bias, int64_t M, int64_t N, int64_t K,
                int64_t pitch) {
  begin_kernel();
  __shared__ float xs[kDepth][kTile + 1], ws[kDepth][kTile + 1];
  const int64_t m0 = blockIdx.y * int64_t{kTile}, n0 = blockIdx.x * int64_t{kTile};
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;  // of 4 x 4 outputs, 16 apart
  float sum[4][4] = {};
  for (int64_t k0 = 0; k0 < K; k0 += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += kFp32Threads) {
      const int r = i / kDepth, k = i % kDepth;
      const bool inside = k0 + k < K;
      xs[k][r] = inside && m0 + r < M ? x[(m0 + r) * K + k0 + k] : 0.f;
      ws[k][r] = inside && n0 + r < N ? w[(n0 + r) * K + k0 + k] : 0.f;
    }
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
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const int64_t m = m0 + row + 16 * i, n = n0 + column + 16 * j;
      if (m < M && n < N) y[m * pitch + n] = bias != nullptr ? __fadd_rn(sum[i][j], bias[n]) : sum[i][j];
    }
}

// ---- for self-tests

/// Roughly normal numbers of unit variance.
__global__ void random_kernel(bf* p, int64_t count) {
  begin_kernel();
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint64_t z = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15ull + 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    float u = 0;
    for (int k = 0; k < 4; ++k) u += static_cast<float>((z >> (16 * k)) & 0xffff) / 65536.f - .5f;
    p[i] = __float2bfloat16(u * 1.732f);
  }
}

/// Counts elements of rows of `width` that differ; rows are `pitch` elements apart.
template <class Y>
__global__ void differ_kernel(int* count, const Y* a, const Y* b, int64_t rows, int64_t width,
                              int64_t pitch) {
  begin_kernel();
  using Bits = std::conditional_t<sizeof(Y) == 4, uint32_t, uint16_t>;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < rows * width;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t at = i / width * pitch + i % width;
    if (reinterpret_cast<const Bits*>(a)[at] != reinterpret_cast<const Bits*>(b)[at]) atomicAdd(count, 1);
  }
}

}  // namespace

void multiply_chain(Lane& lane, const Product& p) {
  const dim3 grid(blocks_for(p.N, 8), blocks_for(p.M, 16));
  const auto go = [&](auto y) {
    using Y = decltype(y);
    launch(lane, chain_kernel<Y>, grid, 32, 0, static_cast<Y*>(p.y), static_cast<const bf*>(p.x),
           static_cast<const bf*>(p.w), static_cast<const bf*>(p.bias), p.M, p.N, p.K, p.pitch);
  };
  if (p.out == DType::f32)
    go(float{});
  else
    go(bf{});
}

void multiply_fp32(Lane& lane, const Product& p) {
  launch(lane, fp32_kernel, dim3(blocks_for(p.N, kTile), blocks_for(p.M, kTile)), kFp32Threads, 0,
         static_cast<float*>(p.y), static_cast<const float*>(p.x), static_cast<const float*>(p.w),
         static_cast<const float*>(p.bias), p.M, p.N, p.K, p.pitch);
}

void fill_random(Lane& lane, void* bf16, int64_t count) {
  launch(lane, random_kernel, 512, 256, 0, static_cast<bf*>(bf16), count);
}

void count_differing(Lane& lane, int* count, const Product& a, const Product& b, int64_t rows,
                     int64_t columns) {
  const auto go = [&](auto y) {
    using Y = decltype(y);
    launch(lane, differ_kernel<Y>, 512, 256, 0, count, static_cast<const Y*>(a.y), static_cast<const Y*>(b.y),
           rows, columns, a.pitch);
  };
  if (a.out == DType::f32)
    go(float{});
  else
    go(bf{});
}

}  // namespace temper::cuda
