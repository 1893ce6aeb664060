#pragma once
// Reproducible numbers for tests: each value is a pure function of seed and index.

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "src/core/rng.h"

namespace temper {

/// A number in (0, 1).
inline double uniform_value(uint64_t seed, int64_t index, uint32_t which = 0) {
  const PhiloxBlock w =
      philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), which, 0}, seed);
  return (static_cast<double>(w[0]) + 0.5) * 0x1p-32;
}

inline std::vector<double> uniform_values(int64_t count, uint64_t seed, double low = 0.0, double high = 1.0) {
  std::vector<double> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    out[static_cast<size_t>(i)] = low + (high - low) * uniform_value(seed, i);
  return out;
}

inline std::vector<double> normal_values(int64_t count, uint64_t seed, double scale = 1.0,
                                         double mean = 0.0) {
  std::vector<double> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2.0 * std::log(uniform_value(seed, i)));
    out[static_cast<size_t>(i)] =
        mean + scale * radius * std::cos(2.0 * std::numbers::pi * uniform_value(seed, i, 1));
  }
  return out;
}

/// Numbers in [0, below).
inline std::vector<int32_t> random_ids(int64_t count, int32_t below, uint64_t seed) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    out[static_cast<size_t>(i)] = static_cast<int32_t>(below * uniform_value(seed, i));
  return out;
}

}  // namespace temper
