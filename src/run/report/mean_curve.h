#pragma once
// What a noisy curve says: means over neighbouring steps.

#include <cstdint>
#include <span>
#include <vector>

#include "src/run/report/thinning.h"

namespace temper {

/// How many neighbours of so many points are one mean: an odd number, about a fifteenth of them; 1 where they
/// are too few for one.
int64_t mean_window(size_t points);

/// The mean of the `window` values around point `i`, at the ends of those that there are.
double neighbour_mean(std::span<const CurvePoint> points, size_t i, int64_t window);

/// The means over the pieces of a curve, at most about `points` of them; empty where it has too few values.
Curve mean_curve(const Curve& curve, int64_t points);

}  // namespace temper
