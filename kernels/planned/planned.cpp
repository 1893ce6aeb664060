// What the CUDA kernels of the same name ask for, by the functions that they call; what stays below a MiB is
// left out. tests/gpu/dry_run_test compares it with what they take.

#include "kernels/planned/planned.h"

#include <algorithm>

#include "kernels/cuda/scratch/adapter.h"
#include "kernels/cuda/scratch/attention.h"
#include "kernels/cuda/scratch/experts.h"
#include "kernels/cuda/scratch/head.h"
#include "kernels/cuda/scratch/linear.h"
#include "kernels/cuda/scratch/norm.h"

namespace temper::planned {
namespace {

/// Logits of the head's forward, in the largest of its windows.
void logits(Ctx& ctx, CTensor hidden, CTensor w, int64_t most_rows) {
  const int64_t rows = std::min(hidden.dim(0), most_rows);
  if (rows == 0 || w.dim(0) == 0) return;
  ArenaScope scope(ctx.scratch);
  cuda::logits_scratch(ctx.scratch, rows, w.dim(0));
}

}  // namespace

void linear_swiglu_forward(Ctx& ctx, Tensor a, CTensor x, CTensor, CTensor) {
  if (cuda::is_skinny_swiglu(x.dim(0), x.dim(1), a.dim(1), x.dtype)) return;
  ArenaScope scope(ctx.scratch);
  cuda::linear_swiglu_forward_scratch(ctx.scratch, x.dim(0), a.dim(1), x.dtype);
}

void linear_backward_bias(Ctx& ctx, Tensor, CTensor dy) {
  ArenaScope scope(ctx.scratch);
  cuda::linear_backward_bias_scratch(ctx.scratch, dy.dim(0), dy.dim(1));
}

void adapter_backward_a(Ctx& ctx, Tensor da, CTensor du, CTensor x, GradWrite) {
  const AdapterBlocks whole{1, {0}, {0}, {x.dim(1)}};
  if (!cuda::has_adapter_parts(x, du, whole, du.dim(1))) return;
  ArenaScope scope(ctx.scratch);
  cuda::adapter_parts_scratch(ctx.scratch, x.dim(0), da.size());
}

void adapter_backward_b(Ctx& ctx, Tensor db, CTensor dy, CTensor u, double, AdapterBlocks blocks, GradWrite) {
  ArenaScope scope(ctx.scratch);
  if (cuda::has_adapter_parts(dy, u, blocks, db.dim(1)))
    cuda::adapter_parts_scratch(ctx.scratch, dy.dim(0), db.size());
  else
    cuda::adapter_whole_gradient_scratch(ctx.scratch, dy, u);
}

void rmsnorm_backward(Ctx& ctx, Tensor, Tensor, CTensor, CTensor, CTensor x, CTensor, CTensor) {
  ArenaScope scope(ctx.scratch);
  cuda::rmsnorm_backward_scratch(ctx.scratch, x.dim(0), x.dim(1));
}

void sort_by_expert(Ctx& ctx, Tensor offsets, Tensor, Tensor, CTensor ids) {
  ArenaScope scope(ctx.scratch);
  cuda::sort_by_expert_scratch(ctx.scratch, ids.size(), offsets.dim(0) - 1);
}

void attention_varlen_backward(Ctx& ctx, Tensor, CTensor, CTensor qkv, CTensor, CTensor, CTensor cu_seqlens,
                               AttentionShape shape, double) {
  ArenaScope scope(ctx.scratch);
  const int64_t rows = qkv.dim(0), sequences = cu_seqlens.dim(0) - 1;
  if (!cuda::has_tensor_core_kernel(qkv.dtype, shape.head_dim))
    cuda::attention_backward_plain_scratch(ctx.scratch, rows, shape.q_heads);
  else if (shape.head_dim == 256)
    cuda::attention_backward_two_kernels_scratch(ctx.scratch, rows, sequences, shape.q_heads);
  else
    cuda::attention_backward_one_pass_scratch(ctx.scratch, rows, sequences, shape.q_heads, shape.head_dim);
}

void attention_paged(Ctx& ctx, Tensor, CTensor qkv, PagedKv kv, int64_t, CTensor cu_seqlens,
                     AttentionShape shape, double) {
  if (!cuda::has_tensor_core_kernel(qkv.dtype, shape.head_dim)) return;
  if (shape.q_heads / shape.kv_heads > cuda::kDecodeGroup) return;
  ArenaScope scope(ctx.scratch);
  cuda::attention_decode_scratch(ctx.scratch, cu_seqlens.dim(0) - 1, shape.q_heads, shape.head_dim,
                                 cuda::num_splits(kv.page_table.dim(1), kv.page_tokens));
}

void logprob_forward(Ctx& ctx, Tensor, Tensor, Tensor, CTensor hidden, CTensor w, CTensor, double) {
  ArenaScope scope(ctx.scratch);
  cuda::logprob_forward_scratch(ctx.scratch, hidden.dim(0), w.dim(0));
  logits(ctx, hidden, w, cuda::kLogprobRows);
}

void logprob_stats(Ctx& ctx, Tensor, Tensor, CTensor hidden, CTensor w, CTensor, double, VocabularyShare) {
  logits(ctx, hidden, w, cuda::kLogprobRows);
}

/// The scratch is taken as if every row had a gradient.
void logprob_backward(Ctx& ctx, Tensor, Tensor, CTensor, CTensor, CTensor hidden, CTensor w, CTensor, CTensor,
                      CTensor, double, VocabularyShare) {
  const int64_t n = hidden.dim(0);
  if (n == 0 || w.dim(0) == 0) return;
  ArenaScope scope(ctx.scratch);
  cuda::logprob_backward_scratch(ctx.scratch, n);
  cuda::logprob_backward_rows_scratch(ctx.scratch, cuda::backward_rows_at_once(n), hidden.dim(1), w.dim(0),
                                      hidden.dtype);
}

void sample_chunks(Ctx& ctx, SampleChunks, CTensor hidden, CTensor w, SampleRows, int64_t, VocabularyShare) {
  logits(ctx, hidden, w, hidden.dim(0));
}

}  // namespace temper::planned
