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

/// A product u w of a tile: rows of kTiles * 16 from m0 on by each warp, kColumns outputs from n0 on. A
/// thread has the columns 8 t to 8 t + 7 of every 32.
template <int kTiles, int kColumns, class Weights>
struct TileProduct {
  static constexpr int kPairs = kColumns / 32;
  bf (*staged)[kPitch];
  const bf* u;
  Weights w;
  int K;
  int64_t n0;
  Steps steps = {};
  float sum[kTiles][kPairs * 4][4] = {};

  /// Reads nothing but weights.
  TEMPER_DEVICE void begin(int64_t N) {
    steps = w.steps(n0, min(n0 + kColumns, N));
    stage<kColumns>(staged, w, n0, steps.begin, min(kStaged, steps.end - steps.begin));
  }
  /// By all threads; m0: with the thread's row in a group of 8.
  TEMPER_DEVICE void multiply(int64_t m0, int64_t M) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
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
  }
  /// What is added to column n + e of a thread's group.
  TEMPER_DEVICE float add_to(float y, float scale, int tile, int half, int c, int64_t n, int e) const {
    return w.has(n + e) ? __fmaf_rn(scale, sum[tile][c * 4 + e / 2][half * 2 + e % 2], y) : y;
  }
};

/// f(tile, half, c, m, n, count): the groups of a thread, `count` columns from n on of a row m.
template <int kTiles, int kColumns, class F>
TEMPER_DEVICE void for_each_group(int64_t m0, int64_t n0, int64_t M, int64_t N, F&& f) {
  const int t = threadIdx.x & 3;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int c = 0; c < kColumns / 32; ++c) {
        const int64_t m = m0 + tile * 16 + half * 8, n = n0 + c * 32 + t * 8;
        if (m < M && n < N) f(tile, half, c, m, n, static_cast<int>(min(N - n, int64_t{kGroup})));
      }
}

/// The first row of a thread and the first column of its block.
struct TilePlace {
  int64_t m0, n0;
};
template <int kWarps, int kTiles, int kColumns>
TEMPER_DEVICE TilePlace place_of_thread(int column_tiles) {
  const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32;
  return {(blockIdx.x / column_tiles * kWarps + warp) * int64_t{kTiles * 16} + (lane >> 2),
          blockIdx.x % column_tiles * int64_t{kColumns}};
}

/// y = round(fma(scale, u w, y)): blocks of kWarps * kTiles * 16 rows and kColumns outputs.
template <int kWarps, int kTiles, int kColumns, class Y, class Weights>
__global__ void __launch_bounds__(kWarps * 32, 512 / (kWarps * 32))
    add_product_kernel(Y* y, const bf* u, const Weights w, float scale, int64_t M, int64_t N, int K,
                       int column_tiles) {
  __shared__ __align__(16) bf staged[kColumns][kPitch];
  launch_dependents();
  const auto [m0, n0] = place_of_thread<kWarps, kTiles, kColumns>(column_tiles);
  TileProduct<kTiles, kColumns, Weights> z{staged, u, w, K, n0};
  z.begin(N);
  wait_for_previous_kernel();
  if (z.steps.end == 0) return;
  RawGroup<Y, kGroup> held[kTiles][2][kColumns / 32];
  const bool eights = N % kGroup == 0;
  for_each_group<kTiles, kColumns>(m0, n0, M, N,
                                   [&](int tile, int half, int c, int64_t m, int64_t n, int count) {
                                     load_raw(held[tile][half][c], y + m * N + n, count, eights);
                                   });
  z.multiply(m0, M);
  for_each_group<kTiles, kColumns>(
      m0, n0, M, N, [&](int tile, int half, int c, int64_t m, int64_t n, int count) {
        float of[kGroup];
#pragma unroll
        for (int e = 0; e < kGroup; ++e)
          of[e] = z.add_to(cn::load(held[tile][half][c].at[e]), scale, tile, half, c, n, e);
        store_group(y + m * N + n, of, count, eights);
      });
}

/// a = SwiGLU of y' over kColumns gates and as many ups; `kept`: y' is written, too, as gate_up may be.
template <int kWarps, int kColumns, bool kKeeps>
__global__ void __launch_bounds__(kWarps * 32, 512 / (kWarps * 32))
    add_swiglu_kernel(bf* a, bf* kept, const bf* gate_up, const bf* u, const BlockWeights<bf> w, float scale,
                      int64_t M, int64_t F, int K, int column_tiles) {
  __shared__ __align__(16) bf staged[2][kColumns][kPitch];
  launch_dependents();
  const auto [m0, n0] = place_of_thread<kWarps, 1, kColumns>(column_tiles);
  TileProduct<1, kColumns, BlockWeights<bf>> gate{staged[0], u, w, K, n0}, up{staged[1], u, w, K, F + n0};
  gate.begin(F);
  up.begin(2 * F);
  wait_for_previous_kernel();
  RawGroup<bf, kGroup> gates[2][kColumns / 32], ups[2][kColumns / 32];
  const bool eights = F % kGroup == 0;
  for_each_group<1, kColumns>(m0, n0, M, F, [&](int, int half, int c, int64_t m, int64_t n, int count) {
    load_raw(gates[half][c], gate_up + m * 2 * F + n, count, eights);
    load_raw(ups[half][c], gate_up + m * 2 * F + F + n, count, eights);
  });
  gate.multiply(m0, M);
  up.multiply(m0, M);
  for_each_group<1, kColumns>(m0, n0, M, F, [&](int, int half, int c, int64_t m, int64_t n, int count) {
    float of[kGroup];
    RawGroup<bf, kGroup>&g = gates[half][c], &x = ups[half][c];
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      g.at[e] = cn::store<bf>(gate.add_to(cn::load(g.at[e]), scale, 0, half, c, n, e));
      x.at[e] = cn::store<bf>(up.add_to(cn::load(x.at[e]), scale, 0, half, c, F + n, e));
      of[e] = cn::swiglu(cn::load(g.at[e]), cn::load(x.at[e]));
    }
    store_group(a + m * F + n, of, count, eights);
    if constexpr (kKeeps) {
      store_raw(kept + m * 2 * F + n, g, count, eights);
      store_raw(kept + m * 2 * F + F + n, x, count, eights);
    }
  });
}

/// The gradient of gate_up, where gate_up may be, from da + du A.
template <int kWarps, int kColumns>
__global__ void __launch_bounds__(kWarps * 32, 512 / (kWarps * 32))
    add_swiglu_backward_kernel(bf* dgate_up, const bf* da, const bf* gate_up, const bf* du,
                               const TurnedWeights<bf> w, int64_t M, int64_t F, int K, int column_tiles) {
  __shared__ __align__(16) bf staged[kColumns][kPitch];
  launch_dependents();
  const auto [m0, n0] = place_of_thread<kWarps, 1, kColumns>(column_tiles);
  TileProduct<1, kColumns, TurnedWeights<bf>> z{staged, du, w, K, n0};
  z.begin(F);
  wait_for_previous_kernel();
  RawGroup<bf, kGroup> upstream[2][kColumns / 32], gates[2][kColumns / 32], ups[2][kColumns / 32];
  const bool eights = F % kGroup == 0;
  for_each_group<1, kColumns>(m0, n0, M, F, [&](int, int half, int c, int64_t m, int64_t n, int count) {
    load_raw(upstream[half][c], da + m * F + n, count, eights);
    load_raw(gates[half][c], gate_up + m * 2 * F + n, count, eights);
    load_raw(ups[half][c], gate_up + m * 2 * F + F + n, count, eights);
  });
  z.multiply(m0, M);
  for_each_group<1, kColumns>(m0, n0, M, F, [&](int, int half, int c, int64_t m, int64_t n, int count) {
    RawGroup<bf, kGroup>&g = gates[half][c], &x = ups[half][c];
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      const float d = z.add_to(cn::load(upstream[half][c].at[e]), 1, 0, half, c, n, e);
      const cn::SwigluGradient of =
          cn::swiglu_gradient(cn::load(cn::store<bf>(d)), cn::load(g.at[e]), cn::load(x.at[e]));
      g.at[e] = cn::store<bf>(of.gate);
      x.at[e] = cn::store<bf>(of.up);
    }
    store_raw(dgate_up + m * 2 * F + n, g, count, eights);
    store_raw(dgate_up + m * 2 * F + F + n, x, count, eights);
  });
}

// ---- the same in fp32, an output a thread: one chain of fused multiply-adds

template <class Weights>
TEMPER_DEVICE float added(float y, const float* u, const Weights& w, float scale, int64_t n, int K) {
  if (!w.has(n)) return y;
  const Steps steps = w.steps(n, n + 1);
  float sum = 0;
  for (int k = steps.begin; k < min(steps.end, K); ++k) sum = __fmaf_rn(u[k], w.at(n, k), sum);
  return __fmaf_rn(scale, sum, y);
}

template <class Weights>
__global__ void add_fp32_product_kernel(float* y, const float* u, const Weights w, float scale, int64_t M,
                                        int64_t N, int K) {
  begin_kernel();
  const int64_t at = blockIdx.x * int64_t{kThreads} + threadIdx.x, m = at / N;
  if (m < M) y[at] = added(y[at], u + m * K, w, scale, at % N, K);
}

/// `kept`: y', or null.
__global__ void add_fp32_swiglu_kernel(float* a, float* kept, const float* gate_up, const float* u,
                                       const BlockWeights<float> w, float scale, int64_t M, int64_t F,
                                       int K) {
  begin_kernel();
  const int64_t at = blockIdx.x * int64_t{kThreads} + threadIdx.x, m = at / F, gate = m * 2 * F + at % F;
  if (m >= M) return;
  const float g = added(gate_up[gate], u + m * K, w, scale, at % F, K),
              x = added(gate_up[gate + F], u + m * K, w, scale, F + at % F, K);
  a[at] = cn::swiglu(g, x);
  if (kept == nullptr) return;
  kept[gate] = g;
  kept[gate + F] = x;
}

__global__ void add_fp32_swiglu_backward_kernel(float* dgate_up, const float* da, const float* gate_up,
                                                const float* du, const TurnedWeights<float> w, int64_t M,
                                                int64_t F, int K) {
  begin_kernel();
  const int64_t at = blockIdx.x * int64_t{kThreads} + threadIdx.x, m = at / F, gate = m * 2 * F + at % F;
  if (m >= M) return;
  const cn::SwigluGradient of =
      cn::swiglu_gradient(added(da[at], du + m * K, w, 1, at % F, K), gate_up[gate], gate_up[gate + F]);
  dgate_up[gate] = of.gate;
  dgate_up[gate + F] = of.up;
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

template <class S>
BlockWeights<S> block_weights(const LowProduct& low) {
  return {data_of<S>(low.b), low.blocks, static_cast<int>(low.b.dim(1))};
}
template <class S>
TurnedWeights<S> turned_weights(const CTensor& a) {
  return {data_of<S>(a), a.dim(1), static_cast<int>(a.dim(0))};
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

/// run(warps, columns) with the tiles that suit so many rows, as constants.
template <class Run>
void with_swiglu_tiles(int64_t rows, Run&& run) {
  if (rows <= kSkinnyRows)
    run(std::integral_constant<int, 4>(), std::integral_constant<int, 32>());
  else
    run(std::integral_constant<int, 8>(), std::integral_constant<int, 64>());
}

/// `kept`: y', or null; gate_up may be there.
template <bool kKeeps>
void add_swiglu(Ctx& ctx, const Tensor& a, void* kept, const CTensor& gate_up, const LowProduct& low) {
  const int64_t M = a.dim(0), F = a.dim(1);
  const int K = static_cast<int>(low.u.dim(1));
  const auto scale = static_cast<float>(low.scale);
  if (a.dtype == DType::f32)
    return launch(ctx.lane, add_fp32_swiglu_kernel, blocks_for(a.size(), kThreads), kThreads, 0,
                  data_of<float>(a), static_cast<float*>(kept), data_of<float>(gate_up),
                  data_of<float>(low.u), block_weights<float>(low), scale, M, F, K);
  with_swiglu_tiles(M, [&](auto warps, auto columns) {
    constexpr int kWarps = decltype(warps)::value, kColumns = decltype(columns)::value;
    const int tiles = blocks_for(F, kColumns);
    launch(ctx.lane, add_swiglu_kernel<kWarps, kColumns, kKeeps>,
           blocks_for(int64_t{blocks_for(M, kWarps * 16)} * tiles, 1), kWarps * 32, 0, data_of<bf>(a),
           static_cast<bf*>(kept), data_of<bf>(gate_up), data_of<bf>(low.u), block_weights<bf>(low), scale, M,
           F, K, tiles);
  });
}

}  // namespace

void adapter_forward(Ctx& ctx, Tensor y, LowProduct low) {
  add_product(ctx, y, low.u, low.scale, [&](auto s) { return block_weights<decltype(s)>(low); });
}

void adapter_backward_input(Ctx& ctx, Tensor dx, CTensor du, CTensor a) {
  add_product(ctx, dx, du, 1, [&](auto s) { return turned_weights<decltype(s)>(a); });
}

void adapter_swiglu_forward(Ctx& ctx, Tensor a, CTensor gate_up, LowProduct low) {
  add_swiglu<false>(ctx, a, nullptr, gate_up, low);
}

void adapter_swiglu_forward_kept(Ctx& ctx, Tensor a, Tensor gate_up, LowProduct low) {
  add_swiglu<true>(ctx, a, gate_up.raw(), gate_up, low);
}

void adapter_swiglu_backward(Ctx& ctx, Tensor dgate_up, Tensor da, CTensor du, CTensor a, CTensor gate_up) {
  const int64_t M = da.dim(0), F = da.dim(1);
  const int K = static_cast<int>(du.dim(1));
  if (da.dtype == DType::f32)
    return launch(ctx.lane, add_fp32_swiglu_backward_kernel, blocks_for(da.size(), kThreads), kThreads, 0,
                  data_of<float>(dgate_up), data_of<float>(da), data_of<float>(gate_up), data_of<float>(du),
                  turned_weights<float>(a), M, F, K);
  with_swiglu_tiles(M, [&](auto warps, auto columns) {
    constexpr int kWarps = decltype(warps)::value, kColumns = decltype(columns)::value;
    const int tiles = blocks_for(F, kColumns);
    launch(ctx.lane, add_swiglu_backward_kernel<kWarps, kColumns>,
           blocks_for(int64_t{blocks_for(M, kWarps * 16)} * tiles, 1), kWarps * 32, 0, data_of<bf>(dgate_up),
           data_of<bf>(da), data_of<bf>(gate_up), data_of<bf>(du), turned_weights<bf>(a), M, F, K, tiles);
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

}  // namespace temper::cuda
