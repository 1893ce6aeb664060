#include "src/run/report/axis.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace temper {
namespace {

/// 1, 2 or 5 times a power of ten, so that about `count` of them are `span`.
double nice_distance(double span, int count) {
  const double wanted = span / count, power = std::pow(10.0, std::floor(std::log10(wanted)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= wanted * 0.75) return factor * power;
  return 10 * power;
}

std::string trimmed(std::string digits) {
  if (digits.find('.') == std::string::npos) return digits;
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

}  // namespace

Axis nice_axis(double low, double high, int count, bool widened) {
  // Values that agree to twelve digits are drawn as equal: what is between them is rounding.
  const double size = std::max(std::abs(low), std::abs(high));
  if (high - low <= size * 1e-12) {
    const double room = size > 0 ? size * 0.1 : 1;
    low -= room, high += room;
  }
  low = std::clamp(low, -1e300, 1e300), high = std::clamp(high, -1e300, 1e300);
  const double distance = nice_distance(high - low, count);
  Axis axis{low, high, {}};
  if (widened) {
    axis.low = std::floor(low / distance + 1e-9) * distance;
    axis.high = std::ceil(high / distance - 1e-9) * distance;
  }
  const double first = std::ceil(axis.low / distance - 1e-9), last = std::floor(axis.high / distance + 1e-9);
  for (double at = first; at <= last; ++at) axis.ticks.push_back(at == 0 ? 0 : at * distance);
  return axis;
}

Axis step_axis(double first, double last, int count) {
  if (last <= first) return {first - 1, first + 1, {first}};
  Axis axis = nice_axis(first, last, count, /*widened=*/false);
  std::erase_if(axis.ticks, [](double tick) { return std::abs(tick - std::round(tick)) > 1e-6; });
  return axis;
}

std::string short_value(double value) {
  if (value == 0) return "0";
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  if (size < 1e-3 || size >= 9.995e14) return fmt::format("{:.3g}", value);
  static constexpr std::array<std::string_view, 5> kUnits{"", "k", "M", "G", "T"};
  size_t unit = 0;
  double shown = value;
  for (; std::abs(shown) >= 9999.5 && unit + 1 < kUnits.size(); shown /= 1000) ++unit;
  if (unit > 0 && std::abs(shown) >= 999.5 && unit + 1 < kUnits.size()) shown /= 1000, ++unit;
  const double left = std::abs(shown);
  const int places = left >= 999.5 ? 0 : left >= 99.95 ? 1 : left >= 9.995 ? 2 : left >= 0.9995 ? 3 : 4;
  return trimmed(fmt::format("{:.{}f}", shown, places)) + std::string(kUnits[unit]);
}

}  // namespace temper
