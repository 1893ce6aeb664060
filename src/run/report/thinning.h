#pragma once
// Curves of many steps in few columns of pixels, without hiding what a step did: of every column the smallest
// and the largest value stay, in the order in which they came.

#include <cstdint>
#include <span>
#include <vector>

namespace temper {

struct CurvePoint {
  double step = 0, value = 0;
};
/// Pieces of a curve; between two of them there are steps without a value.
using Curve = std::vector<std::vector<CurvePoint>>;

/// The finite ones of `values` (of ascending `steps`). A metric may be there at every twentieth step alone:
/// what is more than one and a half times its usual distance apart is not connected.
Curve curve_of(std::span<const int64_t> steps, std::span<const double> values);

/// At most two points a column, of `columns` equal ones from step `first` to `last`; first and last points of
/// a piece stay.
Curve thinned(const Curve& curve, double first, double last, int64_t columns);

/// Mean of the finite `values` in each of `bins` equal ranges of the steps from `first` to `last`; NaN where
/// a range has none.
std::vector<double> bin_means(std::span<const int64_t> steps, std::span<const double> values, double first,
                              double last, int64_t bins);

}  // namespace temper
