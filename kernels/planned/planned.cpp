// Sizes as in the CUDA kernels of the same name, where they can be large; what stays below a MiB is left out.
// tests/gpu/dry_run_test compares them with what the kernels take.

#include "kernels/planned/planned.h"

#include <algorithm>

namespace temper::planned {
namespace {

constexpr int64_t kFloat = 4;

int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t whole_eights(int64_t n) { return ceil_divide(n, 8) * 8; }

/// Logits of the head's forward, in windows of 64 MiB.
void logit_windows(Ctx& ctx, int64_t n, int64_t V, int64_t most_rows) {
  constexpr int64_t kLogits = int64_t{16} << 20;
  const int64_t rows = std::min(n, most_rows);
  if (rows == 0) return;
  const int64_t ids =
      std::min(V, std::max(kVocabularyChunk, kLogits / rows / kVocabularyChunk * kVocabularyChunk));
  ArenaScope scope(ctx.scratch);
  ctx.scratch.allocate(rows * whole_eights(ids) * kFloat);
}

}  // namespace

void linear_swiglu_forward(Ctx& ctx, Tensor a, CTensor x, CTensor w, CTensor) {
  constexpr int64_t kSkinnyRows = 64;
  if (x.dim(0) <= kSkinnyRows && a.dtype == DType::bf16 && x.dim(1) % 64 == 0 && a.dim(1) % 8 == 0) return;
  ArenaScope scope(ctx.scratch);
  ctx.scratch.make({x.dim(0), w.dim(0)}, x.dtype);
}

void linear_backward_bias(Ctx& ctx, Tensor, CTensor dy) {
  ArenaScope scope(ctx.scratch);
  ctx.scratch.make({ceil_divide(dy.dim(0), 256), dy.dim(1)}, DType::f32);
}

void rmsnorm_backward(Ctx& ctx, Tensor, Tensor, CTensor, CTensor, CTensor x, CTensor, CTensor) {
  const int64_t width = x.dim(1), most = width <= 1024 ? 528 : width <= 4096 ? 264 : 132;
  const int64_t rows = std::max<int64_t>(4, ceil_divide(x.dim(0), most));
  ArenaScope scope(ctx.scratch);
  ctx.scratch.make({ceil_divide(x.dim(0), rows), width}, DType::f32);
}

void attention_varlen_backward(Ctx& ctx, Tensor, CTensor, CTensor qkv, CTensor, CTensor, CTensor cu_seqlens,
                               AttentionShape shape, double) {
  ArenaScope scope(ctx.scratch);
  const int64_t T = qkv.dim(0), S = cu_seqlens.dim(0) - 1, dh = shape.head_dim;
  if (qkv.dtype != DType::bf16 || (dh != 64 && dh != 128)) {
    ctx.scratch.allocate(T * shape.q_heads * kFloat);
    return;
  }
  const int64_t keys = 128, padded = (T / keys + S) * keys, rows = shape.q_heads * padded;
  for (const int64_t floats : {rows, rows, rows / 64, rows * dh}) ctx.scratch.allocate(floats * kFloat);
}

void attention_paged(Ctx& ctx, Tensor, CTensor, PagedKv kv, int64_t, CTensor cu_seqlens, AttentionShape shape,
                     double) {
  constexpr int64_t kSplit = 1024, kDecodeGroup = 8;
  const bool tensor_cores = kv.keys.dtype == DType::bf16 && (shape.head_dim == 64 || shape.head_dim == 128);
  const int64_t splits = ceil_divide(kv.page_table.dim(1) * kv.page_tokens, kSplit);
  if (!tensor_cores || shape.q_heads / shape.kv_heads > kDecodeGroup || splits <= 1) return;
  ArenaScope scope(ctx.scratch);
  const int64_t slots = (cu_seqlens.dim(0) - 1) * shape.q_heads * splits;
  ctx.scratch.allocate(slots * shape.head_dim * kFloat);
  ctx.scratch.allocate(slots * 2 * kFloat);
}

void logprob_forward(Ctx& ctx, Tensor, Tensor, Tensor, CTensor hidden, CTensor w, CTensor, double) {
  ArenaScope scope(ctx.scratch);
  const int64_t n = hidden.dim(0), V = w.dim(0);
  ctx.scratch.allocate(n * num_chunks(V) * 3 * kFloat);
  logit_windows(ctx, n, V, 2048);
}

void logprob_stats(Ctx& ctx, Tensor, Tensor, CTensor hidden, CTensor w, CTensor, double, VocabularyShare) {
  if (w.dim(0) > 0) logit_windows(ctx, hidden.dim(0), w.dim(0), 2048);
}

void logprob_backward(Ctx& ctx, Tensor, Tensor, CTensor, CTensor, CTensor hidden, CTensor w, CTensor, CTensor,
                      CTensor, double, VocabularyShare) {
  constexpr int64_t kIds = 8192, kMostRows = 4096;
  const int64_t n = hidden.dim(0), D = hidden.dim(1), pitch = std::min(kIds, whole_eights(w.dim(0)));
  if (n == 0) return;
  ArenaScope scope(ctx.scratch);
  ctx.scratch.make({n}, DType::i32);
  const int64_t rows = whole_eights(ceil_divide(n, ceil_divide(n, kMostRows)));
  ctx.scratch.make({rows, D}, hidden.dtype);
  ctx.scratch.make({rows, pitch}, DType::f32);
  if (hidden.dtype != DType::f32) ctx.scratch.make({rows, pitch}, hidden.dtype);
  ctx.scratch.make({rows, D}, DType::f32);
}

void sample_chunks(Ctx& ctx, SampleChunks, CTensor hidden, CTensor w, SampleRows, int64_t, VocabularyShare) {
  if (w.dim(0) > 0) logit_windows(ctx, hidden.dim(0), w.dim(0), hidden.dim(0));
}

}  // namespace temper::planned
