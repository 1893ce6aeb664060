#pragma once
// The arithmetic of the gated delta rule (kernels/cuda/NUMERICS.md) that all of its kernels share, and how
// they store a state.

#include "kernels/cuda/device/canonical.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/delta_types.h"

namespace temper::cuda::delta {

using bf = __nv_bfloat16;
namespace cn = canonical;

constexpr int kChunk = static_cast<int>(kDeltaChunk), kBlock = static_cast<int>(kDeltaBlock);
constexpr int kStep = 16;  // elements of a sum that one product of the tensor cores takes

TEMPER_DEVICE int round_up(int x, int to) { return (x + to - 1) / to * to; }

// ---- a row, G being its summed decay since the chunk began

TEMPER_DEVICE float exponential(float x) { return cn::exp2a(__fmul_rn(x, 1.44269504f)); }
/// e^(G_t - G_j)
TEMPER_DEVICE float since(float later, float earlier) { return exponential(__fsub_rn(later, earlier)); }
TEMPER_DEVICE float next_decay(float before, float g) { return __fadd_rn(before, g); }
/// a = D <k, k_j> and p = D <q, k_j>
TEMPER_DEVICE float factor(float since, float product) { return __fmul_rn(since, product); }
/// Begin of x: what the state holds of k is taken off v.
TEMPER_DEVICE float begin_write(float gamma, float of_state, float v) {
  return __fmaf_rn(-gamma, of_state, v);
}
TEMPER_DEVICE float begin_output(float gamma, float of_state) { return __fmul_rn(gamma, of_state); }
/// Steps of zeros turn -0 into +0; after this nobody sees how many there were.
TEMPER_DEVICE float without_sign_of_zero(float x) { return __fadd_rn(x, 0.f); }
TEMPER_DEVICE float take_off(float a, float u, float x) { return __fmaf_rn(-a, u, x); }
template <class S>
TEMPER_DEVICE S write(float beta, float x) {
  return cn::store<S>(__fmul_rn(beta, x));
}
/// What row j adds to the next state.
template <class S>
TEMPER_DEVICE S remembered(float since, S u) {
  return cn::store<S>(__fmul_rn(since, cn::load(u)));
}

// ---- a state in two planes of 16 bits: what rows read, and what is missing of it. A slot is the high plane
// of all heads, then the low one.

TEMPER_DEVICE uint16_t high_half(float x) {
  return static_cast<uint16_t>((__float_as_uint(x) + 0x8000u) >> 16);
}
TEMPER_DEVICE uint16_t low_half(float x) { return static_cast<uint16_t>(__float_as_uint(x)); }
TEMPER_DEVICE float joined(uint16_t high, uint16_t low) {
  const auto rest = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(low)));
  return __uint_as_float((static_cast<uint32_t>(high) << 16) + rest);
}
TEMPER_DEVICE float joined_low(uint32_t high, uint32_t low) {
  return joined(static_cast<uint16_t>(high), static_cast<uint16_t>(low));
}
TEMPER_DEVICE float joined_high(uint32_t high, uint32_t low) {
  return joined(static_cast<uint16_t>(high >> 16), static_cast<uint16_t>(low >> 16));
}

constexpr int kTileSize = kStep * kStep;
/// Place of element (i, d) in its head's part of a plane. Heads of multiples of 16: tiles of 16 x 16, those
/// of 16 columns d together, each in the order in which the lanes of a warp hold it as the left operand (rows
/// d, sum over i) of a product.
TEMPER_DEVICE int state_place(int i, int d, int key_dim, int value_dim) {
  if (key_dim % kStep != 0 || value_dim % kStep != 0) return i * value_dim + d;
  const int tile = d / kStep * (key_dim / kStep) + i / kStep;
  const int lane = d % 8 * 4 + i % 8 / 2, part = d % kStep / 8 + i % kStep / 8 * 2;
  return tile * kTileSize + lane * 8 + part * 2 + i % 2;
}

// ---- products of one warp on operands that lie anywhere

TEMPER_DEVICE uint32_t both(bf low, bf high) {
  return __bfloat16_as_ushort(low) | static_cast<uint32_t>(__bfloat16_as_ushort(high)) << 16;
}
TEMPER_DEVICE uint32_t pair_at(const bf* p) { return *reinterpret_cast<const uint32_t*>(p); }

/// c, 16 x 8, goes on over `steps` steps; left(m, k) and right(k, n): the elements k and k + 1.
template <class Left, class Right>
TEMPER_DEVICE void chain(float (&c)[4], int steps, Left&& left, Right&& right) {
  const int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
  for (int s = 0; s < steps; ++s) {
    const int k = kStep * s + 2 * t;
    const uint32_t a[4] = {left(g, k), left(g + 8, k), left(g, k + 8), left(g + 8, k + 8)};
    mma16816(c, a, right(k, g), right(k + 8, g));
  }
}
/// Row and column of element i of such a c.
TEMPER_DEVICE int chain_row(int i) { return (threadIdx.x & 31) / 4 + (i >= 2 ? 8 : 0); }
TEMPER_DEVICE int chain_column(int i) { return (threadIdx.x & 3) * 2 + (i & 1); }

}  // namespace temper::cuda::delta
