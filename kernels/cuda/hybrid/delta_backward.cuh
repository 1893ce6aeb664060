#pragma once
// Parts of the kernels of the gated delta rule's backward: the description of a call, chunks of sequences,
// tiles in shared memory, fragments of tensor-core products.

#include "kernels/cuda/device/canonical.cuh"
#include "kernels/cuda/device/shared_copies.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/scratch/delta_rule_backward.h"

namespace temper::cuda::delta_backward {

using bf = __nv_bfloat16;
namespace cn = canonical;

constexpr int C = kDeltaChunk, kBlock = kDeltaBlock, kBlocks = C / kBlock;
constexpr int kPairs = kDeltaPairs;
constexpr float kLog2e = 1.44269504f;

/// One layer: its tensors as src/ops/hybrid/delta.h has them, and scratch.
template <class E>
struct Call {
  E* dqkv;
  float *dbeta, *dg;
  const E *d_o, *qkv, *u;
  const float *beta, *decays;
  const int32_t* cu;
  E *states, *dstates, *pairs;
  float4* rates;
  E* y;
  int T, S, Hk, Hv, dk, dv;
  bool whole;  // heads begin at multiples of 16 bytes, in memory and in width

  __host__ __device__ int per_key() const { return Hv / Hk; }
  __host__ __device__ int wide_dk() const { return (dk + kBlock - 1) / kBlock * kBlock; }
  __host__ __device__ int wide_dv() const { return (dv + kBlock - 1) / kBlock * kBlock; }
  __host__ __device__ int64_t width() const { return int64_t{2} * Hk * dk + int64_t{Hv} * dv; }
  __host__ __device__ int q_column(int key_head) const { return key_head * dk; }
  __host__ __device__ int k_column(int key_head) const { return (Hk + key_head) * dk; }
  __host__ __device__ int v_column(int head) const { return 2 * Hk * dk + head * dv; }
  /// The place in [rows, Hv].
  __host__ __device__ int64_t at(int row, int head) const { return int64_t{row} * Hv + head; }
  /// The place in states and dstates.
  __host__ __device__ int64_t state_at(int border, int head) const {
    return (int64_t{border} * Hv + head) * wide_dv() * wide_dk();
  }
};

/// Rows of a sequence, and the first of its borders between chunks in the list of all.
struct Sequence {
  int row, rows, border;
  TEMPER_DEVICE int chunks() const { return (rows + C - 1) / C; }
};
TEMPER_DEVICE Sequence sequence(const int32_t* cu, int s) {
  const int row = cu[s];
  return {row, cu[s + 1] - row, row / C};
}

/// A chunk; no rows: there is none of this number. Borders before and after it: -1 where the sequence begins
/// or ends.
struct Chunk {
  int row, rows, before, after;
};
/// Chunks of sequence s are numbered from cu[s] / 64 + s on, with gaps; T / 64 + S numbers.
TEMPER_DEVICE Chunk chunk_of(const int32_t* cu, int sequences, int number) {
  int low = 0, high = sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (cu[middle] / C + middle <= number)
      low = middle;
    else
      high = middle - 1;
  }
  const Sequence q = sequence(cu, low);
  const int i = number - (q.row / C + low), rows = min(q.rows - i * C, C);
  if (rows <= 0) return {0, 0, -1, -1};
  return {q.row + i * C, rows, i > 0 ? q.border + i - 1 : -1, i + 1 < q.chunks() ? q.border + i : -1};
}

/// e^x
TEMPER_DEVICE float exponential(float x) { return cn::exp2a(__fmul_rn(x, kLog2e)); }

// ---- pairs of bf16 in a register

TEMPER_DEVICE float low(uint32_t x) { return __uint_as_float(x << 16); }
TEMPER_DEVICE float high(uint32_t x) { return __uint_as_float(x & 0xffff0000u); }
TEMPER_DEVICE uint32_t times(uint32_t x, float a, float b) {
  return cn::pack(__fmul_rn(low(x), a), __fmul_rn(high(x), b));
}
/// What rows read of a state: its upper 16 bits, rounded half away from zero.
TEMPER_DEVICE uint32_t upper(float a, float b) {
  return ((__float_as_uint(a) + 0x8000u) >> 16) | ((__float_as_uint(b) + 0x8000u) & 0xffff0000u);
}

// ---- tiles in shared memory: rows of P elements, P a multiple of 8 and rows 16 bytes apart modulo 128

template <int P>
TEMPER_DEVICE uint32_t element(uint32_t tile, int row, int column) {
  return tile + static_cast<uint32_t>(row * P + column) * 2u;
}

/// `rows` x `columns` elements, rows `pitch` apart in memory, as a tile of Rows x Columns, zeros where there
/// are none, by `Threads` threads. To be followed by copies_wait and a barrier.
template <int P, int Rows, int Columns, int Threads>
TEMPER_DEVICE void load_tile(uint32_t tile, const bf* from, int64_t pitch, int rows, int columns,
                             bool whole) {
  constexpr int kGroups = Columns / 8, kStep = Threads / kGroups, kTurns = (Rows + kStep - 1) / kStep;
  static_assert(Threads % kGroups == 0 && (kTurns == 1 || Rows % kStep == 0));
  const int first = static_cast<int>(threadIdx.x) / kGroups,
            column = static_cast<int>(threadIdx.x) % kGroups * 8;
  const int there = min(max(columns - column, 0), 8);
  from += first * pitch + column;
  uint32_t to = element<P>(tile, first, column);
  if (whole) {
    const int last = there > 0 ? rows : 0;
    if (kStep > Rows && first >= Rows) return;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      copy_async16(to, from, first + turn * kStep < last);
      from += kStep * pitch;
      to += kStep * P * 2;
    }
    return;
  }
#pragma unroll 1
  for (int row = first; row < Rows; row += kStep) {
    uint32_t x[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const uint32_t a = row < rows && 2 * e < there ? __bfloat16_as_ushort(from[2 * e]) : 0;
      const uint32_t b = row < rows && 2 * e + 1 < there ? __bfloat16_as_ushort(from[2 * e + 1]) : 0;
      x[e] = a | b << 16;
    }
    store_shared16(to, x[0], x[1], x[2], x[3]);
    from += kStep * pitch;
    to += kStep * P * 2;
  }
}

/// The numbers of a chunk's rows, zeros where there are none.
TEMPER_DEVICE void load_rates(uint32_t to, const Call<bf>& c, int row, int rows, int head) {
  for (int i = threadIdx.x; i < C; i += blockDim.x)
    copy_async16(to + i * 16, c.rates + c.at(row + min(i, rows - 1), head), i < rows);
}

// ---- fragments of m16n8k16

/// A[m, k] from a tile that holds it by rows, or by columns (rows of the tile are k).
template <int P>
TEMPER_DEVICE void load_a(uint32_t (&a)[4], uint32_t tile, int m, int k) {
  const int lane = threadIdx.x & 31;
  ldsm4(a, element<P>(tile, m + (lane & 15), k + (lane >> 4) * 8));
}
template <int P>
TEMPER_DEVICE void load_a_turned(uint32_t (&a)[4], uint32_t tile, int m, int k) {
  const int lane = threadIdx.x & 31;
  ldsm4_transposed(a, element<P>(tile, k + (lane >> 4) * 8 + (lane & 7), m + (lane >> 3 & 1) * 8));
}
/// B[k, n] of 16 columns (two instructions) from a tile with rows n, or with rows k.
template <int P>
TEMPER_DEVICE void load_b(uint32_t (&b)[4], uint32_t tile, int k, int n) {
  const int lane = threadIdx.x & 31;
  ldsm4(b, element<P>(tile, n + (lane >> 4) * 8 + (lane & 7), k + (lane >> 3 & 1) * 8));
}
template <int P>
TEMPER_DEVICE void load_b_turned(uint32_t (&b)[4], uint32_t tile, int k, int n) {
  const int lane = threadIdx.x & 31;
  ldsm4_transposed(b, element<P>(tile, k + (lane >> 3 & 1) * 8 + (lane & 7), n + (lane >> 4) * 8));
}
/// Two tiles of 8 columns += A B.
TEMPER_DEVICE void multiply(float (&c0)[4], float (&c1)[4], const uint32_t (&a)[4], const uint32_t (&b)[4]) {
  mma16816(c0, a, b[0], b[1]);
  mma16816(c1, a, b[2], b[3]);
}
/// Sums of 16 x 16, as the left operand of the next product.
TEMPER_DEVICE void to_operand(uint32_t (&a)[4], const float (&c0)[4], const float (&c1)[4]) {
  a[0] = cn::pack(c0[0], c0[1]), a[1] = cn::pack(c0[2], c0[3]);
  a[2] = cn::pack(c1[0], c1[1]), a[3] = cn::pack(c1[2], c1[3]);
}
/// Columns 8 n + 2 (lane mod 4) and the next of a tile's sums times a, b.
TEMPER_DEVICE void scale(float (&c)[4], float a, float b) {
  c[0] = __fmul_rn(c[0], a), c[1] = __fmul_rn(c[1], b);
  c[2] = __fmul_rn(c[2], a), c[3] = __fmul_rn(c[3], b);
}

}  // namespace temper::cuda::delta_backward
