#pragma once
// Floating-point operations of training, as model FLOPs utilisation counts them: per token 6 for each weight
// of a product (head included, embedding not; of experts those that take the token) and 6 L Hq dh s for
// attention over a sequence of s tokens, its causal half counted once; backward is twice forward, of weights
// that are not trained as much, recomputation never counts.

#include <span>

#include "src/nn/model_config.h"
#include "src/rl/types.h"

namespace temper {

/// bf16 products of an H100 or H200 by its data sheet, a second.
inline constexpr double kPeakFlops = 989e12;

double training_flops(const ModelConfig& model, std::span<const Trajectory* const> all);

}  // namespace temper
