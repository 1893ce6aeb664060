#pragma once
// Charts as inline SVG: curves of several runs over steps, and layers that add up. They scale with the page;
// colours come from its classes (r0 ... a run, p0 ... a phase).

#include <string>
#include <vector>

#include "src/run/report/thinning.h"

namespace temper {

inline constexpr size_t kMaxRuns = 8;  // as many colours can be told apart
/// Columns of pixels that a chart has for curves.
inline constexpr int64_t kChartColumns = 340;

struct StepRange {
  double first = 1, last = 1;
};

struct RunCurve {
  size_t run = 0;  // its colour
  std::string name;
  Curve curve;
};
struct StepMark {  // where a run was resumed
  size_t run = 0;
  int64_t step = 0;
};

struct LineChart {
  std::string title, unit;
  std::vector<RunCurve> curves;  // not thinned
  std::vector<StepMark> marks;
  int64_t columns = kChartColumns;
  int64_t means = 120;    // points of the curve of means, at most
  int64_t readouts = 60;  // columns that tell their values to the pointer, at most
};
/// Over the values of a curve stand their means (mean_curve.h), where there are enough of them.
std::string chart_svg(const LineChart& chart, const StepRange& range);

struct StackLayer {
  std::string name;
  size_t colour = 0;
  std::vector<double> values;  // of each bin; NaN counts as nothing
};
struct StackChart {
  std::string title, unit;
  std::vector<StackLayer> layers;  // from the bottom up; as many values in each
  std::vector<double> line;        // drawn over them, for example the whole step
};
std::string chart_svg(const StackChart& chart, const StepRange& range);

}  // namespace temper
