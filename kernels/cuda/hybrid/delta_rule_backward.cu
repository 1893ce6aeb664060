#include "kernels/cuda/hybrid/hybrid.h"
#include "kernels/cuda/launch.h"

namespace temper::cuda {

void delta_rule_backward(Ctx&, Tensor, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor, CTensor, CTensor,
                         DeltaShape) {
  CHECK(false, "delta_rule_backward has no kernel yet");
}

}  // namespace temper::cuda
