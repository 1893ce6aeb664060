// The plain kernels of products, and what the self-tests of the others need.

#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"

namespace temper::cuda {
namespace {

using bf = __nv_bfloat16;
namespace cn = canonical;

/// An operand in memory: element (i, k) of the rows or columns i of the outputs.
template <class S>
struct Operand {
  const S* data;
  int64_t outer, depth;  // elements from one i, and from one k, to the next
};
template <class S>
Operand<S> left_operand(const Product& p) {
  const bool turned = p.kind == ProductKind::weight_gradient;
  return {static_cast<const S*>(p.x), turned ? 1 : p.left_pitch(), turned ? p.left_pitch() : 1};
}
template <class S>
Operand<S> right_operand(const Product& p) {
  const bool turned = p.kind != ProductKind::forward;
  return {static_cast<const S*>(p.w), turned ? 1 : p.K, turned ? p.N : 1};
}

/// The end of an output, after its sum over K.
template <class Y, class S>
struct Result {
  Y* y;
  const S* bias;
  int64_t pitch;
  bool add;
  TEMPER_DEVICE void store(int64_t m, int64_t n, float sum) const {
    Y* at = y + m * pitch + n;
    if (bias != nullptr) sum = __fadd_rn(sum, cn::load(bias[n]));
    if (add) sum = __fadd_rn(sum, cn::load(*at));
    *at = cn::store<Y>(sum);
  }
};
template <class Y, class S>
Result<Y, S> result_of(const Product& p) {
  return {static_cast<Y*>(p.y), static_cast<const S*>(p.bias), p.pitch, p.add};
}

// ---- bf16, plain chain

/// Two neighbouring elements of the sum, zero outside.
TEMPER_DEVICE uint32_t pair(const bf* row, int64_t depth, int64_t k, int64_t K, bool exists) {
  const auto one = [&](int64_t i) -> uint32_t {
    return exists && i < K ? __bfloat16_as_ushort(row[i * depth]) : 0u;
  };
  return one(k) | one(k + 1) << 16;
}

/// Blocks in x only: the grid's other dimensions are too small for the rows of a vocabulary.
template <class Y>
__global__ void chain_kernel(const Result<Y, bf> result, const Operand<bf> x, const Operand<bf> w, int64_t M,
                             int64_t N, int64_t K, int column_blocks) {
  begin_kernel();
  const int lane = threadIdx.x, g = lane >> 2, t = lane & 3;
  const int64_t m0 = blockIdx.x / column_blocks * int64_t{16}, n0 = blockIdx.x % column_blocks * int64_t{8};
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

__global__ void __launch_bounds__(kFp32Threads)
    fp32_kernel(const Result<float, float> result, const Operand<float> x, const Operand<float> w, int64_t M,
                int64_t N, int64_t K, int column_blocks) {
  begin_kernel();
  __shared__ Fp32Tile xs, ws;
  const int64_t m0 = blockIdx.x / column_blocks * int64_t{kTile},
                n0 = blockIdx.x % column_blocks * int64_t{kTile};
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
  const int columns = blocks_for(p.N, 8), blocks = blocks_for(columns * ((p.M + 15) / 16), 1);
  dispatch_gpu_storage(p.out, [&](auto y) {
    using Y = decltype(y);
    launch(lane, chain_kernel<Y>, blocks, 32, 0, result_of<Y, bf>(p), left_operand<bf>(p),
           right_operand<bf>(p), p.M, p.N, p.K, columns);
  });
}

void multiply_fp32(Lane& lane, const Product& p) {
  const int columns = blocks_for(p.N, kTile), blocks = blocks_for(columns * ((p.M + kTile - 1) / kTile), 1);
  launch(lane, fp32_kernel, blocks, kFp32Threads, 0, result_of<float, float>(p), left_operand<float>(p),
         right_operand<float>(p), p.M, p.N, p.K, columns);
}

void fill_random(Lane& lane, void* bf16, int64_t count) {
  launch(lane, random_kernel, 512, 256, 0, static_cast<bf*>(bf16), count);
}

void count_differing(Lane& lane, int* count, const Product& a, const Product& b, int64_t columns) {
  dispatch_gpu_storage(a.out, [&](auto y) {
    using Y = decltype(y);
    launch(lane, differ_kernel<Y>, 512, 256, 0, count, static_cast<const Y*>(a.y), static_cast<const Y*>(b.y),
           b.M, columns, a.pitch);
  });
}

}  // namespace temper::cuda
