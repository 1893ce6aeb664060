#pragma once
// Which layers of a model are alike: what one of a kind takes and sends is measured once and counted.

#include <vector>

#include "src/models/model.h"

namespace temper {

/// For each layer the first one that is like it: their parameters differ in the number alone.
std::vector<int64_t> layer_kinds(const ModelConfig& config);
/// A kind, by its first layer, and how many a range has.
struct LayerKind {
  int64_t layer = 0, count = 0;
  bool operator==(const LayerKind&) const = default;
};
std::vector<LayerKind> layer_kinds(const ModelConfig& config, const LayerRange& layers);
/// The model with these of its layers alone, in this order; a layer may come more than once.
ModelConfig with_layers(const ModelConfig& config, const std::vector<int64_t>& layers);

}  // namespace temper
