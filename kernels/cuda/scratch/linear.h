#pragma once
// Scratch memory of linear layers. The functions NAME_scratch of this folder make what a kernel asks an arena
// for: the kernels call them, and so does a plan (kernels/planned), on arenas that only count. Nothing here
// needs CUDA.

#include "src/core/arena.h"

namespace temper::cuda {

/// Most rows of the decode kernels.
inline constexpr int64_t kSkinnyRows = 64;

/// Whether the decode kernel with SwiGLU takes rows of these widths, without anything in between:
/// a [rows, outputs] of x [rows, inputs].
inline bool is_skinny_swiglu(int64_t rows, int64_t inputs, int64_t outputs, DType dtype) {
  return rows <= kSkinnyRows && dtype == DType::bf16 && inputs % 64 == 0 && outputs % 8 == 0;
}

/// Gate over up of every row, [rows, 2 outputs], where the product and SwiGLU are two kernels.
inline Tensor linear_swiglu_forward_scratch(Arena& arena, int64_t rows, int64_t outputs, DType dtype) {
  return arena.make({rows, 2 * outputs}, dtype);
}

/// Rows of dy in a part of a bias gradient's sum.
inline constexpr int64_t kBiasPartRows = 256;

/// Sums of the parts, [parts, outputs].
inline Tensor linear_backward_bias_scratch(Arena& arena, int64_t rows, int64_t outputs) {
  return arena.make({(rows + kBiasPartRows - 1) / kBiasPartRows, outputs}, DType::f32);
}

}  // namespace temper::cuda
