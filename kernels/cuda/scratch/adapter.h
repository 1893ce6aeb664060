#pragma once
// Scratch memory of the gradients of adapters (scratch/linear.h says who calls this).

#include "kernels/types.h"
#include "src/core/arena.h"

namespace temper::cuda {

/// Tokens of a part of a gradient's sum: a constant, so that sums do not depend on the chip.
inline constexpr int64_t kAdapterPartTokens = 2048;
/// Most columns of u or du that the kernel of parts takes.
inline constexpr int64_t kAdapterPartWidth = 128;

/// Does the kernel of parts make a gradient? Of x [tokens, columns], `outer`, and the columns of `low` that
/// its blocks read, `width` each. Its copies have 16 bytes.
inline bool has_adapter_parts(const CTensor& outer, const CTensor& low, const AdapterBlocks& blocks,
                              int64_t width) {
  constexpr int64_t kEights = 8;
  bool whole = outer.dtype == DType::bf16 && outer.dim(0) > 0 && outer.dim(1) % kEights == 0 &&
               low.dim(1) % kEights == 0 && width % kEights == 0 && width <= kAdapterPartWidth;
  for (int i = 0; i < blocks.count; ++i)
    whole = whole && blocks.to[i] % kEights == 0 && blocks.rows[i] % kEights == 0;
  return whole;
}

/// Sums of the parts, [parts, elements of the gradient].
inline Tensor adapter_parts_scratch(Arena& arena, int64_t tokens, int64_t elements) {
  return arena.make({(tokens + kAdapterPartTokens - 1) / kAdapterPartTokens, elements}, DType::f32);
}

/// dy^T u of whole blocks, [outputs, columns of u], where no kernel of parts is.
inline Tensor adapter_whole_gradient_scratch(Arena& arena, const CTensor& dy, const CTensor& u) {
  return arena.make({dy.dim(1), u.dim(1)}, DType::f32);
}

}  // namespace temper::cuda
