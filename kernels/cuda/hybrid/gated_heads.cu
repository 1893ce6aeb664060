// Around attention with an output gate: norm and rope of the heads of a projected row, and the gate. A row is
// [q_0 | gate_0 | q_1 | gate_1 | .. | k | v].

#include "kernels/cuda/fold.h"
#include "kernels/cuda/hybrid/hybrid.h"
#include "kernels/cuda/hybrid/teams.h"
#include "kernels/cuda/scratch/hybrid_rows.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int kWarps = kTeamThreads / 32;  // of a block: a head each
static_assert(kMaxHeadDim == 32 * kGroup);

struct ProjectedHeads {
  HeadShape shape;
  int half;     // pairs (i, i + half) of a head are turned
  bool vector;  // heads
  bool angles;  // and their angles can be read by 16 bytes

  TEMPER_DEVICE int normed() const { return shape.q_heads + shape.kv_heads; }
  TEMPER_DEVICE int all() const { return normed() + shape.kv_heads; }
  TEMPER_DEVICE int64_t row() const { return int64_t{2 * (shape.q_heads + shape.kv_heads)} * shape.head_dim; }
  /// Where a head of q, k or v begins in a row.
  TEMPER_DEVICE int column(int head) const {
    return (head < shape.q_heads ? 2 * head : shape.q_heads + head) * shape.head_dim;
  }
};

/// The rotation of a head of which a lane has the group from `at`; `head` is its warp's shared memory, `row`
/// that of the angles. kSign -1 turns back.
template <class S, int kSign>
TEMPER_DEVICE void turn_head(float (&v)[kGroup], float* head, const RopeTables& rope, int64_t row, int at,
                             const ProjectedHeads& heads) {
  const int half = heads.half;
  store_group(head + at, v, kGroup, true);
  __syncwarp();
  if (at < 2 * half) {
    float c[kGroup], s[kGroup];
    if (heads.angles) {
      const int64_t first = row + (at < half ? at : at - half);
      load_group(c, rope.cosine + first, kGroup, true);
      load_group(s, rope.sine + first, kGroup, true);
    } else {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const int e = at + i, pair = e < half ? e : e - half;
        c[i] = e < 2 * half ? rope.cosine[row + pair] : 0.f,
        s[i] = e < 2 * half ? rope.sine[row + pair] : 0.f;
      }
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int e = at + i;
      if (e >= 2 * half) continue;
      const float other = head[e < half ? e + half : e - half], sine = kSign < 0 ? -s[i] : s[i];
      const float turned =
          e < half ? cn::rope_low(v[i], other, c[i], sine) : cn::rope_high(other, v[i], c[i], sine);
      v[i] = cn::load(cn::store<S>(turned));
    }
  }
  __syncwarp();
}

/// One warp per token and head of q, k or v (v is copied). Weights, tables and positions are there before the
/// previous kernel has finished.
template <class S>
__global__ void __launch_bounds__(kTeamThreads)
    gated_heads_kernel(S* qkv, float* rstd, const S* x, const S* wq, const S* wk, const RopeTables rope,
                       const ProjectedHeads heads, int items, float eps) {
  __shared__ __align__(16) float shared[kWarps][kMaxHeadDim];
  launch_dependents();
  const int warp = static_cast<int>(threadIdx.x) / 32, item = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (item >= items) return;
  const int token = item / heads.all(), head = item - token * heads.all(), width = heads.shape.head_dim;
  const int at = static_cast<int>(threadIdx.x) % 32 * kGroup, left = width - at;
  const bool whole = heads.vector && left > 0, is_normed = head < heads.normed();
  const int64_t angles = int64_t{rope.positions[token]} * heads.half;
  float v[kGroup], weight[kGroup];
  if (is_normed) load_group(weight, (head < heads.shape.q_heads ? wq : wk) + at, left, whole);

  wait_for_previous_kernel();
  load_group(v, x + token * heads.row() + heads.column(head) + at, left, whole);
  if (is_normed) {
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) squares = cn::add_square(squares, v[i]);
    const float scale = cn::rms_scale(cn::warp_sum(squares), width, eps);
    if (at == 0) rstd[int64_t{token} * heads.normed() + head] = scale;
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      v[i] = cn::load(cn::OffsetWeight::value(cn::store<S>(v[i]), scale, cn::store<S>(weight[i])));
    turn_head<S, 1>(v, shared[warp], rope, angles, at, heads);
  }
  if (left > 0) store_group(qkv + int64_t{item} * width + at, v, left, whole);
}

template <class S>
struct GatedHeadsBackward {
  S* dx;
  float* partials;
  const S *dqkv, *x, *wq, *wk;
  const float* rstd;
  RopeTables rope;
  ProjectedHeads heads;
  int tokens, per_block, query_blocks;  // the blocks behind them take the heads of k
};

/// A block takes so many heads of q or of k, tokens ascending; a warp two neighbouring ones of every turn.
template <class S>
__global__ void __launch_bounds__(kTeamThreads)
    gated_heads_backward_kernel(const GatedHeadsBackward<S> call) {
  constexpr int kAtOnce = 2;
  __shared__ __align__(16) float shared[kWarps][kMaxHeadDim];
  const ProjectedHeads& all = call.heads;
  const bool key = static_cast<int>(blockIdx.x) >= call.query_blocks;
  const int heads = key ? all.shape.kv_heads : all.shape.q_heads, first_head = key ? all.shape.q_heads : 0;
  const int warp = static_cast<int>(threadIdx.x) / 32, at = static_cast<int>(threadIdx.x) % 32 * kGroup,
            width = all.shape.head_dim, left = width - at;
  float weight[kGroup], sums[kGroup] = {};
  load_group(weight, (key ? call.wk : call.wq) + at, left, all.vector && left > 0);
  begin_kernel();
  const int begin = (static_cast<int>(blockIdx.x) - (key ? call.query_blocks : 0)) * call.per_block,
            end = min(begin + call.per_block, call.tokens * heads);
  for (int base = begin + warp * kAtOnce; base < end; base += kWarps * kAtOnce) {
    RawGroup<S> dy[kAtOnce], x[kAtOnce];
    float rstd[kAtOnce];
    int64_t angles[kAtOnce], offset[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int item = min(base + j, end - 1), token = item / heads, head = first_head + item - token * heads,
                count = base + j < end ? left : 0;
      const bool whole = all.vector && count > 0;
      offset[j] = token * all.row() + all.column(head) + at;
      load_raw(dy[j], call.dqkv + (int64_t{token} * all.all() + head) * width + at, count, whole);
      load_raw(x[j], call.x + offset[j], count, whole);
      rstd[j] = call.rstd[int64_t{token} * all.normed() + head];
      angles[j] = int64_t{call.rope.positions[token]} * all.half;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int count = base + j < end ? left : 0;
      float v[kGroup], normed[kGroup], dot = 0.f;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) v[i] = cn::load(dy[j].at[i]);
      turn_head<S, -1>(v, shared[warp], call.rope, angles[j], at, all);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        normed[i] = __fmul_rn(cn::load(x[j].at[i]), rstd[j]);
        dot = cn::add_norm_dot(dot, v[i], cn::OffsetWeight::of(weight[i]), normed[i]);
      }
      const float mean = __fdiv_rn(cn::warp_sum(dot), static_cast<float>(width));
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        sums[i] = __fmaf_rn(v[i], normed[i], sums[i]);
        v[i] = cn::norm_gradient(v[i], cn::OffsetWeight::of(weight[i]), normed[i], mean, rstd[j]);
      }
      if (count > 0) store_group(call.dx + offset[j], v, count, all.vector);
    }
  }
  store_group(shared[warp] + at, sums, kGroup, true);
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column >= width) return;
  float sum = shared[0][column];
#pragma unroll
  for (int k = 1; k < kWarps; ++k) sum = __fadd_rn(sum, shared[k][column]);
  call.partials[int64_t{blockIdx.x} * width + column] = sum;
}

// ---- the gate

/// Groups of the heads of q: of thread (blockIdx.y, threadIdx.x) in row blockIdx.x.
struct GateGroup {
  int64_t attended, gate;  // places of its elements in rows of q and in projected rows
  int count;

  TEMPER_DEVICE explicit GateGroup(const ProjectedHeads& heads) {
    const int groups = (heads.shape.head_dim + kGroup - 1) / kGroup,
              item = static_cast<int>(blockIdx.y) * kTeamThreads + static_cast<int>(threadIdx.x),
              head = item / groups, first = (item - head * groups) * kGroup;
    attended = (int64_t{blockIdx.x} * heads.shape.q_heads + head) * heads.shape.head_dim + first;
    gate = blockIdx.x * heads.row() + (2 * head + 1) * heads.shape.head_dim + first;
    count = head < heads.shape.q_heads ? heads.shape.head_dim - first : 0;
  }
};

template <class S>
__global__ void __launch_bounds__(kTeamThreads)
    output_gate_kernel(S* y, const S* attended, const S* x, const ProjectedHeads heads) {
  begin_kernel();
  const GateGroup group(heads);
  if (group.count <= 0) return;
  float o[kGroup], gate[kGroup];
  load_group(o, attended + group.attended, group.count, heads.vector);
  load_group(gate, x + group.gate, group.count, heads.vector);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) o[i] = __fmul_rn(o[i], cn::sigmoid(gate[i]));
  store_group(y + group.attended, o, group.count, heads.vector);
}

/// A thread reads dy before it writes dattended, which may be in its place.
template <class S>
__global__ void __launch_bounds__(kTeamThreads)
    output_gate_backward_kernel(S* dattended, S* dx, const S* dy, const S* attended, const S* x,
                                const ProjectedHeads heads) {
  begin_kernel();
  const GateGroup group(heads);
  if (group.count <= 0) return;
  float upstream[kGroup], o[kGroup], gate[kGroup];
  load_group(upstream, dy + group.attended, group.count, heads.vector);
  load_group(o, attended + group.attended, group.count, heads.vector);
  load_group(gate, x + group.gate, group.count, heads.vector);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const float s = cn::sigmoid(gate[i]);
    gate[i] = __fmul_rn(__fmul_rn(upstream[i], o[i]), __fmul_rn(s, __fsub_rn(1.f, s)));
    upstream[i] = __fmul_rn(upstream[i], s);
  }
  store_group(dx + group.gate, gate, group.count, heads.vector);
  store_group(dattended + group.attended, upstream, group.count, heads.vector);
}

ProjectedHeads projected_heads(const AttentionShape& shape, std::initializer_list<CTensor> tensors) {
  CHECK(shape.head_dim <= kMaxHeadDim, "head_dim {}", shape.head_dim);
  return {heads_of(shape), 0, lies_in_groups(tensors, {shape.head_dim}), false};
}
ProjectedHeads turned_heads(const AttentionShape& shape, const RopeInput& rope,
                            std::initializer_list<CTensor> tensors) {
  ProjectedHeads heads = projected_heads(shape, tensors);
  heads.half = static_cast<int>(rope.cosine.dim(1));
  heads.angles = lies_in_groups({rope.cosine, rope.sine}, {heads.half});
  return heads;
}

dim3 gate_grid(const CTensor& x, const AttentionShape& shape) {
  const int64_t groups = shape.q_heads * ((shape.head_dim + kGroup - 1) / kGroup);
  return {static_cast<unsigned>(x.dim(0)), static_cast<unsigned>(blocks_for(groups, kTeamThreads))};
}

}  // namespace

void gated_heads_forward(Ctx& ctx, Tensor qkv, Tensor rstd, CTensor x, CTensor wq, CTensor wk, RopeInput rope,
                         AttentionShape shape, double eps) {
  const ProjectedHeads heads = turned_heads(shape, rope, {qkv, x, wq, wk});
  const int items = heads_of_all(x.dim(0), shape.q_heads + 2 * shape.kv_heads);
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, gated_heads_kernel<S>, blocks_for(items, kWarps), kTeamThreads, 0, data_of<S>(qkv),
           rstd.as<float>(), data_of<S>(x), data_of<S>(wq), data_of<S>(wk), tables_of(rope), heads, items,
           eps);
  });
}

void gated_heads_backward(Ctx& ctx, Tensor dx, Tensor dwq, Tensor dwk, CTensor dqkv, CTensor x, CTensor wq,
                          CTensor wk, CTensor rstd, RopeInput rope, AttentionShape shape) {
  if (x.dim(0) == 0) return;
  ArenaScope scope(ctx.scratch);
  const int queries = heads_of_all(x.dim(0), shape.q_heads), keys = heads_of_all(x.dim(0), shape.kv_heads),
            width = static_cast<int>(shape.head_dim);
  const HeadPartials partials = gated_heads_backward_scratch(ctx.scratch, queries, keys, width);
  const int query_blocks = static_cast<int>(partials.query_blocks),
            key_blocks = static_cast<int>(partials.key_blocks);
  float* sums = partials.sums.as<float>();
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, gated_heads_backward_kernel<S>, query_blocks + key_blocks, kTeamThreads, 0,
           GatedHeadsBackward<S>{data_of<S>(dx), sums, data_of<S>(dqkv), data_of<S>(x), data_of<S>(wq),
                                 data_of<S>(wk), rstd.as<float>(), tables_of(rope),
                                 turned_heads(shape, rope, {dx, dqkv, x, wq, wk}), static_cast<int>(x.dim(0)),
                                 static_cast<int>(partials.per_block), query_blocks});
  });
  fold_partials(ctx, width, {dwq.as<float>(), sums, query_blocks},
                {dwk.as<float>(), sums + int64_t{query_blocks} * width, key_blocks});
  copy_columns(ctx, dx, 2 * shape.q_width() + shape.kv_width(), dqkv, shape.q_width() + shape.kv_width(),
               shape.kv_width());
}

void output_gate_forward(Ctx& ctx, Tensor y, CTensor attended, CTensor x, AttentionShape shape) {
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, output_gate_kernel<S>, gate_grid(x, shape), kTeamThreads, 0, data_of<S>(y),
           data_of<S>(attended), data_of<S>(x), projected_heads(shape, {y, attended, x}));
  });
}

void output_gate_backward(Ctx& ctx, Tensor dattended, Tensor dx, CTensor dy, CTensor attended, CTensor x,
                          AttentionShape shape) {
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, output_gate_backward_kernel<S>, gate_grid(x, shape), kTeamThreads, 0,
           data_of<S>(dattended), data_of<S>(dx), data_of<S>(dy), data_of<S>(attended), data_of<S>(x),
           projected_heads(shape, {dattended, dx, dy, attended, x}));
  });
}

}  // namespace temper::cuda
