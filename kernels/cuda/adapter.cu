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
  TEMPER_DEVICE bool has_all(int64_t begin, int64_t end) const {
    int64_t rows = 0;
#pragma unroll
    for (int i = 0; i < AdapterBlocks::kMost; ++i)
      if (i < blocks.count)
        rows += max(int64_t{0}, min(end, blocks.to[i] + blocks.rows[i]) - max(begin, blocks.to[i]));
    return rows == end - begin;
  }
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
  TEMPER_DEVICE bool has_all(int64_t, int64_t) const { return true; }
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

/// Outputs of a block of threads: kInside where all of them exist and rows are whole groups.
template <bool kInside>
struct Extent {
  int64_t M, N;

  TEMPER_DEVICE bool groups() const { return kInside || N % kGroup == 0; }
  TEMPER_DEVICE bool has(int64_t m, int64_t n) const { return kInside || (m < M && n < N); }
  TEMPER_DEVICE int count(int64_t n) const {
    return kInside ? kGroup : static_cast<int>(min(N - n, int64_t{kGroup}));
  }
};

/// A product u w of a tile: 16 rows by each warp, kColumns outputs from n0 on. A thread has the columns 8 t
/// to 8 t + 7 of every 32. kAhead steps of u are read at once.
template <int kColumns, int kAhead, class Weights>
struct TileProduct {
  bf (*staged)[kPitch];
  const bf* u;
  Weights w;
  int K;
  int64_t m0, n0, M, N;  // m0: the thread's row in a group of 8
  Steps steps = w.steps(n0, min(n0 + kColumns, N));
  uint32_t added[kColumns / 32] = {};  // bits of the columns of each group that something is added to
  uint32_t read[kAhead][4] = {};
  float sum[kColumns / 8][4] = {};

  /// Reads nothing but weights, by all threads.
  TEMPER_DEVICE void stage_first() {
    stage<kColumns>(staged, w, n0, steps.begin, min(kStaged, steps.end - steps.begin));
    const bool whole = w.has_all(n0, min(n0 + kColumns, N));
#pragma unroll
    for (int c = 0; c < kColumns / 32; ++c) {
      added[c] = (1u << kGroup) - 1;
      if (!whole) find_added(c);
    }
  }
  TEMPER_DEVICE void find_added(int c) {
    added[c] = 0;
#pragma unroll 1
    for (int e = 0; e < kGroup; ++e)
      added[c] |= static_cast<uint32_t>(w.has(n0 + c * 32 + (threadIdx.x & 3) * kGroup + e)) << e;
  }

  /// Reads the steps of u from k0 on, zero behind the last. Rows beyond M are the last one's: nobody looks at
  /// their sums.
  TEMPER_DEVICE void fetch(int k0) {
    if (K % 2 == 0)
      fetch_pairs(k0, [](const bf* row, int k, int) { return *reinterpret_cast<const uint32_t*>(row + k); });
    else
      fetch_pairs(k0,
                  [](const bf* row, int k, int end) { return product::pair(row, 1, k, end, true); });
  }
  template <class Pair>
  TEMPER_DEVICE void fetch_pairs(int k0, Pair&& pair) {
    const int t = threadIdx.x & 3, end = min(K, steps.end);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bf* row = u + min(m0 + half * 8, M - 1) * K;
#pragma unroll
      for (int s = 0; s < kAhead; ++s)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int k = k0 + s * kStep + 2 * t + i * 8;
          read[s][i * 2 + half] = k < end ? pair(row, k, end) : 0;
        }
    }
  }
  TEMPER_DEVICE void fetch_first() { fetch(steps.begin); }

  TEMPER_DEVICE void multiply_step(const uint32_t (&a)[4], int k) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const bf* at = &staged[j * 8 + g][k + 2 * t];
      mma16816(sum[j], a, *reinterpret_cast<const uint32_t*>(at), *reinterpret_cast<const uint32_t*>(at + 8));
    }
  }
  /// By all threads, after stage_first() and fetch_first().
  TEMPER_DEVICE void multiply() {
    for (int k0 = steps.begin; k0 < steps.end; k0 += kStaged) {
      const int depth = min(kStaged, steps.end - k0);
      if (k0 > steps.begin) {
        __syncthreads();
        stage<kColumns>(staged, w, n0, k0, depth);
      }
      __syncthreads();
      for (int k = 0; k < depth; k += kAhead * kStep) {
        if (k0 + k > steps.begin) fetch(k0 + k);
#pragma unroll
        for (int s = 0; s < kAhead; ++s)
          if (k + s * kStep < depth) multiply_step(read[s], k + s * kStep);
      }
    }
  }
  /// What is added to column e of a thread's group.
  TEMPER_DEVICE float add_to(float y, float scale, int half, int c, int e) const {
    return added[c] >> e & 1 ? __fmaf_rn(scale, sum[c * 4 + e / 2][half * 2 + e % 2], y) : y;
  }
};

/// f(half, c, m, n, count): the groups of a thread, `count` columns from n on of a row m.
template <int kColumns, bool kInside, class F>
TEMPER_DEVICE void for_each_group(int64_t m0, int64_t n0, const Extent<kInside>& of, F&& f) {
  const int t = threadIdx.x & 3;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int c = 0; c < kColumns / 32; ++c) {
      const int64_t m = m0 + half * 8, n = n0 + c * 32 + t * 8;
      if (of.has(m, n)) f(half, c, m, n, of.count(n));
    }
}

/// A block of threads has kWarps * 16 rows and kColumns outputs. With few rows there is one wave of blocks,
/// which stage weights before they wait for the kernel before; with many, weights and rows are on their way
/// at once.
template <int kWarps, int kColumns, bool kFew>
struct Form {
  static constexpr int kThreads = kWarps * 32, kBlocks = 512 / kThreads;

  /// run(extent, m0, n0): m0 is the thread's row in a group of 8, n0 the first column of the block.
  template <class Run>
  static TEMPER_DEVICE void on_tile(int64_t M, int64_t N, int column_tiles, Run&& run) {
    const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32;
    const int64_t first = blockIdx.x / column_tiles * int64_t{kWarps * 16},
                  n0 = blockIdx.x % column_tiles * int64_t{kColumns}, m0 = first + warp * 16 + (lane >> 2);
    if (first + kWarps * 16 <= M && n0 + kColumns <= N && N % kGroup == 0)
      run(Extent<true>{M, N}, m0, n0);
    else
      run(Extent<false>{M, N}, m0, n0);
  }
  /// The sums of products; `load` reads what they are added to.
  template <class Load, class... Products>
  static TEMPER_DEVICE void multiply(Load&& load, Products&... products) {
    if constexpr (kFew) (products.stage_first(), ...);
    wait_for_previous_kernel();
    load();
    (products.fetch_first(), ...);
    if constexpr (!kFew) (products.stage_first(), ...);
    (products.multiply(), ...);
  }
};

/// y = round(fma(scale, u w, y)).
template <class F, int kColumns, class Y, class Weights>
__global__ void __launch_bounds__(F::kThreads, F::kBlocks)
    add_product_kernel(Y* y, const bf* u, const Weights w, float scale, int64_t M, int64_t N, int K,
                       int column_tiles) {
  __shared__ __align__(16) bf staged[kColumns][kPitch];
  launch_dependents();
  F::on_tile(M, N, column_tiles, [&](const auto of, int64_t m0, int64_t n0) {
    TileProduct<kColumns, 4, Weights> z{staged, u, w, K, m0, n0, M, N};
    if (z.steps.end == 0) return wait_for_previous_kernel();
    RawGroup<Y, kGroup> held[2][kColumns / 32];
    const auto load = [&] {
      for_each_group<kColumns>(m0, n0, of, [&](int half, int c, int64_t m, int64_t n, int count) {
        load_raw(held[half][c], y + m * N + n, count, of.groups());
      });
    };
    F::multiply(load, z);
    for_each_group<kColumns>(m0, n0, of, [&](int half, int c, int64_t m, int64_t n, int count) {
      float sum[kGroup];
#pragma unroll
      for (int e = 0; e < kGroup; ++e) sum[e] = z.add_to(cn::load(held[half][c].at[e]), scale, half, c, e);
      store_group(y + m * N + n, sum, count, of.groups());
    });
  });
}

/// a = SwiGLU of y' over kColumns gates and as many ups; `kept`: y' is written, too, as gate_up may be.
template <class F, int kColumns, bool kKeeps>
__global__ void __launch_bounds__(F::kThreads, F::kBlocks)
    add_swiglu_kernel(bf* a, bf* kept, const bf* gate_up, const bf* u, const BlockWeights<bf> w, float scale,
                      int64_t M, int64_t N, int K, int column_tiles) {
  __shared__ __align__(16) bf staged[2][kColumns][kPitch];
  launch_dependents();
  F::on_tile(M, N, column_tiles, [&](const auto of, int64_t m0, int64_t n0) {
    TileProduct<kColumns, 2, BlockWeights<bf>> gate{staged[0], u, w, K, m0, n0, M, N},
        up{staged[1], u, w, K, m0, N + n0, M, 2 * N};
    RawGroup<bf, kGroup> gates[2][kColumns / 32], ups[2][kColumns / 32];
    const auto load = [&] {
      for_each_group<kColumns>(m0, n0, of, [&](int half, int c, int64_t m, int64_t n, int count) {
        load_raw(gates[half][c], gate_up + m * 2 * N + n, count, of.groups());
        load_raw(ups[half][c], gate_up + m * 2 * N + N + n, count, of.groups());
      });
    };
    F::multiply(load, gate, up);
    for_each_group<kColumns>(m0, n0, of, [&](int half, int c, int64_t m, int64_t n, int count) {
      float out[kGroup];
      RawGroup<bf, kGroup>&g = gates[half][c], &x = ups[half][c];
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        g.at[e] = cn::store<bf>(gate.add_to(cn::load(g.at[e]), scale, half, c, e));
        x.at[e] = cn::store<bf>(up.add_to(cn::load(x.at[e]), scale, half, c, e));
        out[e] = cn::swiglu(cn::load(g.at[e]), cn::load(x.at[e]));
      }
      store_group(a + m * N + n, out, count, of.groups());
      if constexpr (kKeeps) {
        store_raw(kept + m * 2 * N + n, g, count, of.groups());
        store_raw(kept + m * 2 * N + N + n, x, count, of.groups());
      }
    });
  });
}

/// The gradient of gate_up, where gate_up may be, from da + du A.
template <class F, int kColumns>
__global__ void __launch_bounds__(F::kThreads, F::kBlocks)
    add_swiglu_backward_kernel(bf* dgate_up, const bf* da, const bf* gate_up, const bf* du,
                               const TurnedWeights<bf> w, int64_t M, int64_t N, int K, int column_tiles) {
  __shared__ __align__(16) bf staged[kColumns][kPitch];
  launch_dependents();
  F::on_tile(M, N, column_tiles, [&](const auto of, int64_t m0, int64_t n0) {
    TileProduct<kColumns, 2, TurnedWeights<bf>> z{staged, du, w, K, m0, n0, M, N};
    RawGroup<bf, kGroup> upstream[2][kColumns / 32], gates[2][kColumns / 32], ups[2][kColumns / 32];
    const auto load = [&] {
      for_each_group<kColumns>(m0, n0, of, [&](int half, int c, int64_t m, int64_t n, int count) {
        load_raw(upstream[half][c], da + m * N + n, count, of.groups());
        load_raw(gates[half][c], gate_up + m * 2 * N + n, count, of.groups());
        load_raw(ups[half][c], gate_up + m * 2 * N + N + n, count, of.groups());
      });
    };
    F::multiply(load, z);
    for_each_group<kColumns>(m0, n0, of, [&](int half, int c, int64_t m, int64_t n, int count) {
      RawGroup<bf, kGroup>&g = gates[half][c], &x = ups[half][c];
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        const float d = z.add_to(cn::load(upstream[half][c].at[e]), 1, half, c, e);
        const cn::SwigluGradient grad =
            cn::swiglu_gradient(cn::load(cn::store<bf>(d)), cn::load(g.at[e]), cn::load(x.at[e]));
        g.at[e] = cn::store<bf>(grad.gate);
        x.at[e] = cn::store<bf>(grad.up);
      }
      store_raw(dgate_up + m * 2 * N + n, g, count, of.groups());
      store_raw(dgate_up + m * 2 * N + N + n, x, count, of.groups());
    });
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

/// run(form, columns) with the tiles that suit so many rows.
template <class Run>
void with_form(int64_t rows, Run&& run) {
  if (rows <= kSkinnyRows)
    run(Form<4, 32, true>(), std::integral_constant<int, 32>());
  else
    run(Form<8, 64, false>(), std::integral_constant<int, 64>());
}
template <class F>
int tiles_of(int64_t M, int columns) {
  return blocks_for(int64_t{blocks_for(M, F::kThreads / 2)} * columns, 1);
}

template <class Weights>
void add_bf16_product(Ctx& ctx, const Tensor& y, const CTensor& u, const Weights& w, double scale) {
  const int64_t M = y.dim(0), N = y.dim(1);
  with_form(M, [&](auto form, auto columns) {
    using F = decltype(form);
    constexpr int kColumns = decltype(columns)::value;
    const int tiles = blocks_for(N, kColumns);
    dispatch_gpu_storage(y.dtype, [&](auto s) {
      using Y = decltype(s);
      launch(ctx.lane, add_product_kernel<F, kColumns, Y, Weights>, tiles_of<F>(M, tiles), F::kThreads, 0,
             data_of<Y>(y), data_of<bf>(u), w, static_cast<float>(scale), M, N, static_cast<int>(u.dim(1)),
             tiles);
    });
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
  } else {
    add_bf16_product(ctx, y, u, weights(bf{}), scale);
  }
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
  with_form(M, [&](auto form, auto columns) {
    using Of = decltype(form);
    constexpr int kColumns = decltype(columns)::value;
    const int tiles = blocks_for(F, kColumns);
    launch(ctx.lane, add_swiglu_kernel<Of, kColumns, kKeeps>, tiles_of<Of>(M, tiles), Of::kThreads, 0,
           data_of<bf>(a), static_cast<bf*>(kept), data_of<bf>(gate_up), data_of<bf>(low.u),
           block_weights<bf>(low), scale, M, F, K, tiles);
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
  with_form(M, [&](auto form, auto columns) {
    using Of = decltype(form);
    constexpr int kColumns = decltype(columns)::value;
    const int tiles = blocks_for(F, kColumns);
    launch(ctx.lane, add_swiglu_backward_kernel<Of, kColumns>, tiles_of<Of>(M, tiles), Of::kThreads, 0,
           data_of<bf>(dgate_up), data_of<bf>(da), data_of<bf>(gate_up), data_of<bf>(du),
           turned_weights<bf>(a), M, F, K, tiles);
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
