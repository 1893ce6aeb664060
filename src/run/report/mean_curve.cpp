#include "src/run/report/mean_curve.h"

#include <algorithm>
#include <cmath>

namespace temper {
namespace {

constexpr size_t kLeastPoints = 15;

}  // namespace

int64_t mean_window(size_t points) {
  return points < kLeastPoints ? 1 : 2 * static_cast<int64_t>(points / 30) + 3;
}

double neighbour_mean(std::span<const CurvePoint> points, size_t i, int64_t window) {
  const size_t side = static_cast<size_t>(window) / 2, begin = i - std::min(i, side);
  const auto around = points.subspan(begin, std::min(points.size(), i + side + 1) - begin);
  const auto size = static_cast<double>(around.size());
  double sum = 0, scaled = 0;  // scaled: where the sum is beyond the largest number
  for (const CurvePoint& point : around) sum += point.value, scaled += point.value / size;
  return std::isfinite(sum) ? sum / size : scaled;
}

Curve mean_curve(const Curve& curve, int64_t points) {
  size_t all = 0;
  for (const auto& piece : curve) all += piece.size();
  const int64_t window = mean_window(all);
  if (window == 1) return {};
  const auto distance = static_cast<size_t>(std::max<int64_t>(1, static_cast<int64_t>(all) / points));
  Curve thin;
  for (const auto& piece : curve) {
    thin.emplace_back();
    for (size_t i = 0; i < piece.size(); ++i)
      if (i % distance == 0 || i + 1 == piece.size())
        thin.back().push_back({piece[i].step, neighbour_mean(piece, i, window)});
  }
  return thin;
}

}  // namespace temper
