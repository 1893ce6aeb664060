#include "kernels/cuda/hybrid/hybrid.h"
#include "kernels/cuda/launch.h"

namespace temper::cuda {

void causal_conv_forward(Ctx&, Tensor, CTensor, CTensor, CTensor) {
  CHECK(false, "causal_conv_forward has no kernel yet");
}

void causal_conv_paged(Ctx&, Tensor, DeltaPages, int64_t, CTensor, CTensor, CTensor) {
  CHECK(false, "causal_conv_paged has no kernel yet");
}

void causal_conv_backward(Ctx&, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor) {
  CHECK(false, "causal_conv_backward has no kernel yet");
}

}  // namespace temper::cuda
