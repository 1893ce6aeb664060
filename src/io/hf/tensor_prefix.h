#pragma once
// Text models whose tensors begin with "model.language_model." (saved from a model with a vision tower) or
// with "model." alone: both are seen under the prefix that the config of the folder stands for.

#include <map>
#include <string>

#include "src/io/hf/safetensors.h"
#include "src/nn/model_config.h"

namespace temper {

/// Renames tensors to ModelConfig::tensor_prefix. Returns the stored name of each that was renamed.
/// Exit::data where a folder has tensors under both prefixes.
std::map<std::string, std::string> match_tensor_prefix(std::map<std::string, TensorInfo>& tensors,
                                                       const ModelConfig& config, const std::string& folder);

}  // namespace temper
