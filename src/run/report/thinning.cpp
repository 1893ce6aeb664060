#include "src/run/report/thinning.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper {
namespace {

int64_t column_of(double step, double first, double last, int64_t columns) {
  if (last <= first) return 0;
  const double at = (step - first) / (last - first) * static_cast<double>(columns);
  return std::clamp<int64_t>(static_cast<int64_t>(at), 0, columns - 1);
}

/// The lower median of the distances between neighbours; 1 where there are none.
double usual_distance(const std::vector<CurvePoint>& points) {
  std::vector<double> distances;
  for (size_t i = 1; i < points.size(); ++i) distances.push_back(points[i].step - points[i - 1].step);
  if (distances.empty()) return 1;
  const auto middle = distances.begin() + static_cast<std::ptrdiff_t>((distances.size() - 1) / 2);
  std::nth_element(distances.begin(), middle, distances.end());
  return *middle;
}

/// The points of one column: its extremes, and those that begin or end a piece.
void keep_extremes(std::span<const CurvePoint> column, bool begins, bool ends,
                   std::vector<CurvePoint>& kept) {
  const auto less = [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; };
  const auto [low, high] = std::minmax_element(column.begin(), column.end(), less);
  for (auto at = column.begin(); at != column.end(); ++at)
    if (at == low || at == high || (begins && at == column.begin()) || (ends && at + 1 == column.end()))
      kept.push_back(*at);
}

}  // namespace

Curve curve_of(std::span<const int64_t> steps, std::span<const double> values) {
  std::vector<CurvePoint> points;
  for (size_t i = 0; i < steps.size(); ++i)
    if (std::isfinite(values[i])) points.push_back({static_cast<double>(steps[i]), values[i]});
  const double apart = 1.5 * usual_distance(points);
  Curve curve;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == 0 || points[i].step - points[i - 1].step > apart) curve.emplace_back();
    curve.back().push_back(points[i]);
  }
  return curve;
}

Curve thinned(const Curve& curve, double first, double last, int64_t columns) {
  Curve thin;
  for (const std::vector<CurvePoint>& piece : curve) {
    thin.emplace_back();
    for (size_t begin = 0, end; begin < piece.size(); begin = end) {
      const int64_t column = column_of(piece[begin].step, first, last, columns);
      for (end = begin + 1; end < piece.size();) {
        if (column_of(piece[end].step, first, last, columns) != column) break;
        ++end;
      }
      keep_extremes(std::span(piece).subspan(begin, end - begin), begin == 0, end == piece.size(),
                    thin.back());
    }
  }
  return thin;
}

std::vector<double> bin_means(std::span<const int64_t> steps, std::span<const double> values, double first,
                              double last, int64_t bins) {
  std::vector<double> sums(static_cast<size_t>(bins), 0.0), counts(static_cast<size_t>(bins), 0.0);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    const auto bin = static_cast<size_t>(column_of(static_cast<double>(steps[i]), first, last, bins));
    sums[bin] += values[i];
    ++counts[bin];
  }
  for (size_t b = 0; b < sums.size(); ++b)
    sums[b] = counts[b] > 0 ? sums[b] / counts[b] : std::numeric_limits<double>::quiet_NaN();
  return sums;
}

}  // namespace temper
