#pragma once
// One row of an RMSNorm whose weight is 1 + w, forward and backward.

#include "kernels/cpu/row_loops.h"

namespace temper::cpu {

/// Returns 1 / rms.
template <class S, class A = Accumulate<S>>
inline A offset_norm_row(S* y, const S* x, const S* w, int64_t width, A eps) {
  const A squares =
      lane_sum<A>(0, width, [&](A sum, int64_t i) { return std::fma(load(x[i]), load(x[i]), sum); });
  const A r = A(1) / std::sqrt(squares / static_cast<A>(width) + eps);
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) y[i] = store<S>((load(x[i]) * r) * (A(1) + load(w[i])));
  return r;
}

/// dx = round(dresidual + ..), without the addition where that is null; dw accumulates.
template <class S, class A = Accumulate<S>>
inline void offset_norm_row_backward(S* dx, A* dw, const S* dy, const S* dresidual, const S* x, const S* w,
                                     A r, int64_t width) {
  const A dot = lane_sum<A>(0, width, [&](A sum, int64_t i) {
    return std::fma(load(dy[i]) * (A(1) + load(w[i])), load(x[i]) * r, sum);
  });
  const A mean = dot / static_cast<A>(width);
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const A normed = load(x[i]) * r, upstream = load(dy[i]);
    const A through = r * (upstream * (A(1) + load(w[i])) - normed * mean);
    dw[i] = std::fma(upstream, normed, dw[i]);
    dx[i] = store<S>(dresidual ? load(dresidual[i]) + through : through);
  }
}

}  // namespace temper::cpu
