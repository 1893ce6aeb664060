#pragma once
// SwiGLU feed-forward: y = (silu(x Wg^T) * (x Wu^T)) Wd^T, gate and up in one product.

#include "src/nn/keep.h"
#include "src/nn/linear.h"
#include "src/ops/glu.h"

namespace temper {

struct MlpSaved {
  CTensor x;       // [T, D], or own tokens where ranks share them; empty where it is computed again
  Tensor gate_up;  // [T, 2F]
  Tensor a;        // [T, F]; empty where it is computed again
  Tensor low_in = {}, low_out = {};  // of adapters, or empty (Linear::make_low)
};

class Mlp {
 public:
  Mlp(Linear gate_up, Linear down) : gate_up_(gate_up), down_(down) {}

  /// y [T, D] is the caller's.
  void forward_into(Ctx& c, Tensor y, CTensor x, MlpSaved* saved, const Keep& keep = {},
                    const StreamRows& stream = {}) const {
    const Tensor a =
        keep.for_rest(c).make({gate_up_.output_rows(x, stream), gate_up_.outputs() / 2}, x.dtype);
    if (saved) {
      const Tensor low_in = gate_up_.make_low(keep, x, stream), low_out = down_.make_low(keep, a, stream);
      const Tensor gate_up = gate_up_.forward_swiglu_kept(c, a, x, keep.for_products(c), stream, low_in);
      *saved = {x, gate_up, a, low_in, low_out};
      if (!keep.rest) saved->x = {}, saved->a = {};
      return down_.forward_into(c, y, a, stream, low_out);
    }
    gate_up_.forward_swiglu(c, a, x, stream);
    down_.forward_into(c, y, a, stream);
  }
  /// `x` as in forward. The gradient of gate_up takes the memory of what was saved.
  Tensor backward(Ctx& c, CTensor dy, CTensor x, const MlpSaved& saved, const StreamRows& stream = {}) const {
    Tensor a = saved.a;
    if (a.empty()) {
      a = c.scratch.make({saved.gate_up.dim(0), gate_up_.outputs() / 2}, x.dtype);
      swiglu_forward(c, a, saved.gate_up);
    }
    const Tensor dgate_up = saved.gate_up;
    down_.backward_swiglu(c, dgate_up, dy, a, saved.gate_up, stream, saved.low_out);
    return gate_up_.backward(c, dgate_up, x, stream, saved.low_in);
  }

 private:
  Linear gate_up_, down_;
};

}  // namespace temper
