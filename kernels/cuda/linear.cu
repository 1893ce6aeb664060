// The plain kernels of products, and what the self-tests of the others need.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_plain.h"

namespace temper::cuda {
namespace {

using bf = __nv_bfloat16;
using product::Fp32, product::Operand, product::Result;

// ---- kernels: blocks in x only, the grid's other dimensions are too small for the rows of a vocabulary

template <class Y>
__global__ void chain_kernel(const Result<Y, bf> result, const Operand<bf> x, const Operand<bf> w, int64_t M,
                             int64_t N, int64_t K, int column_blocks) {
  begin_kernel();
  product::chain_tile(result, x, w, M, N, K, blockIdx.x / column_blocks * int64_t{product::kChainRows},
                      blockIdx.x % column_blocks * int64_t{product::kChainColumns});
}

template <int kColumns>
__global__ void __launch_bounds__(Fp32<kColumns>::kThreads)
    fp32_kernel(const Result<float, float> result, const Operand<float> x, const Operand<float> w, int64_t M,
                int64_t N, int64_t K, int column_blocks) {
  begin_kernel();
  Fp32<kColumns>::tile(result, x, w, M, N, K, blockIdx.x / column_blocks * int64_t{Fp32<kColumns>::kRows},
                       blockIdx.x % column_blocks * int64_t{kColumns});
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
  constexpr int kFewBlocks = 128;  // of whole tiles: half of them keep twice as many multiprocessors at work
  const int64_t row_blocks = (p.M + Fp32<64>::kRows - 1) / Fp32<64>::kRows;
  const auto run = [&]<int kColumns>() {
    const int columns = blocks_for(p.N, kColumns);
    launch(lane, fp32_kernel<kColumns>, blocks_for(columns * row_blocks, 1), Fp32<kColumns>::kThreads, 0,
           result_of<float, float>(p), left_operand<float>(p), right_operand<float>(p), p.M, p.N, p.K,
           columns);
  };
  if (row_blocks * blocks_for(p.N, 64) < kFewBlocks)
    run.operator()<32>();
  else
    run.operator()<64>();
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
