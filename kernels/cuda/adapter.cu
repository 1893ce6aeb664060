// What adapters take beside linear products: memory-bound, 16 bytes a thread where rows allow it. A product
// that is added to something (u V^T, du A) has few features, and stays in registers: the sum is read and
// written once.

#include "kernels/cuda/device/product.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/scratch/linear.h"

namespace temper::cuda {
namespace {

using bf = __nv_bfloat16;
namespace cn = canonical;
constexpr int kThreads = 256;

/// The block of a row of the product's weights, and its row in B; -1: it has none.
struct Place {
  int block = -1;
  int64_t row = 0;
};
TEMPER_DEVICE Place place_of(const AdapterBlocks& blocks, int64_t row) {
  Place place;
#pragma unroll
  for (int i = 0; i < AdapterBlocks::kMost; ++i)
    if (i < blocks.count && row >= blocks.to[i] && row < blocks.to[i] + blocks.rows[i])
      place = {i, row - blocks.to[i] + blocks.from[i]};
  return place;
}

/// Block (row of w).
template <class S>
__global__ void weights_kernel(S* w, const S* b, AdapterBlocks blocks, int rank) {
  begin_kernel();
  const int64_t row = blockIdx.x;
  const Place place = place_of(blocks, row);
  const int width = blocks.count * rank;
  for (int k = static_cast<int>(threadIdx.x); k < width; k += static_cast<int>(blockDim.x))
    w[row * width + k] = k / rank == place.block ? b[place.row * rank + k % rank] : canonical::store<S>(0.f);
}

/// Block (row of dw).
__global__ void gradient_kernel(float* db, const float* dw, float scale, AdapterBlocks blocks, int rank,
                                bool add) {
  begin_kernel();
  const int64_t row = blockIdx.x;
  const Place place = place_of(blocks, row);
  if (place.block < 0) return;
  const float* from = dw + (row * blocks.count + place.block) * rank;
  float* to = db + place.row * rank;
  for (int k = static_cast<int>(threadIdx.x); k < rank; k += static_cast<int>(blockDim.x)) {
    const float scaled = __fmul_rn(scale, from[k]);
    to[k] = add ? __fadd_rn(to[k], scaled) : scaled;
  }
}

/// y = round(scale * z)
template <class S>
__global__ void round_scaled_kernel(S* y, const float* z, float scale, int64_t count) {
  begin_kernel();
  const int64_t first = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * kGroup;
  if (first >= count) return;
  const bool whole = first + kGroup <= count;
  const int n = whole ? kGroup : static_cast<int>(count - first);
  float of[kGroup];
  load_group(of, z + first, n, whole);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) of[i] = __fmul_rn(scale, of[i]);
  store_group(y + first, of, n, whole);
}

// ---- products that are added to something

/// Steps of a sum: [begin, end), of whole steps of the tensor cores.
struct Steps {
  int begin = 0, end = 0;
};
constexpr int kStep = 16;

/// The weights u V^T reads: (n, k) is b[row of n, k - first column of n's block], zero in other blocks.
template <class S>
struct BlockWeights {
  const S* b;
  AdapterBlocks blocks;
  int rank;

  TEMPER_DEVICE bool has(int64_t n) const { return place_of(blocks, n).block >= 0; }
  TEMPER_DEVICE S at(int64_t n, int k) const {
    const Place place = place_of(blocks, n);
    const int own = k - place.block * rank;
    return place.block >= 0 && own >= 0 && own < rank ? b[place.row * rank + own] : cn::store<S>(0.f);
  }
  /// What the outputs [begin, end) read of u.
  TEMPER_DEVICE Steps steps(int64_t begin, int64_t end) const {
    Steps of{1 << 30, 0};
#pragma unroll
    for (int i = 0; i < AdapterBlocks::kMost; ++i) {
      if (i >= blocks.count || end <= blocks.to[i] || begin >= blocks.to[i] + blocks.rows[i]) continue;
      of.begin = min(of.begin, i * rank / kStep * kStep);
      of.end = max(of.end, ((i + 1) * rank + kStep - 1) / kStep * kStep);
    }
    return of.end > 0 ? of : Steps{};
  }
};

/// The weights du A reads: (n, k) is a[k, n].
template <class S>
struct TurnedWeights {
  const S* a;
  int64_t N;
  int K;

  TEMPER_DEVICE bool has(int64_t) const { return true; }
  TEMPER_DEVICE S at(int64_t n, int k) const { return k < K && n < N ? a[k * N + n] : cn::store<S>(0.f); }
  TEMPER_DEVICE Steps steps(int64_t, int64_t) const { return {0, (K + kStep - 1) / kStep * kStep}; }
};

constexpr int kStaged = 128;         // features of the weights in shared memory at once
constexpr int kPitch = kStaged + 8;  // so that no two of 8 rows begin in the same banks

/// Columns of a tile are shared out so that a thread holds 8 neighbours of every 32, which the tensor cores
/// take for pairs of four groups: the row in shared memory of a column.
TEMPER_DEVICE int staged_row(int column) {
  return column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
}

/// Outputs [n0, n0 + columns) and features [k0, k0 + depth), by all threads.
template <int kColumns>
TEMPER_DEVICE void stage(bf (*to)[kPitch], const BlockWeights<bf>& w, int64_t n0, int k0, int depth) {
  const int groups = depth / kGroup;
  for (int i = static_cast<int>(threadIdx.x); i < kColumns * groups; i += static_cast<int>(blockDim.x)) {
    const int column = i / groups, k = i % groups * kGroup;
    bf* at = &to[staged_row(column)][k];
    const Place place = place_of(w.blocks, n0 + column);
    const int own = k0 + k - place.block * w.rank;
    if (w.rank % kGroup == 0 && place.block >= 0 && own >= 0 && own < w.rank)
      copy_whole<bf, kGroup>(at, w.b + place.row * w.rank + own);
    else
#pragma unroll
      for (int e = 0; e < kGroup; ++e) at[e] = w.at(n0 + column, k0 + k + e);
  }
}
template <int kColumns>
TEMPER_DEVICE void stage(bf (*to)[kPitch], const TurnedWeights<bf>& w, int64_t n0, int k0, int depth) {
  constexpr int kGroups = kColumns / kGroup;
  for (int i = static_cast<int>(threadIdx.x); i < depth * kGroups; i += static_cast<int>(blockDim.x)) {
    const int k = i / kGroups, column = i % kGroups * kGroup;
    RawGroup<bf, kGroup> raw;
    const int64_t left = k0 + k < w.K ? w.N - n0 - column : 0;
    const int count = static_cast<int>(max(int64_t{0}, min(left, int64_t{kGroup})));
    load_raw(raw, w.a + (k0 + k) * w.N + n0 + column, count, count == kGroup && w.N % kGroup == 0);
#pragma unroll
    for (int e = 0; e < kGroup; ++e) to[staged_row(column + e)][k] = raw.at[e];
  }
}

/// Two neighbouring features of a row of u, zero outside.
TEMPER_DEVICE uint32_t low_pair(const bf* row, int k, int K, bool exists) {
  if (!exists || k >= K) return 0;
  if (K % 2 == 0) return *reinterpret_cast<const uint32_t*>(row + k);
  return product::pair(row, 1, k, K, true);
}

/// y = round(fma(scale, u w, y)): blocks of kWarps * kTiles * 16 rows and kColumns outputs.
template <int kWarps, int kTiles, int kColumns, class Y, class Weights>
__global__ void __launch_bounds__(kWarps * 32, 512 / (kWarps * 32))
    add_product_kernel(Y* y, const bf* u, const Weights w, float scale, int64_t M, int64_t N, int K,
                       int column_tiles) {
  constexpr int kPairs = kColumns / 32;
  __shared__ __align__(16) bf staged[kColumns][kPitch];
  launch_dependents();
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int64_t n0 = blockIdx.x % column_tiles * int64_t{kColumns},
                m0 = (blockIdx.x / column_tiles * kWarps + threadIdx.x / 32) * int64_t{kTiles * 16} + g;
  const Steps steps = w.steps(n0, min(n0 + kColumns, N));
  stage<kColumns>(staged, w, n0, steps.begin, min(kStaged, steps.end - steps.begin));
  wait_for_previous_kernel();
  if (steps.end == 0) return;
  RawGroup<Y, kGroup> held[kTiles][2][kPairs];
  const auto for_each_group = [&](auto&& f) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int c = 0; c < kPairs; ++c) {
          const int64_t m = m0 + tile * 16 + half * 8, n = n0 + c * 32 + t * 8;
          if (m < M && n < N) f(tile, half, c, m, n, static_cast<int>(min(N - n, int64_t{kGroup})));
        }
  };
  const bool eights = N % kGroup == 0;
  for_each_group([&](int tile, int half, int c, int64_t m, int64_t n, int count) {
    load_raw(held[tile][half][c], y + m * N + n, count, eights);
  });
  float sum[kTiles][kPairs * 4][4] = {};
  for (int k0 = steps.begin; k0 < steps.end; k0 += kStaged) {
    const int depth = min(kStaged, steps.end - k0);
    if (k0 > steps.begin) {
      __syncthreads();
      stage<kColumns>(staged, w, n0, k0, depth);
    }
    __syncthreads();
    for (int k = 0; k < depth; k += kStep) {
      uint32_t a[kTiles][4];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int64_t m = m0 + tile * 16 + i % 2 * 8;
          a[tile][i] = low_pair(u + m * K, k0 + k + 2 * t + i / 2 * 8, K, m < M);
        }
#pragma unroll
      for (int j = 0; j < kPairs * 4; ++j) {
        const bf* at = &staged[j * 8 + g][k + 2 * t];
        const uint32_t b0 = *reinterpret_cast<const uint32_t*>(at),
                       b1 = *reinterpret_cast<const uint32_t*>(at + 8);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) mma16816(sum[tile][j], a[tile], b0, b1);
      }
    }
  }
  for_each_group([&](int tile, int half, int c, int64_t m, int64_t n, int count) {
    float of[kGroup];
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      of[e] = cn::load(held[tile][half][c].at[e]);
      if (w.has(n + e)) of[e] = __fmaf_rn(scale, sum[tile][c * 4 + e / 2][half * 2 + e % 2], of[e]);
    }
    store_group(y + m * N + n, of, count, eights);
  });
}

/// The same in fp32, an output a thread: one chain of fused multiply-adds.
template <class Weights>
__global__ void add_fp32_product_kernel(float* y, const float* u, const Weights w, float scale, int64_t M,
                                        int64_t N, int K) {
  begin_kernel();
  const int64_t at = blockIdx.x * int64_t{kThreads} + threadIdx.x, m = at / N, n = at % N;
  if (m >= M || !w.has(n)) return;
  const Steps steps = w.steps(n, n + 1);
  float sum = 0;
  for (int k = steps.begin; k < min(steps.end, K); ++k) sum = __fmaf_rn(u[m * K + k], w.at(n, k), sum);
  y[at] = __fmaf_rn(scale, sum, y[at]);
}

template <int kWarps, int kTiles, int kColumns, class Weights>
void add_bf16_product(Ctx& ctx, const Tensor& y, const CTensor& u, const Weights& w, double scale) {
  const int64_t M = y.dim(0), N = y.dim(1);
  const int columns = blocks_for(N, kColumns), rows = blocks_for(M, kWarps * kTiles * 16);
  dispatch_gpu_storage(y.dtype, [&](auto s) {
    using Y = decltype(s);
    launch(ctx.lane, add_product_kernel<kWarps, kTiles, kColumns, Y, Weights>,
           blocks_for(int64_t{rows} * columns, 1), kWarps * 32, 0, data_of<Y>(y), data_of<bf>(u), w,
           static_cast<float>(scale), M, N, static_cast<int>(u.dim(1)), columns);
  });
}

/// `weights` makes what the product reads, of a storage type.
template <class MakeWeights>
void add_product(Ctx& ctx, const Tensor& y, const CTensor& u, double scale, MakeWeights&& weights) {
  if (u.dtype == DType::f32) {
    const auto w = weights(float{});
    launch(ctx.lane, add_fp32_product_kernel<std::decay_t<decltype(w)>>, blocks_for(y.size(), kThreads),
           kThreads, 0, data_of<float>(y), data_of<float>(u), w, static_cast<float>(scale), y.dim(0),
           y.dim(1), static_cast<int>(u.dim(1)));
  } else if (y.dim(0) <= kSkinnyRows) {
    add_bf16_product<4, 1, 32>(ctx, y, u, weights(bf{}), scale);
  } else {
    add_bf16_product<8, 2, 64>(ctx, y, u, weights(bf{}), scale);
  }
}

}  // namespace

void adapter_forward(Ctx& ctx, Tensor y, CTensor u, CTensor b, double scale, AdapterBlocks blocks) {
  add_product(ctx, y, u, scale, [&](auto s) {
    using S = decltype(s);
    return BlockWeights<S>{data_of<S>(b), blocks, static_cast<int>(b.dim(1))};
  });
}

void adapter_backward_input(Ctx& ctx, Tensor dx, CTensor du, CTensor a) {
  add_product(ctx, dx, du, 1, [&](auto s) {
    using S = decltype(s);
    return TurnedWeights<S>{data_of<S>(a), a.dim(1), static_cast<int>(a.dim(0))};
  });
}

void adapter_weights(Ctx& ctx, Tensor w, CTensor b, AdapterBlocks blocks) {
  dispatch_gpu_storage(w.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, weights_kernel<S>, blocks_for(w.dim(0), 1), 128, 0, data_of<S>(w), data_of<S>(b), blocks,
           static_cast<int>(b.dim(1)));
  });
  ctx.lane.order();  // a product may read weights before its wait
}

void adapter_gradient(Ctx& ctx, Tensor db, CTensor dw, double scale, AdapterBlocks blocks, GradWrite write) {
  launch(ctx.lane, gradient_kernel, blocks_for(dw.dim(0), 1), 64, 0, data_of<float>(db), data_of<float>(dw),
         static_cast<float>(scale), blocks, static_cast<int>(db.dim(1)), write == GradWrite::add);
}

void round_scaled(Ctx& ctx, Tensor y, CTensor z, double scale) {
  dispatch_gpu_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, round_scaled_kernel<S>, blocks_for(y.size(), int64_t{kThreads} * kGroup), kThreads, 0,
           data_of<S>(y), data_of<float>(z), static_cast<float>(scale), y.size());
  });
}

}  // namespace temper::cuda
