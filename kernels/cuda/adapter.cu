// What adapters take beside linear products: memory-bound, 16 bytes a thread where rows allow it.

#include <algorithm>

#include "kernels/cuda/adapter_tiles.cuh"
#include "kernels/cuda/scratch/linear.h"

namespace temper::cuda {
namespace {

using namespace adapter;
constexpr int kThreads = 256;

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

template <class F, class Y>
using SharedOfSum = SharedOf<F, Y, 1, 1>;
template <class F>
using SharedOfSwiglu = SharedOf<F, bf, 2, 2>;
template <class F>
using SharedOfSwigluBackward = SharedOf<F, bf, 3, 1>;

/// y = round(fma(scale, u w, y)).
template <class F, class Y, class Weights>
__global__ void __launch_bounds__(F::kThreads, F::kBlocks)
    add_product_kernel(Y* y, const bf* u, const Weights w, float scale, int64_t M, int64_t N, int K) {
  auto& shared = shared_memory<SharedOfSum<F, Y>>();
  launch_dependents();
  const Tiles<F> tiles{M, N};
  TileProduct<F, 4, Weights> z{shared.staged[0], u, w, K, M, N};
  const auto ask = [&](int stage, const Tile& tile) {
    tiles.each_group(tile, [&](int group, int64_t m, int64_t n, int count, bool whole) {
      shared.ring.ask(stage, 0, group, y + m * N + n, count, whole);
    });
  };
  const auto finish = [&](int stage, const Tile& tile) {
    if (z.steps.end == 0) return;  // nothing is added
    tiles.each_group(tile, [&](int group, int64_t m, int64_t n, int count, bool whole) {
      const RawGroup<Y, kGroup> held = shared.ring.at(stage, 0, group);
      float sum[kGroup];
#pragma unroll
      for (int e = 0; e < kGroup; ++e) sum[e] = z.add_to(cn::load(held.at[e]), scale, group, e);
      store_group(y + m * N + n, sum, count, whole);
    });
  };
  make_tiles<F>(tiles, ask, finish, z);
}

/// a = SwiGLU of y' over as many gates and ups; `kept`: y' is written, too, as gate_up may be.
template <class F, bool kKeeps>
__global__ void __launch_bounds__(F::kThreads, F::kBlocks)
    add_swiglu_kernel(bf* a, bf* kept, const bf* gate_up, const bf* u, const BlockWeights<bf> w, float scale,
                      int64_t M, int64_t N, int K) {
  auto& shared = shared_memory<SharedOfSwiglu<F>>();
  launch_dependents();
  const Tiles<F> tiles{M, N};
  TileProduct<F, 2, BlockWeights<bf>> gate{shared.staged[0], u, w, K, M, 2 * N},
      up{shared.staged[1], u, w, K, M, 2 * N, N};
  const auto ask = [&](int stage, const Tile& tile) {
    tiles.each_group(tile, [&](int group, int64_t m, int64_t n, int count, bool whole) {
      const bf* const from = gate_up + m * 2 * N + n;
      shared.ring.ask(stage, 0, group, from, count, whole);
      shared.ring.ask(stage, 1, group, from + N, count, whole);
    });
  };
  const auto finish = [&](int stage, const Tile& tile) {
    tiles.each_group(tile, [&](int group, int64_t m, int64_t n, int count, bool whole) {
      float out[kGroup];
      RawGroup<bf, kGroup> g = shared.ring.at(stage, 0, group), x = shared.ring.at(stage, 1, group);
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        g.at[e] = cn::store<bf>(gate.add_to(cn::load(g.at[e]), scale, group, e));
        x.at[e] = cn::store<bf>(up.add_to(cn::load(x.at[e]), scale, group, e));
        out[e] = cn::swiglu(cn::load(g.at[e]), cn::load(x.at[e]));
      }
      store_group(a + m * N + n, out, count, whole);
      if constexpr (kKeeps) {
        store_raw(kept + m * 2 * N + n, g, count, whole);
        store_raw(kept + m * 2 * N + N + n, x, count, whole);
      }
    });
  };
  make_tiles<F>(tiles, ask, finish, gate, up);
}

/// The gradient of gate_up, where gate_up may be, from da + du A.
template <class F>
__global__ void __launch_bounds__(F::kThreads, F::kBlocks)
    add_swiglu_backward_kernel(bf* dgate_up, const bf* da, const bf* gate_up, const bf* du,
                               const TurnedWeights<bf> w, int64_t M, int64_t N, int K) {
  auto& shared = shared_memory<SharedOfSwigluBackward<F>>();
  launch_dependents();
  const Tiles<F> tiles{M, N};
  TileProduct<F, 2, TurnedWeights<bf>> z{shared.staged[0], du, w, K, M, N};
  const auto ask = [&](int stage, const Tile& tile) {
    tiles.each_group(tile, [&](int group, int64_t m, int64_t n, int count, bool whole) {
      const bf* const from = gate_up + m * 2 * N + n;
      shared.ring.ask(stage, 0, group, da + m * N + n, count, whole);
      shared.ring.ask(stage, 1, group, from, count, whole);
      shared.ring.ask(stage, 2, group, from + N, count, whole);
    });
  };
  const auto finish = [&](int stage, const Tile& tile) {
    tiles.each_group(tile, [&](int group, int64_t m, int64_t n, int count, bool whole) {
      const RawGroup<bf, kGroup> upstream = shared.ring.at(stage, 0, group);
      RawGroup<bf, kGroup> g = shared.ring.at(stage, 1, group), x = shared.ring.at(stage, 2, group);
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        const float d = z.add_to(cn::load(upstream.at[e]), 1, group, e);
        const cn::SwigluGradient grad =
            cn::swiglu_gradient(cn::load(cn::store<bf>(d)), cn::load(g.at[e]), cn::load(x.at[e]));
        g.at[e] = cn::store<bf>(grad.gate);
        x.at[e] = cn::store<bf>(grad.up);
      }
      store_raw(dgate_up + m * 2 * N + n, g, count, whole);
      store_raw(dgate_up + m * 2 * N + N + n, x, count, whole);
    });
  };
  make_tiles<F>(tiles, ask, finish, z);
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

/// run(form) with the tiles that suit so many rows.
template <class Run>
void with_form(int64_t rows, Run&& run) {
  if (rows <= kSkinnyRows)
    run(Form<4, 32, true>());
  else
    run(Form<8, 64, false>());
}
/// The kernel over all tiles of M rows and N columns.
template <class F, class Shared, class... Parameters, class... Arguments>
void launch_tiles(Ctx& ctx, void (*kernel)(Parameters...), int64_t M, int64_t N, Arguments&&... arguments) {
  const int tiles = blocks_for(int64_t{blocks_for(M, F::kRows)} * blocks_for(N, F::kColumns), 1);
  const int wave = libraries_of(ctx).multiprocessors() * F::kBlocks;
  allow_shared_memory(kernel, sizeof(Shared));
  launch(ctx.lane, kernel, F::kFew ? tiles : std::min(tiles, wave), F::kThreads, sizeof(Shared),
         arguments...);
}

template <class Weights>
void add_bf16_product(Ctx& ctx, const Tensor& y, const CTensor& u, const Weights& w, double scale) {
  const int64_t M = y.dim(0), N = y.dim(1);
  with_form(M, [&](auto form) {
    using F = decltype(form);
    dispatch_gpu_storage(y.dtype, [&](auto s) {
      using Y = decltype(s);
      launch_tiles<F, SharedOfSum<F, Y>>(ctx, add_product_kernel<F, Y, Weights>, M, N, data_of<Y>(y),
                                         data_of<bf>(u), w, static_cast<float>(scale), M, N,
                                         static_cast<int>(u.dim(1)));
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
  with_form(M, [&](auto form) {
    using Of = decltype(form);
    launch_tiles<Of, SharedOfSwiglu<Of>>(ctx, add_swiglu_kernel<Of, kKeeps>, M, F, data_of<bf>(a),
                                         static_cast<bf*>(kept), data_of<bf>(gate_up), data_of<bf>(low.u),
                                         block_weights<bf>(low), scale, M, F, K);
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
  with_form(M, [&](auto form) {
    using Of = decltype(form);
    launch_tiles<Of, SharedOfSwigluBackward<Of>>(ctx, add_swiglu_backward_kernel<Of>, M, F,
                                                 data_of<bf>(dgate_up), data_of<bf>(da), data_of<bf>(gate_up),
                                                 data_of<bf>(du), turned_weights<bf>(a), M, F, K);
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
