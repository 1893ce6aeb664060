#pragma once
// The marks of an axis, and numbers as people read them beside it.

#include <string>
#include <vector>

namespace temper {

struct Axis {
  double low = 0, high = 1;
  std::vector<double> ticks;  // ascending, within [low, high]: multiples of 1, 2 or 5 times a power of ten

  /// From 0 to 1 along the axis.
  double share(double value) const { return (value - low) / (high - low); }
};

/// For values from `low` to `high` (finite; equal ones get room around them), with about `count` ticks. The
/// ends are ticks where `widened`, else low and high.
Axis nice_axis(double low, double high, int count, bool widened);
/// For steps: ticks are whole numbers.
Axis step_axis(double first, double last, int count);

/// At most four digits that say something: 0, 0.25, 12.5, 1.2k, 3.4M, 2e-06.
std::string short_value(double value);

}  // namespace temper
