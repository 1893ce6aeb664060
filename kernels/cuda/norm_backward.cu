// Backward of RMSNorm, of rows and of heads (with their rope): one pass over memory, and weight gradients as
// partial sums of blocks of rows. How rows are cut into blocks depends on their number and width alone.

#include <type_traits>

#include "kernels/cuda/fold.h"
#include "kernels/cuda/norm_backward_rows.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;

// ---- heads

constexpr int kHeadThreads = 256, kAtOnce = 2;  // heads of a team whose loads are under way together
constexpr int64_t kHeadBlocks = 132 * 3;        // of one wave, about

template <class S>
struct HeadCall {
  S* dx;
  float* partials;
  const S *dy, *x, *wq, *wk;
  const float* rstd;
  RopeTables rope;
  HeadShape shape;
  int64_t tokens;
  int per_block, query_blocks;  // the blocks behind them take the heads of k
};

/// Whether heads are what a team's groups hold exactly, whether halves of heads are whole groups, or neither.
enum class Fit { exact, halves, none };

/// Cosines and sines of a token for the group of eight elements from `at` of a head.
template <Fit kFit>
struct Angles {
  float c[kGroup], s[kGroup];

  TEMPER_DEVICE void load(const RopeTables& rope, int64_t token, int at, int width) {
    const int half = width / 2;
    const int64_t row = int64_t{rope.positions[token]} * half;
    if constexpr (kFit != Fit::none) {
      const int64_t first = row + (at < half ? at : at - half);
      load_group(c, rope.cosine + first, kGroup, true);
      load_group(s, rope.sine + first, kGroup, true);
    } else {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const int e = at + i, pair = e < half ? e : e - half;
        c[i] = e < width ? rope.cosine[row + pair] : 0.f, s[i] = e < width ? rope.sine[row + pair] : 0.f;
      }
    }
  }
};

/// The turn back of the group from `at`, of which v holds the gradients; those of the other half come from
/// another lane of the team or, where halves are no whole groups, from memory.
template <class S, int kLanes, Fit kFit>
TEMPER_DEVICE void turn_back(float (&v)[kGroup], const S* head, const Angles<kFit>& angles, int at, int width,
                             bool exists) {
  const int half = width / 2;
  float other[kGroup];
  if constexpr (kFit != Fit::none) {
    const int lane = at / kGroup, step = half / kGroup, from = at < half ? lane + step : lane - step;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) other[i] = __shfl_sync(~0u, v[i], from, kLanes);
  } else {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int e = at + i;
      other[i] = exists && e < width ? cn::load(head[e < half ? e + half : e - half]) : 0.f;
    }
    __syncwarp();  // the head may be written to from here on
  }
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const float turned = at + i < half ? cn::rope_low(v[i], other[i], angles.c[i], -angles.s[i])
                                       : cn::rope_high(other[i], v[i], angles.c[i], -angles.s[i]);
    v[i] = cn::load(cn::store<S>(turned));
  }
}

/// Teams of kLanes threads, one head each: a team takes kAtOnce neighbouring heads of every turn of its
/// block, tokens ascending. dx may be dy.
template <class S, int kLanes, Fit kFit>
__global__ void __launch_bounds__(kHeadThreads, 3) head_norm_backward_kernel(const HeadCall<S> call) {
  constexpr int kTeams = kHeadThreads / kLanes;
  __shared__ float all[kTeams][kLanes * kGroup];
  const bool key = static_cast<int>(blockIdx.x) >= call.query_blocks;
  const HeadShape shape = call.shape;
  const int heads = key ? shape.kv_heads : shape.q_heads, first_head = key ? shape.q_heads : 0;
  const int width = kFit == Fit::exact ? kLanes * kGroup : shape.head_dim;
  const int normed_heads = shape.q_heads + shape.kv_heads;
  const int team = threadIdx.x / kLanes, at = static_cast<int>(threadIdx.x) % kLanes * kGroup;
  const int left = kFit == Fit::exact ? kGroup : width - at;
  const bool vector = kFit != Fit::none || width % kGroup == 0;
  float weight[kGroup], sums[kGroup] = {};
  load_group(weight, (key ? call.wk : call.wq) + at, left, vector && left > 0);
  begin_kernel();
  const int64_t begin = int64_t{blockIdx.x - (key ? call.query_blocks : 0)} * call.per_block;
  const int64_t end = min(begin + call.per_block, call.tokens * heads);
  Angles<kFit> angles{};
  int64_t turned = -1;  // the token of the angles
  for (int64_t base = begin; base < end; base += kTeams * kAtOnce) {
    RawGroup<S> dy[kAtOnce], x[kAtOnce];
    float rstd[kAtOnce];
    int64_t token[kAtOnce], offset[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t item = base + team * kAtOnce + j;
      const bool exists = item < end;
      token[j] = item / heads;
      const int head = first_head + static_cast<int>(item - token[j] * heads), n = exists ? left : 0;
      offset[j] = (token[j] * (normed_heads + shape.kv_heads) + head) * width;
      load_raw(dy[j], call.dy + offset[j] + at, n, vector && n > 0);
      load_raw(x[j], call.x + offset[j] + at, n, vector && n > 0);
      rstd[j] = exists ? call.rstd[token[j] * normed_heads + head] : 0.f;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const bool exists = base + team * kAtOnce + j < end && left > 0;
      if (exists && token[j] != turned) angles.load(call.rope, turned = token[j], at, width);
      float v[kGroup], normed[kGroup], dot = 0.f;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) v[i] = cn::load(dy[j].at[i]);
      turn_back<S, kLanes, kFit>(v, call.dy + offset[j], angles, at, width, exists);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        normed[i] = __fmul_rn(cn::load(x[j].at[i]), rstd[j]);
        if (i < left) dot = cn::add_norm_dot(dot, v[i], weight[i], normed[i]);
      }
#pragma unroll
      for (int w = kLanes / 2; w > 0; w /= 2) dot = __fadd_rn(dot, __shfl_xor_sync(~0u, dot, w));
      const float mean = __fdiv_rn(dot, static_cast<float>(width));
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        if (exists) sums[i] = __fmaf_rn(v[i], normed[i], sums[i]);
        v[i] = cn::norm_gradient(v[i], weight[i], normed[i], mean, rstd[j]);
      }
      if (exists) store_group(call.dx + offset[j] + at, v, left, vector);
    }
  }
#pragma unroll
  for (int i = 0; i < kGroup; ++i) all[team][at + i] = sums[i];
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column >= width) return;
  float sum = all[0][column];
  for (int k = 1; k < kTeams; ++k) sum = __fadd_rn(sum, all[k][column]);
  call.partials[int64_t{blockIdx.x} * width + column] = sum;
}

/// The values at the end of each row.
template <class S>
__global__ void copy_tail_kernel(S* to, const S* from, int64_t width, int64_t tail) {
  begin_kernel();
  const int64_t first = (blockIdx.x + 1) * width - tail;
  for (int64_t i = threadIdx.x; i < tail; i += blockDim.x) to[first + i] = from[first + i];
}

template <class S, int kLanes, Fit kFit>
void launch_head_backward(Ctx& ctx, HeadCall<S> call, Tensor dwq, Tensor dwk) {
  constexpr int64_t kTurn = kHeadThreads / kLanes * kAtOnce;
  const int64_t queries = call.tokens * call.shape.q_heads, keys = call.tokens * call.shape.kv_heads;
  call.per_block =
      static_cast<int>(((queries + keys + kHeadBlocks - 1) / kHeadBlocks + kTurn - 1) / kTurn * kTurn);
  call.query_blocks = blocks_for(queries, call.per_block);
  const int key_blocks = blocks_for(keys, call.per_block), width = call.shape.head_dim;
  ArenaScope scope(ctx.scratch);
  call.partials = ctx.scratch.make({call.query_blocks + key_blocks, width}, DType::f32).as<float>();
  launch(ctx.lane, head_norm_backward_kernel<S, kLanes, kFit>, call.query_blocks + key_blocks, kHeadThreads,
         0, call);
  fold_partials(ctx, width, {dwq.as<float>(), call.partials, call.query_blocks},
       {dwk.as<float>(), call.partials + int64_t{call.query_blocks} * width, key_blocks});
}

}  // namespace

void rmsnorm_backward(Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor dresidual, CTensor x, CTensor w,
                      CTensor rstd) {
  normalize_rows_backward<cn::PlainWeight>(ctx, dx, dw, dy, dresidual, x, w, rstd);
}

void head_norm_rope_backward(Ctx& ctx, Tensor dx, Tensor dwq, Tensor dwk, CTensor dy, CTensor x, CTensor wq,
                             CTensor wk, CTensor rstd, RopeInput rope, AttentionShape shape) {
  if (x.dim(0) == 0) return;
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    const HeadCall<S> call{data_of<S>(dx),
                           nullptr,
                           data_of<S>(dy),
                           data_of<S>(x),
                           data_of<S>(wq),
                           data_of<S>(wk),
                           rstd.as<float>(),
                           tables_of(rope),
                           heads_of(shape),
                           x.dim(0),
                           0,
                           0};
    const int width = call.shape.head_dim;
    const auto sized = [&](auto fit) {
      constexpr Fit kFit = decltype(fit)::value;
      if (width <= 64) return launch_head_backward<S, 8, kFit>(ctx, call, dwq, dwk);
      if (width <= 128) return launch_head_backward<S, 16, kFit>(ctx, call, dwq, dwk);
      launch_head_backward<S, kMaxHeadDim / kGroup, kFit>(ctx, call, dwq, dwk);
    };
    if (width == 64 || width == 128 || width == kMaxHeadDim)
      sized(std::integral_constant<Fit, Fit::exact>{});
    else if (width % (2 * kGroup) == 0)
      sized(std::integral_constant<Fit, Fit::halves>{});
    else
      sized(std::integral_constant<Fit, Fit::none>{});
    if (dx.data != dy.data)
      launch(ctx.lane, copy_tail_kernel<S>, static_cast<unsigned>(x.dim(0)), kHeadThreads, 0, data_of<S>(dx),
             data_of<S>(dy), shape.qkv_width(), shape.kv_width());
  });
}

}  // namespace temper::cuda
