// Scratch memory of norms, gates and convolutions of hybrid models on a GPU.

#include "kernels/planned/hybrid.h"

namespace temper::planned {

void offset_norm_backward(Ctx&, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor, CTensor) {}
void gated_heads_backward(Ctx&, Tensor, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor, CTensor,
                          RopeInput, AttentionShape) {}
void causal_conv_backward(Ctx&, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor) {}
void delta_gates_backward(Ctx&, Tensor, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor, CTensor, CTensor,
                          CTensor, DeltaShape) {}
void gated_norm_backward(Ctx&, Tensor, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor, CTensor,
                         DeltaShape) {}

}  // namespace temper::planned
