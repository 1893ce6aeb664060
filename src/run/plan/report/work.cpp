#include "src/run/plan/report/work.h"

#include "src/run/plan/memory/memory.h"

namespace temper {

Work most_work(const RunPlan& plan) {
  Work work;
  work.tokens = saturating_multiply(plan.batch.samples_per_step, plan.lengths.longest);
  const double forward = 2.0 * static_cast<double>(plan.num_parameters) * static_cast<double>(work.tokens);
  for (const RoleTraits& row : plan.rows) {
    const double times = row.trains() ? 3.0 * static_cast<double>(plan.batch.epochs_per_step) : 1.0;
    work.of_row.push_back(plan.role(row.name) ? times * forward : 0);
  }
  return work;
}

}  // namespace temper
