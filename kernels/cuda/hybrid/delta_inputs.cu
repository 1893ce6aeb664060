// Convolution, unit vectors and gates of a projected row in one pass, and back through the first two. A head
// of q or k lies in neighbouring threads of one warp, which have its sums as a team of groups of eight has
// them.

#include <cmath>

#include "kernels/cuda/hybrid/conv.h"
#include "kernels/cuda/hybrid/gates.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int kTaps = 4;

/// The columns of q and k, heads of so many groups.
struct UnitColumns {
  int query_end, end, groups;
  float q_scale;

  TEMPER_DEVICE float scale(int column) const { return column < query_end ? q_scale : 1.f; }

  /// The sum over the head of a thread's N elements: add(sum) adds them, ascending.
  template <int N, class Add>
  TEMPER_DEVICE float head_sum(Add&& add) const {
    constexpr int kLanes = kGroup / N;  // of a group
    const int lane = static_cast<int>(threadIdx.x) % 32, lanes = groups * kLanes;
    const unsigned head = (lanes == 32 ? ~0u : (1u << lanes) - 1u) << (lane & ~(lanes - 1));
    float sum = add(0.f);
    if constexpr (kLanes == 2) {
      const float before = __shfl_xor_sync(head, sum, 1);
      if (lane % 2 == 1) sum = add(before);
    }
    for (int w = lanes / 2; w >= kLanes; w /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(head, sum, w));
    if constexpr (kLanes == 2) sum = __shfl_sync(head, sum, lane | 1);
    return sum;
  }
};

/// Rows of unit vectors, and the gates in blocks behind them.
template <class S>
struct UnitRows {
  static constexpr bool kGates = true;
  UnitColumns columns;
  DeltaGates<S> gates;
  int first_block;

  int take_blocks(int first) {
    first_block = first;
    return blocks_for(int64_t{gates.rows.tokens} * gates.rows.heads, kConvThreads);
  }
  TEMPER_DEVICE void make_gates() const {
    wait_for_previous_kernel();
    gates.make((static_cast<int>(blockIdx.x) - first_block) * kConvThreads + static_cast<int>(threadIdx.x));
  }
  template <class, int N>
  TEMPER_DEVICE void finish(float (&v)[N], const Channels<N>& own) const {
    if (own.first >= columns.end) return;
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = cn::load(cn::store<S>(v[i]));
    const float r = cn::unit_scale(columns.head_sum<N>([&](float sum) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum = cn::add_square(sum, v[i]);
      return sum;
    }));
    const float scale = columns.scale(own.first);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = cn::unit_value(v[i], r, scale);
  }
};

/// Back from the gradients of unit vectors to those of rows after the convolution, rounded to storage.
struct UnitRowsBackward {
  UnitColumns columns;

  template <class S, int N>
  TEMPER_DEVICE void finish_backward(float (&upstream)[N], const float (&c)[N],
                                     const Channels<N>& own) const {
    if (own.first >= columns.end) return;
    float n[N];
#pragma unroll
    for (int i = 0; i < N; ++i) n[i] = cn::load(cn::store<S>(cn::silu(c[i])));
    const float r = cn::unit_scale(columns.head_sum<N>([&](float sum) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum = cn::add_square(sum, n[i]);
      return sum;
    }));
    const float scale = columns.scale(own.first);
#pragma unroll
    for (int i = 0; i < N; ++i) n[i] = __fmul_rn(n[i], r), upstream[i] = __fmul_rn(upstream[i], scale);
    const float dot = columns.head_sum<N>([&](float sum) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum = __fmaf_rn(n[i], upstream[i], sum);
      return sum;
    });
#pragma unroll
    for (int i = 0; i < N; ++i)
      upstream[i] = cn::load(cn::store<S>(cn::unit_gradient(upstream[i], n[i], dot, r)));
  }
};

UnitColumns unit_columns(const DeltaShape& s) {
  return {static_cast<int>(s.key_width()), static_cast<int>(2 * s.key_width()),
          static_cast<int>(s.key_dim / kGroup), 1.f / std::sqrt(static_cast<float>(s.key_dim))};
}

}  // namespace

void delta_inputs_forward(Ctx& ctx, Tensor qkv, Tensor beta, Tensor g, CTensor x, CTensor w, CTensor a_log,
                          CTensor dt_bias, CTensor cu_seqlens, DeltaShape shape) {
  if (!is_unit_conv(shape, x.dim(1), w.dim(1), 1)) {
    causal_conv_forward(ctx, qkv, x, w, cu_seqlens);
    unit_heads_forward(ctx, qkv, shape);
    return delta_gates_forward(ctx, beta, g, x, a_log, dt_bias, shape);
  }
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    launch_conv<S, kTaps>(
        ctx, qkv, conv_rows<S>(x, w, cu_seqlens, kConvThreads * kGroup, lies_in_groups({qkv}, {})),
        UnitRows<S>{unit_columns(shape), delta_gates_of<S>(beta, g, x, a_log, dt_bias, shape), 0});
  });
}

void delta_inputs_paged(Ctx& ctx, Tensor qkv, Tensor beta, Tensor g, DeltaPages pages, int64_t layer,
                        CTensor x, CTensor w, CTensor a_log, CTensor dt_bias, CTensor cu_seqlens,
                        DeltaShape shape) {
  if (!is_unit_conv(shape, x.dim(1), w.dim(1), 1)) {
    causal_conv_paged(ctx, qkv, pages, layer, x, w, cu_seqlens);
    unit_heads_forward(ctx, qkv, shape);
    return delta_gates_forward(ctx, beta, g, x, a_log, dt_bias, shape);
  }
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    launch_conv<S, kTaps>(
        ctx, qkv, paged_rows<S>(qkv, pages, layer, x, w, cu_seqlens),
        UnitRows<S>{unit_columns(shape), delta_gates_of<S>(beta, g, x, a_log, dt_bias, shape), 0});
  });
}

void delta_conv_backward(Ctx& ctx, Tensor dx, Tensor dw, Tensor dqkv, CTensor x, CTensor w,
                         CTensor cu_seqlens, DeltaShape shape) {
  if (x.dim(0) == 0) return;
  if (!is_unit_conv_backward(shape, x.dim(1), w.dim(1))) {
    ArenaScope scope(ctx.scratch);
    const Tensor convolved = delta_conv_backward_scratch(ctx.scratch, x.dim(0), shape, x.dtype);
    causal_conv_forward(ctx, convolved, x, w, cu_seqlens);
    unit_heads_backward(ctx, dqkv, convolved, shape);
    return causal_conv_backward(ctx, dx, dw, dqkv, x, w, cu_seqlens);
  }
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    launch_conv_backward<S, kTaps>(ctx, dx, dw, dqkv, x, w, cu_seqlens,
                                   UnitRowsBackward{unit_columns(shape)});
  });
}

}  // namespace temper::cuda
