// RMSNorm of rows and of heads, rope, SwiGLU: one pass over memory each.

#include <type_traits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/norm_rows.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int kThreads = 256;
static_assert(kThreads == kNormRowThreads);

/// The turns of a head's pairs lane, lane + 32, ... at the place of a token.
struct HeadTurns {
  static constexpr int kMost = kMaxHeadDim / 2 / 32;
  float cosine[kMost], sine[kMost];

  TEMPER_DEVICE HeadTurns(const RopeTables& rope, int64_t token, int half) {
    if (rope.positions == nullptr) return;
    const int64_t at = int64_t{rope.positions[token]} * half;
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      const int i = static_cast<int>(threadIdx.x & 31) + 32 * j;
      if (i >= half) continue;
      cosine[j] = rope.cosine[at + i];
      sine[j] = rope.sine[at + i];
    }
  }
  template <class S>
  TEMPER_DEVICE void apply(S* y, int half) const {
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      const int i = static_cast<int>(threadIdx.x & 31) + 32 * j;
      if (i >= half) continue;
      const float low = cn::load(y[i]), high = cn::load(y[i + half]);
      y[i] = cn::store<S>(cn::rope_low(low, high, cosine[j], sine[j]));
      y[i + half] = cn::store<S>(cn::rope_high(low, high, cosine[j], sine[j]));
    }
  }
};

/// One warp per token and head of q, k or v (v is copied). Heads of at most 256 elements: a lane holds one
/// group. With pages, k and v go there instead of to y. Everything but x is there before the previous kernel
/// has finished: weights and tables are constant, positions and pages were copied from the host.
template <class S>
__global__ void __launch_bounds__(kThreads)
    head_norm_kernel(S* y, float* rstd, const S* x, const S* wq, const S* wk, const RopeTables rope,
                     const AttentionCall pages, int64_t tokens, HeadShape shape, float eps) {
  static_assert(kMaxHeadDim == 32 * kGroup);
  launch_dependents();
  __shared__ __align__(16) S rows[kThreads / 32][kMaxHeadDim];
  const int heads = shape.q_heads + 2 * shape.kv_heads, normed = shape.q_heads + shape.kv_heads;
  const int64_t item = blockIdx.x * int64_t{kThreads / 32} + threadIdx.x / 32;
  if (item >= tokens * heads) return;
  const int lane = threadIdx.x & 31, head = static_cast<int>(item % heads), width = shape.head_dim;
  const int first = lane * kGroup, left = width - first;
  const int64_t token = item / heads;
  const bool vector = width % kGroup == 0;
  S* out = y + item * width;
  if (pages.paged && head >= shape.q_heads) {
    const bool key = head < normed;
    const int kv_head = head - (key ? shape.q_heads : normed);
    out = static_cast<S*>(key ? pages.pages.keys : pages.pages.values) +
          int64_t{appended_row(pages, static_cast<int>(token), kv_head)} * width;
  }
  const HeadTurns turns(rope, token, width / 2);
  float v[kGroup], weight[kGroup];
  if (left > 0 && head < normed) load_group(weight, (head < shape.q_heads ? wq : wk) + first, left, vector);

  wait_for_previous_kernel();
  if (left > 0) load_group(v, x + item * width + first, left, vector);
  if (head < normed) {
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      if (i < left) squares = cn::add_square(squares, v[i]);
    const float scale = cn::rms_scale(cn::warp_sum(squares), width, eps);
    if (lane == 0) rstd[token * normed + head] = scale;
    S* own = rows[threadIdx.x / 32];
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      if (i < left) own[first + i] = cn::norm_value(cn::store<S>(v[i]), scale, cn::store<S>(weight[i]));
    __syncwarp();
    if (rope.positions != nullptr) turns.apply(own, width / 2);
    __syncwarp();
    if (left > 0) load_group(v, own + first, left, vector);
  }
  if (left > 0) store_group(out + first, v, left, vector);
}

/// One thread per pair (i, i + dh/2) of a head of q or k; kSign -1 turns back.
template <class S, int kSign>
__global__ void __launch_bounds__(kThreads) rope_kernel(S* qkv, const int32_t* positions, const float* cosine,
                                                        const float* sine, int64_t tokens, HeadShape shape) {
  begin_kernel();
  const int half = shape.head_dim / 2, heads = shape.q_heads + shape.kv_heads;
  const int64_t index = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (index >= tokens * heads * half) return;
  const int i = static_cast<int>(index % half);
  const int64_t token = index / half / heads, head = index / half % heads;
  S* x = qkv + (token * (shape.q_heads + 2 * shape.kv_heads) + head) * shape.head_dim + i;
  const int64_t at = int64_t{positions[token]} * half + i;
  const float low = cn::load(x[0]), high = cn::load(x[half]), c = cosine[at],
              s = kSign < 0 ? -sine[at] : sine[at];
  x[0] = cn::store<S>(cn::rope_low(low, high, c, s));
  x[half] = cn::store<S>(cn::rope_high(low, high, c, s));
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(S* a, const S* gate_up, int64_t rows, int64_t width) {
  begin_kernel();
  const int64_t groups = (width + kGroup - 1) / kGroup, item = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (item >= rows * groups) return;
  const int64_t row = item / groups, first = item % groups * kGroup;
  const bool vector = width % kGroup == 0;
  const int n = static_cast<int>(width - first);
  float gate[kGroup], up[kGroup];
  load_group(gate, gate_up + 2 * row * width + first, n, vector);
  load_group(up, gate_up + (2 * row + 1) * width + first, n, vector);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) gate[i] = cn::swiglu(gate[i], up[i]);
  store_group(a + row * width + first, gate, n, vector);
}

/// Block (row, piece of it). Each thread reads its gates and ups before it writes their gradients, which may
/// be in their place.
template <class S>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(S* dgate_up, const S* da, const S* gate_up, int64_t width, unsigned pieces) {
  begin_kernel();
  const int64_t row = blockIdx.x / pieces;
  const int64_t first = (int64_t{blockIdx.x % pieces} * kThreads + threadIdx.x) * kGroup;
  if (first >= width) return;
  const bool vector = width % kGroup == 0;
  const int n = static_cast<int>(min(width - first, int64_t{kGroup}));
  const int64_t gates = 2 * row * width + first, ups = gates + width;
  float upstream[kGroup], gate[kGroup], up[kGroup];
  load_group(upstream, da + row * width + first, n, vector);
  load_group(gate, gate_up + gates, n, vector);
  load_group(up, gate_up + ups, n, vector);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const cn::SwigluGradient d = cn::swiglu_gradient(upstream[i], gate[i], up[i]);
    gate[i] = d.gate;
    up[i] = d.up;
  }
  store_group(dgate_up + gates, gate, n, vector);
  store_group(dgate_up + ups, up, n, vector);
}

/// Without positions: no rotation. Without pages: all of x to y.
void normalize_heads(Ctx& ctx, Tensor y, Tensor rstd, CTensor x, CTensor wq, CTensor wk,
                     const RopeInput& rope, const AttentionCall& pages, AttentionShape shape, double eps) {
  CHECK(shape.head_dim <= kMaxHeadDim, "head_dim {}", shape.head_dim);
  const RopeTables tables = tables_of(rope);
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    const int64_t items = x.dim(0) * (shape.q_heads + 2 * shape.kv_heads);
    launch(ctx.lane, head_norm_kernel<S>, blocks_for(items, kThreads / 32), kThreads, 0, data_of<S>(y),
           rstd.as<float>(), data_of<S>(x), data_of<S>(wq), data_of<S>(wk), tables, pages, x.dim(0),
           heads_of(shape), eps);
  });
}

template <int kSign>
void rotate(Ctx& ctx, Tensor qkv, CTensor positions, CTensor cosine, CTensor sine, AttentionShape shape) {
  dispatch_gpu_storage(qkv.dtype, [&](auto s) {
    using S = decltype(s);
    const int64_t pairs = qkv.dim(0) * (shape.q_heads + shape.kv_heads) * shape.head_dim / 2;
    launch(ctx.lane, rope_kernel<S, kSign>, blocks_for(pairs, kThreads), kThreads, 0, data_of<S>(qkv),
           positions.as<int32_t>(), cosine.as<float>(), sine.as<float>(), qkv.dim(0), heads_of(shape));
  });
}

}  // namespace

void rmsnorm_forward(Ctx& ctx, Tensor y, Tensor rstd, CTensor x, CTensor w, double eps) {
  normalize_rows<cn::PlainWeight>(ctx, y, {}, rstd, x, {}, w, eps);
}

void add_rmsnorm_forward(Ctx& ctx, Tensor y, Tensor sum, Tensor rstd, CTensor a, CTensor b, CTensor w,
                         double eps) {
  normalize_rows<cn::PlainWeight>(ctx, y, sum, rstd, a, b, w, eps);
}

void head_norm_forward(Ctx& ctx, Tensor y, Tensor rstd, CTensor x, CTensor wq, CTensor wk,
                       AttentionShape shape, double eps) {
  normalize_heads(ctx, y, rstd, x, wq, wk, {}, {}, shape, eps);
}

void head_norm_rope_forward(Ctx& ctx, Tensor y, Tensor rstd, CTensor x, CTensor wq, CTensor wk,
                            RopeInput rope, AttentionShape shape, double eps) {
  normalize_heads(ctx, y, rstd, x, wq, wk, rope, {}, shape, eps);
}

void head_norm_rope_append(Ctx& ctx, Tensor y, Tensor rstd, PagedKv kv, int64_t layer, CTensor x, CTensor wq,
                           CTensor wk, RopeInput rope, CTensor cu_seqlens, AttentionShape shape, double eps) {
  normalize_heads(ctx, y, rstd, x, wq, wk, rope, paged_call({}, x, kv, layer, cu_seqlens, shape, 1.0), shape,
                  eps);
}

void rope_forward(Ctx& ctx, Tensor qkv, CTensor positions, CTensor cosine, CTensor sine,
                  AttentionShape shape) {
  rotate<1>(ctx, qkv, positions, cosine, sine, shape);
}

void rope_backward(Ctx& ctx, Tensor dqkv, CTensor positions, CTensor cosine, CTensor sine,
                   AttentionShape shape) {
  rotate<-1>(ctx, dqkv, positions, cosine, sine, shape);
}

void swiglu_forward(Ctx& ctx, Tensor a, CTensor gate_up) {
  dispatch_gpu_storage(a.dtype, [&](auto s) {
    using S = decltype(s);
    const int64_t groups = (a.dim(1) + kGroup - 1) / kGroup;
    launch(ctx.lane, swiglu_kernel<S>, blocks_for(a.dim(0) * groups, kThreads), kThreads, 0, data_of<S>(a),
           data_of<S>(gate_up), a.dim(0), a.dim(1));
  });
}

void swiglu_backward(Ctx& ctx, Tensor dgate_up, CTensor da, CTensor gate_up) {
  dispatch_gpu_storage(da.dtype, [&](auto s) {
    using S = decltype(s);
    const int pieces = blocks_for(da.dim(1), kThreads * kGroup);
    launch(ctx.lane, swiglu_backward_kernel<S>, blocks_for(da.dim(0) * pieces, 1), kThreads, 0,
           data_of<S>(dgate_up), data_of<S>(da), data_of<S>(gate_up), da.dim(1),
           static_cast<unsigned>(pieces));
  });
}

}  // namespace temper::cuda
