#include "src/run/report/chart.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "src/run/report/axis.h"
#include "src/run/report/hover.h"
#include "src/run/report/html.h"
#include "src/run/report/mean_curve.h"

namespace temper {
namespace {

// User units of the picture: a phone shows about as many pixels.
constexpr double kWidth = 400, kHeight = 200, kLeft = 46, kRight = 392, kTop = 18, kBottom = 170;
constexpr size_t kPointsAsDots = 40;
constexpr size_t kNameInReadout = 24;
constexpr HoverFrame kFrame{kLeft, kRight, kTop, kBottom};

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
    text += fmt::format("<path class=t d=\"M{0:.1f} {1}v4\"/><text x={0:.1f} y={2} class=x>{3}</text>", x,
                        kBottom, kBottom + 15, tick < 1e6 ? fmt::format("{:.0f}", tick) : short_value(tick));
  }
  return text + fmt::format("<path class=a d=\"M{} {}H{}\"/><text x={} y={} class=u2>step</text>", kLeft,
                            kBottom, kRight, kRight, kBottom + 28);
}

std::string curve_path(const Curve& curve, const Axis& steps, const Axis& values) {
  std::string path;
  for (const auto& piece : curve)
    for (size_t i = 0; i < piece.size(); ++i)
      path += fmt::format("{}{:.1f} {:.1f}",
                          i == 0   ? "M"
                          : i == 1 ? "L"
                                   : " ",
                          x_of(steps, piece[i].step), y_of(values, piece[i].value));
  return path;
}

std::string curve_svg(const RunCurve& run, const LineChart& chart, const StepRange& range, const Axis& steps,
                      const Axis& values) {
  const Curve curve = thinned(run.curve, range.first, range.last, chart.columns),
              means = mean_curve(run.curve, chart.means);
  std::string dots;
  size_t points = 0;
  for (const auto& piece : curve) points += piece.size();
  for (const auto& piece : curve)
    for (const CurvePoint& point : piece)
      if (means.empty() && (points <= kPointsAsDots || piece.size() == 1))
        dots += fmt::format("<circle cx={:.1f} cy={:.1f} r=2 />", x_of(steps, point.step),
                            y_of(values, point.value));
  std::string text =
      fmt::format("<g class=r{}><title>{}</title><path class={} d=\"{}\"/>{}", run.run, html(run.name),
                  means.empty() ? "c" : "\"c raw\"", curve_path(curve, steps, values), dots);
  if (!means.empty()) text += fmt::format("<path class=c d=\"{}\"/>", curve_path(means, steps, values));
  return text + "</g>";
}

/// The beginning of a name, whole characters.
std::string short_name(const std::string& name) {
  size_t end = std::min(name.size(), kNameInReadout);
  while (end < name.size() && end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;
  return name.substr(0, end);
}

/// Columns that meet in the middle between their steps.
std::vector<HoverColumn> columns_of(const std::vector<StepBin>& bins, const Axis& steps) {
  std::vector<HoverColumn> columns;
  for (size_t i = 0; i < bins.size(); ++i) {
    const double left = i == 0 ? kLeft : columns.back().right;
    const double right = i + 1 < bins.size() ? x_of(steps, (bins[i].last + bins[i + 1].first) / 2) : kRight;
    columns.push_back({left, right, x_of(steps, (bins[i].first + bins[i].last) / 2), {}});
  }
  return columns;
}

std::string readouts_svg(const LineChart& chart, const Axis& steps) {
  std::vector<const Curve*> curves;
  for (const RunCurve& run : chart.curves) curves.push_back(&run.curve);
  const std::vector<StepBin> bins = step_bins(curves, chart.readouts);
  std::vector<HoverColumn> columns = columns_of(bins, steps);
  for (size_t i = 0; i < bins.size(); ++i) {
    columns[i].lines.push_back({"", step_text(bins[i])});
    for (const RunCurve& run : chart.curves) {
      const std::string value = value_text(run.curve, bins[i]);
      if (value.empty()) continue;
      if (chart.curves.size() == 1)
        columns[i].lines.front().text += ": " + value;
      else
        columns[i].lines.push_back(
            {fmt::format("r{}", run.run), fmt::format("{} {}", value, short_name(run.name))});
    }
  }
  return hover_svg(columns, kFrame);
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

std::string readouts_svg(const StackChart& chart, const StepRange& range) {
  std::vector<HoverColumn> columns;
  const size_t bins = chart.line.size();
  const double width = (kRight - kLeft) / static_cast<double>(bins),
               steps = (range.last - range.first + 1) / static_cast<double>(bins);
  for (size_t b = 0; b < bins; ++b) {
    if (!std::isfinite(chart.line[b])) continue;
    const double left = kLeft + width * static_cast<double>(b),
                 first = range.first + steps * static_cast<double>(b);
    const StepBin bin{std::ceil(first - 0.5),
                      std::max(std::ceil(first - 0.5), std::ceil(first + steps - 1.5))};
    HoverColumn column{left, left + width, left + width / 2, {}};
    column.lines.push_back({"", fmt::format("{}: {} s", step_text(bin), short_value(chart.line[b]))});
    for (size_t i = chart.layers.size(); i-- > 0;)
      if (const double seconds = chart.layers[i].values[b]; std::isfinite(seconds) && seconds > 0)
        column.lines.push_back({"", fmt::format("{} s {}", short_value(seconds), chart.layers[i].name)});
    columns.push_back(std::move(column));
  }
  return hover_svg(columns, kFrame);
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
  for (const RunCurve& run : chart.curves) text += curve_svg(run, chart, range, steps, values);
  return text + readouts_svg(chart, steps) + "</svg>";
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
  return text + line_svg(chart.line, values) + readouts_svg(chart, range) + "</svg>";
}

}  // namespace temper
