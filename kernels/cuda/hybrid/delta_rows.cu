#include "kernels/cuda/hybrid/hybrid.h"
#include "kernels/cuda/launch.h"

namespace temper::cuda {

void unit_heads_forward(Ctx&, Tensor, DeltaShape) { CHECK(false, "unit_heads_forward has no kernel yet"); }

void unit_heads_backward(Ctx&, Tensor, CTensor, DeltaShape) {
  CHECK(false, "unit_heads_backward has no kernel yet");
}

void delta_gates_forward(Ctx&, Tensor, Tensor, CTensor, CTensor, CTensor, DeltaShape) {
  CHECK(false, "delta_gates_forward has no kernel yet");
}

void delta_gates_backward(Ctx&, Tensor, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor, CTensor, CTensor,
                          CTensor, DeltaShape) {
  CHECK(false, "delta_gates_backward has no kernel yet");
}

void gated_norm_forward(Ctx&, Tensor, Tensor, CTensor, CTensor, CTensor, DeltaShape, double) {
  CHECK(false, "gated_norm_forward has no kernel yet");
}

void gated_norm_backward(Ctx&, Tensor, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor, CTensor,
                         DeltaShape) {
  CHECK(false, "gated_norm_backward has no kernel yet");
}

}  // namespace temper::cuda
