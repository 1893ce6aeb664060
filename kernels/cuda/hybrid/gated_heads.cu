#include "kernels/cuda/hybrid/hybrid.h"
#include "kernels/cuda/launch.h"

namespace temper::cuda {

void gated_heads_forward(Ctx&, Tensor, Tensor, CTensor, CTensor, CTensor, RopeInput, AttentionShape, double) {
  CHECK(false, "gated_heads_forward has no kernel yet");
}

void gated_heads_backward(Ctx&, Tensor, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor, CTensor,
                          RopeInput, AttentionShape) {
  CHECK(false, "gated_heads_backward has no kernel yet");
}

void output_gate_forward(Ctx&, Tensor, CTensor, CTensor, AttentionShape) {
  CHECK(false, "output_gate_forward has no kernel yet");
}

void output_gate_backward(Ctx&, Tensor, Tensor, CTensor, CTensor, CTensor, AttentionShape) {
  CHECK(false, "output_gate_backward has no kernel yet");
}

}  // namespace temper::cuda
