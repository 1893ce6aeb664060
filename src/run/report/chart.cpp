#include "src/run/report/chart.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "src/run/report/axis.h"
#include "src/run/report/html.h"

namespace temper {
namespace {

// User units of the picture: a phone shows about as many pixels.
constexpr double kWidth = 400, kHeight = 200, kLeft = 46, kRight = 392, kTop = 18, kBottom = 170;
constexpr size_t kPointsAsDots = 40;

double x_of(const Axis& axis, double step) { return kLeft + axis.share(step) * (kRight - kLeft); }
double y_of(const Axis& axis, double value) { return kBottom - axis.share(value) * (kBottom - kTop); }

/// Labels that can be told apart, however little the ticks differ.
std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  std::vector<std::string> labels;
  for (const double tick : ticks) labels.push_back(short_value(tick));
  for (int digits = 5; digits <= 12; ++digits) {
    if (std::set<std::string>(labels.begin(), labels.end()).size() == labels.size()) break;
    for (size_t i = 0; i < ticks.size(); ++i) labels[i] = fmt::format("{:.{}g}", ticks[i], digits);
  }
  return labels;
}

std::string begin_svg(const std::string& title, const std::string& unit) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=img aria-label=\"{} over steps\">", kWidth, kHeight,
                     html(title)) +
         (unit.empty() ? "" : fmt::format("<text x={} y=9 class=u>{}</text>", kLeft - 6, html(unit)));
}

std::string axes(const Axis& steps, const Axis& values) {
  std::string text = "<path class=g d=\"";
  for (const double tick : values.ticks)
    text += fmt::format("M{} {:.1f}H{}", kLeft, y_of(values, tick), kRight);
  text += "\"/>";
  const std::vector<std::string> labels = tick_labels(values.ticks);
  for (size_t i = 0; i < labels.size(); ++i)
    text += fmt::format("<text x={} y={:.1f} class=y>{}</text>", kLeft - 6,
                        y_of(values, values.ticks[i]) + 3.5, labels[i]);
  for (const double tick : steps.ticks) {
    const double x = x_of(steps, tick);
    text += fmt::format("<path class=t d=\"M{0:.1f} {1}v4\"/><text x={0:.1f} y={2} class=x>{3:.0f}</text>", x,
                        kBottom, kBottom + 15, tick);
  }
  return text + fmt::format("<path class=a d=\"M{} {}H{}\"/><text x={} y={} class=u2>step</text>", kLeft,
                            kBottom, kRight, kRight, kBottom + 28);
}

std::string curve_svg(const RunCurve& run, const Curve& curve, const Axis& steps, const Axis& values) {
  std::string path, dots;
  size_t points = 0;
  for (const auto& piece : curve) points += piece.size();
  for (const auto& piece : curve) {
    for (size_t i = 0; i < piece.size(); ++i) {
      const double x = x_of(steps, piece[i].step), y = y_of(values, piece[i].value);
      path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : i == 1 ? "L" : " ", x, y);
      if (points <= kPointsAsDots || piece.size() == 1)
        dots += fmt::format("<circle cx={:.1f} cy={:.1f} r=2 />", x, y);
    }
  }
  return fmt::format("<g class=r{}><title>{}</title><path class=c d=\"{}\"/>{}</g>", run.run, html(run.name),
                     path, dots);
}

/// The corners of a layer: along its upper edge, back along its lower one.
std::string layer_svg(const StackLayer& layer, std::vector<double>& heights, const Axis& values) {
  const auto bins = static_cast<double>(heights.size());
  std::string upper, lower;
  for (size_t b = 0; b < heights.size(); ++b) {
    const double left = kLeft + (kRight - kLeft) * static_cast<double>(b) / bins;
    const double right = kLeft + (kRight - kLeft) * static_cast<double>(b + 1) / bins;
    const double below = heights[b];
    if (std::isfinite(layer.values[b])) heights[b] += layer.values[b];
    upper += fmt::format("{}{:.1f} {:.1f}H{:.1f}", b == 0 ? "M" : "L", left, y_of(values, heights[b]), right);
    lower = fmt::format("L{:.1f} {:.1f}H{:.1f}", right, y_of(values, below), left) + lower;
  }
  return fmt::format("<path class=p{} d=\"{}{}Z\"><title>{}</title></path>", layer.colour, upper, lower,
                     html(layer.name));
}

std::string line_svg(const std::vector<double>& line, const Axis& values) {
  const double width = (kRight - kLeft) / static_cast<double>(line.size());
  std::string path;
  bool drawn = false;
  for (size_t b = 0; b < line.size(); ++b) {
    const double left = kLeft + width * static_cast<double>(b);
    if (std::isfinite(line[b]))
      path +=
          fmt::format("{}{:.1f} {:.1f}H{:.1f}", drawn ? "L" : "M", left, y_of(values, line[b]), left + width);
    drawn = std::isfinite(line[b]);
  }
  return fmt::format("<path class=\"c whole\" d=\"{}\"/>", path);
}

}  // namespace

std::string chart_svg(const LineChart& chart, const StepRange& range) {
  double low = INFINITY, high = -INFINITY;
  for (const RunCurve& run : chart.curves)
    for (const auto& piece : run.curve)
      for (const CurvePoint& point : piece)
        low = std::min(low, point.value), high = std::max(high, point.value);
  if (low > high) low = 0, high = 1;
  const Axis steps = step_axis(range.first, range.last, 5),
             values = nice_axis(low, high, 4, /*widened=*/true);
  std::string text = begin_svg(chart.title, chart.unit) + axes(steps, values);
  for (const StepMark& mark : chart.marks)
    text +=
        fmt::format("<path class=\"m r{}\" d=\"M{:.1f} {}V{}\"><title>resumed from step {}</title></path>",
                    mark.run, x_of(steps, static_cast<double>(mark.step)), kTop, kBottom, mark.step);
  for (const RunCurve& run : chart.curves)
    text += curve_svg(run, thinned(run.curve, range.first, range.last, chart.columns), steps, values);
  return text + "</svg>";
}

std::string chart_svg(const StackChart& chart, const StepRange& range) {
  const size_t bins = chart.layers.empty() ? 0 : chart.layers.front().values.size();
  std::vector<double> heights(bins, 0.0);
  double high = 0;
  for (const StackLayer& layer : chart.layers)
    for (size_t b = 0; b < bins; ++b)
      if (std::isfinite(layer.values[b])) high = std::max(high, heights[b] += layer.values[b]);
  for (const double value : chart.line)
    if (std::isfinite(value)) high = std::max(high, value);
  // A bin is as wide as the steps in it: half a step of room at both ends.
  const Axis steps = step_axis(range.first - 0.5, range.last + 0.5, 5);
  const Axis values = nice_axis(0, high > 0 ? high : 1, 4, /*widened=*/true);
  std::string text = begin_svg(chart.title, chart.unit) + axes(steps, values);
  std::fill(heights.begin(), heights.end(), 0.0);
  for (const StackLayer& layer : chart.layers) text += layer_svg(layer, heights, values);
  return text + line_svg(chart.line, values) + "</svg>";
}

}  // namespace temper
