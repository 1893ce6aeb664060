// Scratch memory of the gated delta rule on a GPU.

#include "kernels/planned/hybrid.h"

namespace temper::planned {

void delta_rule_forward(Ctx&, Tensor, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor, DeltaShape) {}
void delta_rule_backward(Ctx&, Tensor, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor, CTensor, CTensor,
                         DeltaShape) {}

}  // namespace temper::planned
