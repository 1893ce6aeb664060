#pragma once
// The model that a plan is for, from its config.json and generation_config.json alone.

#include <string>

#include "src/nn/model_config.h"

namespace temper {

int64_t num_parameters(const ModelConfig& config);

/// Of a model folder; Exit::data where it has no config.json, and where no kernel can run the shape: not even
/// those of the CPU, for those of a GPU the plan says it.
ModelConfig read_model_facts(const std::string& model_path);

}  // namespace temper
