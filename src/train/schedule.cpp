#include "src/train/schedule.h"

#include <algorithm>

namespace temper {

std::vector<ScheduleStep> one_forward_one_backward(int stage, int stages, int64_t microbatches) {
  std::vector<ScheduleStep> steps;
  const int64_t ahead = std::min<int64_t>(stages - 1 - stage, microbatches);
  for (int64_t i = 0; i < ahead; ++i) steps.push_back({false, i});
  for (int64_t i = 0; i < microbatches; ++i) {
    if (i + ahead < microbatches) steps.push_back({false, i + ahead});
    steps.push_back({true, i});
  }
  return steps;
}

}  // namespace temper
