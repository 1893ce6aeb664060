#pragma once
// What an AdamW update is for every element, for all backends.

#include <cmath>

#include "kernels/types.h"

namespace temper {

/// AdamwStep with everything that is the same for all elements, computed in fp64 and rounded once.
template <class A>
struct AdamwFactors {
  A grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, decay, step_size, v_scale;

  explicit AdamwFactors(const AdamwStep& s)
      : grad_scale(static_cast<A>(s.grad_scale)),
        beta1(static_cast<A>(s.beta1)),
        one_minus_beta1(static_cast<A>(1.0 - s.beta1)),
        beta2(static_cast<A>(s.beta2)),
        one_minus_beta2(static_cast<A>(1.0 - s.beta2)),
        eps(static_cast<A>(s.eps)),
        decay(static_cast<A>(1.0 - s.lr * s.weight_decay)),
        step_size(static_cast<A>(s.lr / (1.0 - std::pow(s.beta1, static_cast<double>(s.count))))),
        v_scale(static_cast<A>(1.0 / (1.0 - std::pow(s.beta2, static_cast<double>(s.count))))) {}
};

}  // namespace temper
