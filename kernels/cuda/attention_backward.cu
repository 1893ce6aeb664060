// Entry point of the attention backward, and the plain kernels: one by tiles of queries for dQ, one by tiles
// of keys for dK and dV. Both compute the probabilities and the gradients of the scores of 64 queries and 64
// keys anew, so that every sum has one owner and one order.

#include "kernels/cuda/attention_backward.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;

constexpr int kThreads = 256, kTile = 64, kChunk = 32, kMaxHeadDim = 256, kMaxChunks = kMaxHeadDim / kChunk;

/// A thread holds rows y + 16 i and columns x + 16 j of a tile, y = threadIdx.x / 16, x = threadIdx.x % 16.
constexpr int kSide = 16, kMicro = kTile / kSide, kColumns = kChunk / kSide;
using Sums = float[kMaxChunks][kMicro][kColumns];

using Chunk = float[kTile][kChunk + 1];  // 32 columns of 64 rows, away from the banks of the row above
struct Shared {
  Chunk q, dout, k, v;
  float p[kTile][kTile + 1], ds[kTile][kTile + 1];  // [query][key]
};

/// Up to 64 rows of one head; rows from `count` on do not exist and are taken as zero.
template <class S>
struct Rows {
  const S* at;
  int64_t width;
  int count;
};

struct Plain {
  AttentionBackwardCall a;
  float* delta;  // [Hq, T]
};

/// 64 rows of one sequence from `first` on; none, if first >= length.
struct Place {
  int row, length, first;  // row: of the packed rows, where the sequence begins
};
TEMPER_DEVICE Place place_of(const AttentionBackwardCall& a, int tile) {
  const int s = sequence_of_tile(a.cu, a.S, tile, kTile), row = a.cu[s];
  return {row, a.cu[s + 1] - row, (tile - first_tile(row, s, kTile)) * kTile};
}

/// Rows of head `head` of qkv (query heads, then keys, then values) from position `first` on.
template <class S>
TEMPER_DEVICE Rows<S> qkv_rows(const AttentionBackwardCall& a, const Place& place, int head, int first) {
  return {static_cast<const S*>(a.qkv) + (place.row + first) * a.row_width() + int64_t{head} * a.head_dim,
          a.row_width(), min(place.length - first, kTile)};
}
template <class S>
TEMPER_DEVICE Rows<S> dout_rows(const AttentionBackwardCall& a, const Place& place, int head, int first) {
  const int64_t width = int64_t{a.q_heads} * a.head_dim;
  return {static_cast<const S*>(a.dout) + (place.row + first) * width + int64_t{head} * a.head_dim, width,
          min(place.length - first, kTile)};
}

template <class S>
TEMPER_DEVICE void load_chunk(Chunk& to, const Rows<S>& from, int column, int head_dim) {
  const int row = threadIdx.x / 4, first = threadIdx.x % 4 * kGroup;
  float v[kGroup] = {};
  if (row < from.count && column + first < head_dim)
    load_group(v, from.at + row * from.width + column + first, kGroup, true);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) to[row][first + i] = v[i];
}

/// p and ds of the queries from `query` on of head `head` and the keys from `key` on. Whoever reads them
/// synchronises first. ds is without the scale.
template <class S>
TEMPER_DEVICE void score_gradients(Shared& sh, const Plain& args, const Place& place, int head, int query,
                                   int key) {
  const AttentionBackwardCall& a = args.a;
  const int y = threadIdx.x / kSide, x = threadIdx.x % kSide, kv_head = head / a.group();
  const Rows<S> q = qkv_rows<S>(a, place, head, query), dout = dout_rows<S>(a, place, head, query);
  const Rows<S> k = qkv_rows<S>(a, place, a.q_heads + kv_head, key);
  const Rows<S> v = qkv_rows<S>(a, place, a.q_heads + a.kv_heads + kv_head, key);
  float s[kMicro][kMicro] = {}, dp[kMicro][kMicro] = {};
  for (int column = 0; column < a.head_dim; column += kChunk) {
    __syncthreads();
    load_chunk(sh.q, q, column, a.head_dim);
    load_chunk(sh.dout, dout, column, a.head_dim);
    load_chunk(sh.k, k, column, a.head_dim);
    load_chunk(sh.v, v, column, a.head_dim);
    __syncthreads();
#pragma unroll 4
    for (int d = 0; d < kChunk; ++d)
#pragma unroll
      for (int i = 0; i < kMicro; ++i) {
        const float qi = sh.q[y + kSide * i][d], oi = sh.dout[y + kSide * i][d];
#pragma unroll
        for (int j = 0; j < kMicro; ++j) {
          s[i][j] = __fmaf_rn(qi, sh.k[x + kSide * j][d], s[i][j]);
          dp[i][j] = __fmaf_rn(oi, sh.v[x + kSide * j][d], dp[i][j]);
        }
      }
  }
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
    const int u = query + y + kSide * i;
    const int64_t at = int64_t{head} * a.T + place.row + u;
    const bool exists = u < place.length;
    const float lse = exists ? a.lse[at] : 0.f, delta = exists ? args.delta[at] : 0.f;
#pragma unroll
    for (int j = 0; j < kMicro; ++j) {
      const bool sees = exists && key + x + kSide * j <= u;
      const float p = sees ? expf(__fmaf_rn(s[i][j], a.scale, -lse)) : 0.f;
      sh.p[y + kSide * i][x + kSide * j] = p;
      sh.ds[y + kSide * i][x + kSide * j] = __fmul_rn(p, __fsub_rn(dp[i][j], delta));
    }
  }
}

/// sums += F R, or F^T R, over the 64 rows of R.
template <bool kTransposed, class S>
TEMPER_DEVICE void add_product(Sums& sums, const float (&factor)[kTile][kTile + 1], Chunk& chunk,
                               const Rows<S>& rows, int head_dim) {
  const int y = threadIdx.x / kSide, x = threadIdx.x % kSide;
#pragma unroll
  for (int c = 0; c < kMaxChunks; ++c) {
    if (c * kChunk >= head_dim) break;
    __syncthreads();
    load_chunk(chunk, rows, c * kChunk, head_dim);
    __syncthreads();
#pragma unroll 4
    for (int n = 0; n < kTile; ++n)
#pragma unroll
      for (int i = 0; i < kMicro; ++i) {
        const float f = kTransposed ? factor[n][y + kSide * i] : factor[y + kSide * i][n];
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          sums[c][i][j] = __fmaf_rn(f, chunk[n][x + kSide * j], sums[c][i][j]);
      }
  }
}

/// Rows of the gradient from `to` on, `count` of them exist.
template <class S>
TEMPER_DEVICE void write_sums(S* to, int64_t width, int count, const Sums& sums, float factor, int head_dim) {
  const int y = threadIdx.x / kSide, x = threadIdx.x % kSide;
#pragma unroll
  for (int c = 0; c < kMaxChunks; ++c)
#pragma unroll
    for (int i = 0; i < kMicro; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int row = y + kSide * i, column = c * kChunk + x + kSide * j;
        if (row < count && column < head_dim)
          to[row * width + column] = cn::store<S>(__fmul_rn(sums[c][i][j], factor));
      }
}

template <class S>
TEMPER_DEVICE S* gradient_rows(const AttentionBackwardCall& a, const Place& place, int head) {
  return static_cast<S*>(a.dqkv) + (place.row + place.first) * a.row_width() + int64_t{head} * a.head_dim;
}

/// One warp per row and head.
template <class S>
__global__ void __launch_bounds__(kThreads) delta_kernel(const Plain args) {
  begin_kernel();
  const AttentionBackwardCall& a = args.a;
  const int64_t item = blockIdx.x * int64_t{kThreads / 32} + threadIdx.x / 32;
  if (item >= int64_t{a.T} * a.q_heads) return;
  const int64_t from = item * a.head_dim, row = item / a.q_heads, head = item % a.q_heads;
  float sum = 0.f;
  for (int d = threadIdx.x % 32; d < a.head_dim; d += 32)
    sum = __fmaf_rn(cn::load(static_cast<const S*>(a.dout)[from + d]),
                    cn::load(static_cast<const S*>(a.out)[from + d]), sum);
  for (int w = 16; w > 0; w /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, w));
  if (threadIdx.x % 32 == 0) args.delta[head * a.T + row] = sum;
}

/// One block per tile of queries and head.
template <class S>
__global__ void __launch_bounds__(kThreads) dq_kernel(const Plain args) {
  begin_kernel();
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& sh = *reinterpret_cast<Shared*>(memory);
  const AttentionBackwardCall& a = args.a;
  const Place place = place_of(a, blockIdx.x);
  if (place.first >= place.length) return;
  const int head = blockIdx.y, key_head = a.q_heads + head / a.group();
  Sums sums = {};
  for (int key = 0; key <= place.first; key += kTile) {
    score_gradients<S>(sh, args, place, head, place.first, key);
    add_product<false>(sums, sh.ds, sh.k, qkv_rows<S>(a, place, key_head, key), a.head_dim);
  }
  write_sums(gradient_rows<S>(a, place, head), a.row_width(), place.length - place.first, sums, a.scale,
             a.head_dim);
}

/// One block per tile of keys and kv head.
template <class S>
__global__ void __launch_bounds__(kThreads) dkv_kernel(const Plain args) {
  begin_kernel();
  extern __shared__ __align__(16) uint8_t memory[];
  Shared& sh = *reinterpret_cast<Shared*>(memory);
  const AttentionBackwardCall& a = args.a;
  const Place place = place_of(a, blockIdx.x);
  if (place.first >= place.length) return;
  const int kv_head = blockIdx.y, group = a.group();
  Sums dk = {}, dv = {};
  for (int query = place.first; query < place.length; query += kTile)
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      score_gradients<S>(sh, args, place, head, query, place.first);
      add_product<true>(dk, sh.ds, sh.q, qkv_rows<S>(a, place, head, query), a.head_dim);
      add_product<true>(dv, sh.p, sh.dout, dout_rows<S>(a, place, head, query), a.head_dim);
    }
  const int count = place.length - place.first;
  write_sums(gradient_rows<S>(a, place, a.q_heads + kv_head), a.row_width(), count, dk, a.scale, a.head_dim);
  write_sums(gradient_rows<S>(a, place, a.q_heads + a.kv_heads + kv_head), a.row_width(), count, dv, 1.f,
             a.head_dim);
}

}  // namespace

void attention_backward_plain(Ctx& ctx, DType type, const AttentionBackwardCall& a) {
  CHECK(a.head_dim <= kMaxHeadDim, "head_dim {}", a.head_dim);
  if (a.T == 0) return;
  ArenaScope scope(ctx.scratch);
  const int64_t items = int64_t{a.T} * a.q_heads;
  const Plain args{a, attention_backward_plain_scratch(ctx.scratch, a.T, a.q_heads).as<float>()};
  const auto tiles = static_cast<unsigned>(first_tile(a.T, a.S, kTile));
  dispatch_gpu_storage(type, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, delta_kernel<S>, blocks_for(items, kThreads / 32), kThreads, 0, args);
    allow_shared_memory(dq_kernel<S>, sizeof(Shared));
    launch(ctx.lane, dq_kernel<S>, dim3(tiles, static_cast<unsigned>(a.q_heads)), kThreads, sizeof(Shared),
           args);
    allow_shared_memory(dkv_kernel<S>, sizeof(Shared));
    launch(ctx.lane, dkv_kernel<S>, dim3(tiles, static_cast<unsigned>(a.kv_heads)), kThreads, sizeof(Shared),
           args);
  });
}

void attention_varlen_backward(Ctx& ctx, Tensor dqkv, CTensor dout, CTensor qkv, CTensor out, CTensor lse,
                               CTensor cu_seqlens, AttentionShape shape, double scale) {
  const AttentionBackwardCall a{.dqkv = dqkv.raw(),
                                .dout = dout.data,
                                .qkv = qkv.data,
                                .out = out.data,
                                .lse = lse.as<float>(),
                                .cu = cu_seqlens.as<int32_t>(),
                                .T = static_cast<int>(qkv.dim(0)),
                                .S = static_cast<int>(cu_seqlens.dim(0)) - 1,
                                .q_heads = static_cast<int>(shape.q_heads),
                                .kv_heads = static_cast<int>(shape.kv_heads),
                                .head_dim = static_cast<int>(shape.head_dim),
                                .scale = static_cast<float>(scale)};
  if (!has_tensor_core_kernel(qkv.dtype, a.head_dim))
    attention_backward_plain(ctx, qkv.dtype, a);
  else if (a.head_dim == 256)
    attention_backward_two_kernels(ctx, a);
  else
    attention_backward_one_pass(ctx, a);
}

}  // namespace temper::cuda
