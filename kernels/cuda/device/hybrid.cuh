#pragma once
// The arithmetic of what hybrid models have beside canonical.cuh, in the same way: kernels/cuda/NUMERICS.md.

#include "kernels/cuda/device/canonical.cuh"

namespace temper::cuda::canonical {

/// The norm of canonical.cuh by 1 + w: sums and gradients as there, one rounding.
struct OffsetWeight {
  template <class S>
  TEMPER_DEVICE static S value(S x, float scale, S w) {
    return store<S>(__fmul_rn(__fmul_rn(load(x), scale), of(load(w))));
  }
  TEMPER_DEVICE static float of(float w) { return __fadd_rn(1.f, w); }
};

TEMPER_DEVICE float sigmoid(float x) { return __frcp_rn(__fadd_rn(1.f, expf(-x))); }
TEMPER_DEVICE float silu(float x) { return __fmul_rn(x, sigmoid(x)); }
TEMPER_DEVICE float silu_slope(float x) {
  const float s = sigmoid(x);
  return __fmul_rn(s, __fadd_rn(1.f, __fmul_rn(x, __fsub_rn(1.f, s))));
}

// ---- convolution: one chain over ascending taps from zero; rows before the sequence's first are zeros.
template <int kTaps>
TEMPER_DEVICE float tap_sum(const float (&w)[kTaps], const float (&x)[kTaps]) {
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < kTaps; ++j) sum = __fmaf_rn(w[j], x[j], sum);
  return sum;
}

// ---- unit vectors of heads: the sum of squares is that of a norm of the head.
TEMPER_DEVICE float unit_scale(float squares) { return __frcp_rn(__fsqrt_rn(__fadd_rn(squares, 1e-6f))); }
TEMPER_DEVICE float unit_value(float y, float r, float scale) { return __fmul_rn(__fmul_rn(y, r), scale); }
/// n = y r, g = dy scale, dot = <n, g> as a norm's dot product.
TEMPER_DEVICE float unit_gradient(float g, float n, float dot, float r) {
  return __fmul_rn(r, __fsub_rn(g, __fmul_rn(n, dot)));
}

// ---- gates
TEMPER_DEVICE float softplus(float x) { return x > 20.f ? x : log1pf(expf(x)); }
TEMPER_DEVICE float decay_gate(float a_log, float x) { return __fmul_rn(-expf(a_log), softplus(x)); }
TEMPER_DEVICE float decay_gate_gradient(float dg, float a_log, float x) {
  return __fmul_rn(__fmul_rn(-dg, expf(a_log)), x > 20.f ? 1.f : sigmoid(x));
}
TEMPER_DEVICE float sigmoid_gradient(float dy, float s) {
  return __fmul_rn(__fmul_rn(dy, s), __fsub_rn(1.f, s));
}

// ---- gated norm: r and the sums of its backward as those of a norm of the head.
TEMPER_DEVICE float gated_norm_value(float o, float r, float w, float z) {
  return __fmul_rn(__fmul_rn(w, __fmul_rn(o, r)), silu(z));
}

}  // namespace temper::cuda::canonical
