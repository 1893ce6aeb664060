#pragma once
// Learning rate as a pure function of the update count, so that resume needs no state. Update i (0-based) of
// N:
//   warm-up   lr * (i + 1) / warmup_steps                       for i < warmup_steps
//   constant  lr;  linear  lr * (1 - (1 - r) p);  cosine  lr * (r + (1 - r) (1 + cos(pi p)) / 2)
//   wsd       lr until the last tenth, then linear to r         with p = (i - warmup) / (N - warmup), r =
//   min_lr_ratio

#include <cstdint>

#include "src/config/config.h"

namespace temper {

double learning_rate(const OptimizerConfig& config, int64_t update, int64_t total_updates);

}  // namespace temper
