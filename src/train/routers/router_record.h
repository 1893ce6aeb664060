#pragma once
// What the routers of a model did in an update, for its metrics: over the tokens of all ranks,
//   moe/load_max, moe/load_min   rows of the busiest and of the idlest expert of any layer, over the mean of
//   its
//                                layer: 1 is even
//   moe/experts_idle             experts of all layers that got no token
//   moe/routing_mismatch         recorded ids of experts that the routers did not choose
//   moe/entropy                  mean over tokens and layers, in nats, of the router's distribution; log E is
//   even

#include "src/comm/comm.h"
#include "src/core/ctx.h"
#include "src/nn/model_config.h"
#include "src/rl/algorithm.h"
#include "src/train/routers/given_routes.h"

namespace temper {

class RouterRecord {
 public:
  /// Holds nothing for a dense model.
  RouterRecord(const ModelConfig& config, DType storage, Device device, const RouteOptions& routes);

  /// An update begins.
  void clear(Lane& lane);
  /// RouterNotes::sums; none for a dense model.
  Tensor sums() const { return sums_; }
  /// RouterNotes::others; none where no routes are recorded.
  Tensor others() const { return others_; }
  /// Every rank of `all` calls it: those that have other tokens or other layers of the model.
  void add_metrics(const Ctx& c, Comm& all, Metrics& metrics) const;

 private:
  const MoeConfig& moe_;
  Arena memory_;
  Tensor sums_, others_;
};

}  // namespace temper
