#include "src/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace temper {

double learning_rate(const OptimizerConfig& config, int64_t update, int64_t total_updates) {
  constexpr double kDecayShare = 0.1;  // of the updates after warm-up, schedule wsd
  const int64_t warmup = config.warmup_steps;
  if (update < warmup) return config.lr * static_cast<double>(update + 1) / static_cast<double>(warmup);
  const auto span = static_cast<double>(std::max<int64_t>(total_updates - warmup, 1));
  const double p = std::min(1.0, static_cast<double>(update - warmup) / span), r = config.min_lr_ratio;
  if (config.schedule == "linear") return config.lr * (1.0 - (1.0 - r) * p);
  if (config.schedule == "cosine")
    return config.lr * (r + (1.0 - r) * 0.5 * (1.0 + std::cos(std::numbers::pi * p)));
  if (config.schedule == "wsd") {
    const double q = std::max(0.0, (p - (1.0 - kDecayShare)) / kDecayShare);
    return config.lr * (1.0 - (1.0 - r) * q);
  }
  return config.lr;
}

}  // namespace temper
