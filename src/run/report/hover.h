#pragma once
// What a chart says where the pointer is (or was, on a screen that is touched): it is cut into columns, each
// with a line and a text that show while the pointer is over it. No script is needed for that.

#include <string>
#include <vector>

#include "src/run/report/thinning.h"

namespace temper {

struct HoverLine {
  std::string colour, text;  // a class of the page ("r0": a run), empty: that of text
};
struct HoverColumn {
  double left = 0, right = 0, at = 0;  // user units; `at`: of its line
  std::vector<HoverLine> lines;
};
struct HoverFrame {
  double left = 0, right = 0, top = 0, bottom = 0;
};
/// One line stands above the chart, several beside the pointer.
std::string hover_svg(const std::vector<HoverColumn>& columns, const HoverFrame& frame);

/// Steps that share a column of at most `columns`: the least and the greatest of them.
struct StepBin {
  double first = 0, last = 0;
};
/// `curves`: those that have values at some steps.
std::vector<StepBin> step_bins(const std::vector<const Curve*>& curves, int64_t columns);

/// "0.51", or of several steps "0.51 (0.4 to 0.6)": mean, least and greatest. Empty: none of the steps has a
/// value.
std::string value_text(const Curve& curve, const StepBin& bin);
/// "step 3", "steps 3 to 5".
std::string step_text(const StepBin& bin);

}  // namespace temper
