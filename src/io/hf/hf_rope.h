#pragma once
// The rotary-embedding part of config.json, in both spellings: rope_scaling (transformers 4) wins over
// rope_parameters (5), theta is looked up inside the object first and at the top level second.

#include <optional>
#include <string>
#include <vector>

#include "src/io/hf/config_reader.h"
#include "src/nn/model_config.h"

namespace temper {

/// "partial_rotary_factor" of the object that rules.
std::optional<double> rotated_fraction(const ConfigReader& top, const Json& config);

/// Uses rope_width() and max_position_embeddings of `model`. Unknown types, missing factors, per-layer-type
/// maps and, but for hybrid models, partial rotation are refused by key.
RopeConfig parse_rope(const ConfigReader& top, const Json& config, const ModelConfig& model,
                      std::vector<std::string>* warnings);

/// The object that rules: rope_scaling if it is a non-empty object, else rope_parameters, else {}.
Json rope_object(const Json& config);
/// Its `rope_type`, or the older `type`, or "default".
std::string rope_type(const Json& rope);

}  // namespace temper
