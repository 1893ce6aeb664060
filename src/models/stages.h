#pragma once
// Which stage of a pipeline has which layers.

#include <vector>

#include "src/models/model.h"

namespace temper {

/// What stages do. An update computes logits twice: the head has four products for each of its parameters
/// where layers have three.
enum class StageWork { forward, update };

/// Neighbouring layers in turn, so that the slowest stage is as fast as can be: a layer costs the parameters that
/// a token meets, a head its own, in an update a third more, and the last stage has it beside its layers.
/// 1 <= stages <= layers.
std::vector<LayerRange> balanced_stages(const ModelConfig& config, int stages,
                                        StageWork work = StageWork::update);

/// The parts of each of `stages` stages, of which part c of stage s is number c * stages + s of all.
std::vector<LayerRanges> parts_of_stages(const std::vector<LayerRange>& all, int stages);

/// What each stage has of the parameters.
std::vector<UnitSet> stage_units(const std::vector<LayerRanges>& stages);

}  // namespace temper
