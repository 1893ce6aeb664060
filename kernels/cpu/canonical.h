#pragma once
// The arithmetic that every forward kernel of the CPU backend shares (NUMERICS.md has the whole definition).
// Reductions over features run in kLanes partial sums (element i goes to lane i mod 16, ascending, one fused
// multiply-add each) that tree_sum folds in one fixed way: the bits do not depend on the vector width of the
// machine, on the number of rows, or on threads. fp32 for fp32 and bf16 storage, fp64 for fp64.

#include <bit>
#include <cmath>
#include <cstdint>

#include "src/core/dtype.h"

namespace temper::cpu {

inline constexpr int kLanes = 16;

template <class A>
inline A tree_sum(const A* lanes) {
  A s[8];
  for (int i = 0; i < 8; ++i) s[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) s[i] = s[i] + s[i + 4];
  for (int i = 0; i < 2; ++i) s[i] = s[i] + s[i + 2];
  return s[0] + s[1];
}

inline float load(float x) { return x; }
inline double load(double x) { return x; }
inline float load(bf16 x) { return static_cast<float>(x); }

/// Rounds an accumulator to storage, to nearest even.
template <class S, class A>
inline S store(A x) {
  return static_cast<S>(x);
}

/// e^x for finite x: within 1 ulp or so in fp32, built from fused multiply-adds so that it has the same bits in a
/// scalar loop and in any vector loop. Underflow below 2^-126 is 0; e^-inf is 0; NaN stays NaN.
inline float exponential(float x) {
  const float clamped = x < -104.0f ? -104.0f : (x > 88.7f ? 88.7f : x);
  const float n = std::rint(clamped * 1.44269504f);
  float r = std::fma(n, -0.693145752f, clamped);
  r = std::fma(n, -1.42860677e-6f, r);
  float p = 1.98756915e-4f;
  p = std::fma(p, r, 1.39819994e-3f);
  p = std::fma(p, r, 8.33345205e-3f);
  p = std::fma(p, r, 4.16657962e-2f);
  p = std::fma(p, r, 1.66666657e-1f);
  p = std::fma(p, r, 0.5f);
  p = std::fma(p, r * r, r) + 1.0f;
  const int32_t exponent = static_cast<int32_t>(n);
  const float scaled = std::bit_cast<float>(std::bit_cast<int32_t>(p) + (exponent << 23));
  const float bounded = exponent < -125 ? 0.0f : scaled;
  return x == x ? bounded : x;
}
inline double exponential(double x) { return std::exp(x); }

}  // namespace temper::cpu
