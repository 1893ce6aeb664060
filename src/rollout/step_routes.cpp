#include "src/rollout/step_routes.h"

#include <algorithm>

namespace temper {

void keep_routes(std::span<const ScheduledRows> step, const ModelConfig& model, const RouteShape& shape,
                 std::span<const int32_t> chosen) {
  const int64_t k = shape.chosen, rows = std::ssize(chosen) / (model.num_layers * k);
  std::vector<int32_t> ids(static_cast<size_t>(shape.row_ids()));
  int64_t row = 0;
  for (const ScheduledRows& part : step) {
    Routes& routes = part.sequence->response.routes;
    if (routes.empty()) routes = make_routes(shape);
    for (int64_t i = 0; i < part.rows; ++i, ++row) {
      if (part.first + i < route_rows(routes)) continue;
      auto to = ids.begin();
      for (const int64_t layer : model.moe.layers)
        to = std::copy_n(chosen.begin() + (layer * rows + row) * k, k, to);
      append_route(routes, ids);
    }
  }
}

StepRoutes::StepRoutes(Ctx& c, const ModelConfig& model, const RouteShape& shape, int64_t rows)
    : model_(model), shape_(shape) {
  if (shape.layers > 0) notes_.chosen = c.scratch.make({model.num_layers, rows, shape.chosen}, DType::i32);
}

void StepRoutes::keep(const Ctx& c, std::span<const ScheduledRows> step) const {
  if (shape_.layers > 0) keep_routes(step, model_, shape_, to_host<int32_t>(c, notes_.chosen));
}

}  // namespace temper
