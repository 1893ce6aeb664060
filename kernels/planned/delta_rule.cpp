// Scratch memory of the gated delta rule on a GPU.

#include "kernels/cuda/scratch/delta_rule_backward.h"
#include "kernels/planned/hybrid.h"

namespace temper::planned {

void delta_rule_backward(Ctx& ctx, Tensor, Tensor, Tensor, CTensor, CTensor qkv, CTensor, CTensor, CTensor,
                         CTensor, DeltaShape shape) {
  ArenaScope scope(ctx.scratch);
  cuda::delta_rule_backward_scratch(ctx.scratch, qkv.dim(0), shape, qkv.dtype);
}

}  // namespace temper::planned
