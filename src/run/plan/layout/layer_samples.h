#pragma once
// Small models in the place of the layers that a rank has: what one layer of a kind takes and sends is
// measured once and counted.

#include <vector>

#include "src/models/layer_kinds.h"
#include "src/run/plan/layout/role_plan.h"

namespace temper {

/// Layers of a model: what a rank has of it.
struct SomeLayers {
  ModelConfig model;
  LayerRange layers;
};
/// Layers by number in the place of these: with the embedding, with the head, or with neither.
SomeLayers instead(const SomeLayers& all, std::vector<int64_t> layers);

/// Models that tell what each layer adds: with one of each kind, and for a kind of which there are more than
/// one, with one more of it.
struct LayerSamples {
  SomeLayers one_each;
  struct More {
    SomeLayers layers;
    int64_t times = 0;  // that a layer of the kind comes beyond its first
  };
  std::vector<More> more;
};
LayerSamples samples_of(const SomeLayers& all);

/// The same for stages at the same end of the model with as many layers of each kind, which hold and send the
/// same.
std::vector<int64_t> stage_kind(const RolePlan& role, const ModelConfig& model, int stage);

}  // namespace temper
