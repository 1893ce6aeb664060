#pragma once
// The experts that take the rows of a step, where they are recorded, on their way to its sequences.

#include "src/models/model.h"
#include "src/nn/router_notes.h"
#include "src/rl/routes.h"
#include "src/rollout/scheduler.h"

namespace temper {

/// Every sequence gets the routes of those rows that it has none of: a row that is computed again keeps those
/// of the pass after which its successor was drawn. `chosen`: [L, at least as many rows as the step has, K].
void keep_routes(std::span<const ScheduledRows> step, const ModelConfig& model, const RouteShape& shape,
                 std::span<const int32_t> chosen);

class StepRoutes {
 public:
  /// Without layers in the shape nothing is recorded.
  StepRoutes(Ctx& c, const ModelConfig& model, const RouteShape& shape, int64_t rows);
  /// For the batch of the step.
  const RouterNotes* notes() const { return shape_.layers > 0 ? &notes_ : nullptr; }
  /// Waits for the step, before it is committed.
  void keep(const Ctx& c, std::span<const ScheduledRows> step) const;

 private:
  const ModelConfig& model_;
  RouteShape shape_;
  RouterNotes notes_ = {};
};

}  // namespace temper
