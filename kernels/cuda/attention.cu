// Entry points of attention, the pages, and the plain kernel.

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_trial.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int kThreads = 256;

// ---- plain kernel: the structure of canonical.cuh with scalar chains (scores over ascending d, values over
// ascending keys), one warp per query row and head.

constexpr int kPlainWarps = 4, kMaxHeadDim = 256;

template <class S>
struct Keys {
  const S *k, *v;
};

template <class S>
TEMPER_DEVICE Keys<S> locate_key(const AttentionCall& a, int sequence, int kv_head, int key) {
  if (a.paged) {
    const int64_t at = int64_t{page_row(a.pages, a.kv_heads, sequence, kv_head, key)} * a.head_dim;
    return {static_cast<const S*>(a.pages.keys) + at, static_cast<const S*>(a.pages.values) + at};
  }
  const S* row = static_cast<const S*>(a.qkv) + (a.cu[sequence] + key) * a.row_width() +
                 int64_t{a.q_heads + kv_head} * a.head_dim;
  return {row, row + int64_t{a.kv_heads} * a.head_dim};
}

/// Running state of one split; lane d of the warp holds elements d, d+32, ... of o.
struct PlainState {
  float mc = cn::neg_inf(), l[4] = {0.f, 0.f, 0.f, 0.f}, o[kMaxHeadDim / 32] = {};
};

/// Adds keys [first, last] of one block; `p` is shared memory for kKeyBlock values.
template <class S>
TEMPER_DEVICE void plain_block(PlainState& s, const AttentionCall& a, const float* q, float* p, int sequence,
                               int kv_head, int first, int last) {
  const int lane = threadIdx.x & 31, count = last - first + 1;
  float mx = cn::neg_inf();
  for (int i = lane; i < cn::kKeyBlock; i += 32) {
    float score = cn::neg_inf();
    if (i < count) {
      const S* k = locate_key<S>(a, sequence, kv_head, first + i).k;
      score = 0.f;
      for (int d = 0; d < a.head_dim; ++d) score = __fmaf_rn(q[d], cn::load(k[d]), score);
    }
    p[i] = score;
    mx = fmaxf(mx, score);
  }
  for (int w = 16; w > 0; w /= 2) mx = fmaxf(mx, __shfl_xor_sync(~0u, mx, w));
  const float mc = cn::new_max(s.mc, mx, a.c), base = cn::base(mc), decay = cn::decay(s.mc, base);
  s.mc = mc;
  for (int i = lane; i < cn::kKeyBlock; i += 32) p[i] = cn::prob(p[i], a.c, base);
  __syncwarp();
  for (int part = 0; part < 4; ++part) {
    float sum = 0.f;
    for (int i = 2 * part; i < cn::kKeyBlock; i += 8) sum = cn::add_p(cn::add_p(sum, p[i]), p[i + 1]);
    s.l[part] = cn::add_block(s.l[part], decay, sum);
  }
#pragma unroll
  for (int j = 0; j < kMaxHeadDim / 32; ++j) {
    const int d = lane + 32 * j;
    if (d >= a.head_dim) break;
    s.o[j] = cn::rescale(s.o[j], decay);
    for (int i = 0; i < count; ++i) {
      const S* v = locate_key<S>(a, sequence, kv_head, first + i).v;
      s.o[j] = __fmaf_rn(cn::load(cn::store<S>(p[i])), cn::load(v[d]), s.o[j]);
    }
  }
  __syncwarp();
}

template <class S>
__global__ void __launch_bounds__(kPlainWarps * 32) plain_kernel(const AttentionCall a) {
  begin_kernel();
  __shared__ float queries[kPlainWarps][kMaxHeadDim], probs[kPlainWarps][cn::kKeyBlock];
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const int64_t item = blockIdx.x * int64_t{kPlainWarps} + warp;
  if (item >= int64_t{a.T} * a.q_heads) return;
  const int row = static_cast<int>(item / a.q_heads), head = static_cast<int>(item % a.q_heads);
  const int sequence = sequence_of(a.cu, a.S, row), kv_head = head / (a.q_heads / a.kv_heads);
  const int end = a.paged ? a.pages.lengths[sequence] : a.cu[sequence + 1] - a.cu[sequence];
  const int position = end - (a.cu[sequence + 1] - row);
  const S* q = static_cast<const S*>(a.qkv) + row * a.row_width() + int64_t{head} * a.head_dim;
  for (int d = lane; d < a.head_dim; d += 32) queries[warp][d] = cn::load(q[d]);
  __syncwarp();
  PlainState all;
  float all_l = 0.f;
  for (int split = 0; split <= position; split += cn::kSplit) {
    PlainState s;
    const int split_end = min(split + cn::kSplit - 1, position);
    for (int first = split; first <= split_end; first += cn::kKeyBlock)
      plain_block<S>(s, a, queries[warp], probs[warp], sequence, kv_head, first,
                     min(first + cn::kKeyBlock - 1, split_end));
    const float l = cn::row_sum(s.l[0], s.l[1], s.l[2], s.l[3]);
    if (split == 0) {
      all = s;
      all_l = l;
      continue;
    }
    const cn::Merge w = cn::merge(all.mc, s.mc);
    all.mc = w.mc;
    all_l = cn::merged(w, all_l, l);
#pragma unroll
    for (int j = 0; j < kMaxHeadDim / 32; ++j) all.o[j] = cn::merged(w, all.o[j], s.o[j]);
  }
  const float inverse = cn::inverse(all_l);
  S* out = static_cast<S*>(a.out) + (int64_t{row} * a.q_heads + head) * a.head_dim;
#pragma unroll
  for (int j = 0; j < kMaxHeadDim / 32; ++j)
    if (lane + 32 * j < a.head_dim) out[lane + 32 * j] = cn::store<S>(cn::finish(all.o[j], inverse));
  if (lane == 0 && a.lse != nullptr) a.lse[int64_t{head} * a.T + row] = cn::attention_lse(all.mc, all_l);
}

// ---- pages

/// One thread per 2-byte word of a key and value row of the batch.
__global__ void __launch_bounds__(kThreads)
    append_kernel(const AttentionCall a, uint16_t* keys, uint16_t* values, int words) {
  begin_kernel();
  const int64_t per_row = int64_t{a.kv_heads} * words, index = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (index >= a.T * per_row) return;
  const int row = static_cast<int>(index / per_row), head = static_cast<int>(index % per_row / words);
  const int word = static_cast<int>(index % words);
  const auto* from = static_cast<const uint16_t*>(a.qkv) +
                     (int64_t{row} * (a.q_heads + 2 * a.kv_heads) + a.q_heads + head) * words + word;
  const int64_t to = int64_t{appended_row(a, row, head)} * words + word;
  keys[to] = from[0];
  values[to] = from[per_row];
}

AttentionCall call_of(Tensor out, CTensor qkv, CTensor cu_seqlens, const AttentionShape& shape,
                      double scale) {
  return {.out = out.raw(),
          .lse = nullptr,
          .qkv = qkv.data,
          .cu = cu_seqlens.as<int32_t>(),
          .T = static_cast<int>(qkv.dim(0)),
          .S = static_cast<int>(cu_seqlens.dim(0)) - 1,
          .q_heads = static_cast<int>(shape.q_heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .head_dim = static_cast<int>(shape.head_dim),
          .c = static_cast<float>(scale * 1.4426950408889634),
          .paged = false,
          .pages = {}};
}

}  // namespace

AttentionCall paged_call(Tensor out, CTensor qkv, const PagedKv& kv, int64_t layer, CTensor cu_seqlens,
                         const AttentionShape& shape, double scale) {
  AttentionCall a = call_of(out, qkv, cu_seqlens, shape, scale);
  const int64_t offset = layer * kv.keys.dim(1) * kv.keys.dim(2) * dtype_size(kv.keys.dtype);
  a.paged = true;
  a.pages = {static_cast<char*>(kv.keys.raw()) + offset,
             static_cast<char*>(kv.values.raw()) + offset,
             kv.page_table.as<int32_t>(),
             kv.lengths.as<int32_t>(),
             static_cast<int>(kv.page_table.dim(1)),
             static_cast<int>(kv.page_tokens),
             static_cast<int>(kv.keys.dim(1))};
  return a;
}

CUtensorMap page_map(const Libraries& libraries, const void* data, const AttentionCall& a, int box_rows) {
  const auto rows = uint64_t{1} * static_cast<uint64_t>(a.pages.pages) * static_cast<uint64_t>(a.kv_heads) *
                    static_cast<uint64_t>(a.pages.page_tokens);
  const auto width = static_cast<uint64_t>(a.head_dim);
  return libraries.tensor_map(data, {64, rows, width / 64}, {width * 2, 128},
                              {64, static_cast<uint32_t>(box_rows), 1});
}

void attention_plain(Ctx& ctx, DType type, const AttentionCall& a) {
  CHECK(a.head_dim <= kMaxHeadDim, "head_dim {}", a.head_dim);
  dispatch_gpu_storage(type, [&](auto s) {
    launch(ctx.lane, plain_kernel<decltype(s)>, blocks_for(int64_t{a.T} * a.q_heads, kPlainWarps),
           kPlainWarps * 32, 0, a);
  });
}

void attention_varlen_forward(Ctx& ctx, Tensor out, Tensor lse, CTensor qkv, CTensor cu_seqlens,
                              AttentionShape shape, double scale) {
  const ArenaScope scope(ctx.scratch);
  AttentionCall a = call_of(out, qkv, cu_seqlens, shape, scale);
  a.lse = lse.as<float>();
  if (has_tensor_core_kernel(qkv.dtype, a.head_dim))
    attention_prefill(ctx, a);
  else
    attention_plain(ctx, qkv.dtype, a);
}

void append_kv(Ctx& ctx, PagedKv kv, int64_t layer, CTensor qkv, CTensor cu_seqlens, AttentionShape shape) {
  const AttentionCall a = paged_call({}, qkv, kv, layer, cu_seqlens, shape, 1.0);
  const int words = a.head_dim * static_cast<int>(dtype_size(qkv.dtype)) / 2;
  launch(ctx.lane, append_kernel, blocks_for(int64_t{a.T} * a.kv_heads * words, kThreads), kThreads, 0, a,
         static_cast<uint16_t*>(a.pages.keys), static_cast<uint16_t*>(a.pages.values), words);
}

void attention_paged(Ctx& ctx, Tensor out, CTensor qkv, PagedKv kv, int64_t layer, CTensor cu_seqlens,
                     AttentionShape shape, double scale) {
  const ArenaScope scope(ctx.scratch);
  AttentionCall a = paged_call(out, qkv, kv, layer, cu_seqlens, shape, scale);
  if (!has_tensor_core_kernel(qkv.dtype, a.head_dim)) return attention_plain(ctx, qkv.dtype, a);
  if (!may_use_decode(ctx, a)) return attention_prefill(ctx, a);
  a.beside = a.T > a.S;
  if (a.beside) attention_prefill(ctx, a);
  attention_decode(ctx, a);
}

}  // namespace temper::cuda
