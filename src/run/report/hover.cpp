#include "src/run/report/hover.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

#include "src/run/report/axis.h"
#include "src/run/report/html.h"

namespace temper {
namespace {

constexpr double kAbove = 9, kLineHeight = 12, kBeside = 6;  // user units

std::string text_svg(const HoverColumn& column, const HoverFrame& frame) {
  if (column.lines.size() == 1)
    return fmt::format("<text x={:.0f} y={} class=e>{}</text>", frame.right, kAbove,
                       html(column.lines.front().text));
  const bool right = column.at < (frame.left + frame.right) / 2;
  const double x = column.at + (right ? kBeside : -kBeside);
  std::string text = fmt::format("<text y={:.0f}{}>", frame.top - 2, right ? "" : " class=e");
  for (const HoverLine& line : column.lines)
    text += fmt::format("<tspan x={:.0f} dy={}{}>{}</tspan>", x, kLineHeight,
                        line.colour.empty() ? "" : " class=" + line.colour, html(line.text));
  return text + "</text>";
}

}  // namespace

std::string hover_svg(const std::vector<HoverColumn>& columns, const HoverFrame& frame) {
  std::string text;
  for (const HoverColumn& column : columns)
    text += fmt::format(
        "<g class=h><rect x={:.1f} y={:.0f} width={:.1f} height={:.0f} /><path d=\"M{:.1f} "
        "{:.0f}V{:.0f}\"/>{}</g>",
        column.left, frame.top, column.right - column.left, frame.bottom - frame.top, column.at, frame.top,
        frame.bottom, text_svg(column, frame));
  return text;
}

std::vector<StepBin> step_bins(const std::vector<const Curve*>& curves, int64_t columns) {
  std::vector<double> steps;
  for (const Curve* curve : curves)
    for (const auto& piece : *curve)
      for (const CurvePoint& point : piece) steps.push_back(point.step);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  const size_t most = static_cast<size_t>(columns), each = (steps.size() + most - 1) / most;
  std::vector<StepBin> bins;
  for (size_t i = 0; i < steps.size(); i += each)
    bins.push_back({steps[i], steps[std::min(i + each, steps.size()) - 1]});
  return bins;
}

std::string value_text(const Curve& curve, const StepBin& bin) {
  double sum = 0, low = INFINITY, high = -INFINITY;
  int64_t count = 0;
  for (const auto& piece : curve) {
    const auto before = [](const CurvePoint& point, double step) { return point.step < step; };
    for (auto at = std::lower_bound(piece.begin(), piece.end(), bin.first, before);
         at != piece.end() && at->step <= bin.last; ++at) {
      sum += at->value, ++count;
      low = std::min(low, at->value), high = std::max(high, at->value);
    }
  }
  if (count == 0) return "";
  const std::string mean = short_value(sum / static_cast<double>(count));
  return low == high ? mean : fmt::format("{} ({} to {})", mean, short_value(low), short_value(high));
}

std::string step_text(const StepBin& bin) {
  return bin.first == bin.last ? fmt::format("step {:.0f}", bin.first)
                               : fmt::format("steps {:.0f} to {:.0f}", bin.first, bin.last);
}

}  // namespace temper
