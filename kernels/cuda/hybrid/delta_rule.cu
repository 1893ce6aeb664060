#include "kernels/cuda/hybrid/hybrid.h"
#include "kernels/cuda/launch.h"

namespace temper::cuda {

void delta_rule_forward(Ctx&, Tensor, Tensor, Tensor, CTensor, CTensor, CTensor, CTensor, DeltaShape) {
  CHECK(false, "delta_rule_forward has no kernel yet");
}

void delta_rule_paged(Ctx&, Tensor, DeltaPages, int64_t, CTensor, CTensor, CTensor, CTensor, DeltaShape) {
  CHECK(false, "delta_rule_paged has no kernel yet");
}

}  // namespace temper::cuda
