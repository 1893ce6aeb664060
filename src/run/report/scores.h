#pragma once
// How well a run does, in few numbers: first, last and best of what it is judged by.

#include <string>
#include <vector>

#include "src/run/report/history/metric_table.h"

namespace temper {

struct Score {
  std::string key;
  bool higher_is_better = true;
  int64_t window = 1;  // steps whose mean each of the values is
  struct At {
    double value = 0;
    int64_t step = 0;  // in the middle of its window
  };
  At first, last, best;
};

/// Every validation set has its score here, or its loss where it has none, and so has training.
std::vector<Score> scores_of(const MetricTable& table);

}  // namespace temper
