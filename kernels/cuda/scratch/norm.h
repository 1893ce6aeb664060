#pragma once
// Scratch memory of the norms (scratch/linear.h says who calls this).

#include <algorithm>

#include "src/core/arena.h"

namespace temper::cuda {

/// Threads of a block of rmsnorm_backward.
inline constexpr int64_t norm_backward_threads(int64_t width) {
  return width <= 1024 ? 128 : width <= 4096 ? 256 : 512;
}

/// Sums of dw over blocks of rows, [blocks, width].
struct NormPartials {
  int64_t per_block;  // rows
  Tensor sums;
};

/// Blocks are as many as one wave on an H100 or H200 has, 512 threads on each of 132 multiprocessors, with
/// four rows or more: constants, so that sums do not depend on the chip.
inline NormPartials rmsnorm_backward_scratch(Arena& arena, int64_t rows, int64_t width) {
  const int64_t most_blocks = 132 * 512 / norm_backward_threads(width);
  const int64_t per_block = std::max<int64_t>(4, (rows + most_blocks - 1) / most_blocks);
  return {per_block, arena.make({(rows + per_block - 1) / per_block, width}, DType::f32)};
}

}  // namespace temper::cuda
