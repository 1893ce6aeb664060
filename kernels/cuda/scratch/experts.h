#pragma once
// Scratch memory of experts (scratch/linear.h says who calls this).

#include "src/core/arena.h"

namespace temper::cuda {

/// Choices that a block of threads sorts.
inline constexpr int64_t kSortedChoices = 2048;

/// How many choices of each block are each expert's, [blocks, experts] i32.
inline Tensor sort_by_expert_scratch(Arena& arena, int64_t choices, int64_t experts) {
  return arena.make({(choices + kSortedChoices - 1) / kSortedChoices, experts}, DType::i32);
}

}  // namespace temper::cuda
