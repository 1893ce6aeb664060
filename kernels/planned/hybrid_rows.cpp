// Scratch memory of norms, gates and convolutions of hybrid models on a GPU.

#include "kernels/cuda/scratch/hybrid_rows.h"

#include "kernels/planned/hybrid.h"

namespace temper::planned {

void offset_norm_backward(Ctx& ctx, Tensor, Tensor, CTensor, CTensor, CTensor x, CTensor, CTensor) {
  ArenaScope scope(ctx.scratch);
  cuda::rmsnorm_backward_scratch(ctx.scratch, x.dim(0), x.dim(1));
}

void gated_heads_backward(Ctx& ctx, Tensor, Tensor, Tensor, CTensor, CTensor x, CTensor, CTensor, CTensor,
                          RopeInput, AttentionShape shape) {
  ArenaScope scope(ctx.scratch);
  cuda::gated_heads_backward_scratch(ctx.scratch, x.dim(0) * shape.q_heads, x.dim(0) * shape.kv_heads,
                                     shape.head_dim);
}

void causal_conv_backward(Ctx& ctx, Tensor, Tensor, CTensor, CTensor x, CTensor w, CTensor) {
  ArenaScope scope(ctx.scratch);
  cuda::causal_conv_backward_scratch(ctx.scratch, x.dim(0), w.dim(0), w.dim(1));
}

void delta_gates_backward(Ctx& ctx, Tensor, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor, CTensor x,
                          CTensor, CTensor, DeltaShape shape) {
  ArenaScope scope(ctx.scratch);
  cuda::delta_gates_backward_scratch(ctx.scratch, x.dim(0), shape.value_heads);
}

void gated_norm_backward(Ctx& ctx, Tensor, Tensor, Tensor, CTensor, CTensor, CTensor x, CTensor, CTensor,
                         DeltaShape shape) {
  ArenaScope scope(ctx.scratch);
  cuda::gated_norm_backward_scratch(ctx.scratch, x.dim(0) * shape.value_heads, shape.value_dim);
}

}  // namespace temper::planned
