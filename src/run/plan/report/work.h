#pragma once
// How much a step computes, at most.

#include "src/run/plan/plan.h"

namespace temper {

/// Floating-point operations of one step when every sample has full length, attention left out.
struct Work {
  int64_t tokens = 0;
  std::vector<double> of_row;  // of the roles that there are, 0: the run has no such one
};

Work most_work(const RunPlan& plan);

}  // namespace temper
