#pragma once
// Scratch memory of the gated delta rule's backward (scratch/linear.h says who calls this). Of a sequence's
// chunks states are kept where one ends and the next begins: at most T / 64 places, whatever the lengths.

#include "kernels/delta_types.h"
#include "src/core/arena.h"

namespace temper::cuda {

/// Elements of a row and value head that the parallel kernels leave for the scan: rows of P and A, of the
/// inverse of a diagonal block and of what it lost by rounding (bf16), or P and A alone (fp32).
inline constexpr int64_t kDeltaPairs = 2 * kDeltaChunk + 2 * kDeltaBlock;
/// Numbers of a row and value head: e^G, e^(G_last - G), beta, G.
inline constexpr int64_t kDeltaRates = 4;

inline int64_t whole_blocks(int64_t dim) { return (dim + kDeltaBlock - 1) / kDeltaBlock * kDeltaBlock; }

struct DeltaBackwardScratch {
  Tensor states, dstates;  // [T / 64, Hv, dv, dk] whole blocks
  Tensor pairs;            // [T, Hv, kDeltaPairs]
  Tensor rates;            // [T, Hv, kDeltaRates] fp32
  Tensor y;                // [T, Hv, dv] whole blocks
};

inline DeltaBackwardScratch delta_rule_backward_scratch(Arena& arena, int64_t rows, const DeltaShape& shape,
                                                        DType dtype) {
  const int64_t dk = whole_blocks(shape.key_dim), dv = whole_blocks(shape.value_dim),
                borders = rows / kDeltaChunk, heads = shape.value_heads;
  return {arena.make({borders, heads, dv, dk}, dtype), arena.make({borders, heads, dv, dk}, dtype),
          arena.make({rows, heads, kDeltaPairs}, dtype), arena.make({rows, heads, kDeltaRates}, DType::f32),
          arena.make({rows, heads, dv}, dtype)};
}

}  // namespace temper::cuda
