#include "src/ops/glu.h"

namespace temper {

void swiglu_forward(Ctx& c, Tensor a, CTensor gate_up) {
  CHECK_SHAPE(a, gate_up.dim(0), a.dim(1));
  CHECK_SHAPE(gate_up, a.dim(0), 2 * a.dim(1));
  DISPATCH(c, swiglu_forward, a, gate_up);
}

void linear_swiglu_forward(Ctx& c, Tensor a, CTensor x, CTensor w, CTensor bias) {
  CHECK_SHAPE(a, x.dim(0), a.dim(1));
  CHECK_SHAPE(w, 2 * a.dim(1), x.dim(1));
  if (!bias.empty()) CHECK_SHAPE(bias, w.dim(0));
  CHECK(x.dim(1) > 0, "a sum over no features");
  DISPATCH(c, linear_swiglu_forward, a, x, w, bias);
}

void swiglu_backward(Ctx& c, Tensor dgate_up, CTensor da, CTensor gate_up) {
  CHECK_SHAPE(da, gate_up.dim(0), da.dim(1));
  CHECK_SHAPE(gate_up, da.dim(0), 2 * da.dim(1));
  CHECK_SHAPE(dgate_up, gate_up.dim(0), gate_up.dim(1));
  DISPATCH(c, swiglu_backward, dgate_up, da, gate_up);
}

}  // namespace temper
