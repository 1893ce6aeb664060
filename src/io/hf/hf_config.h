#pragma once
// config.json of a Hugging Face folder <-> ModelConfig. Reads the spellings of transformers 4 (rope_theta,
// rope_scaling, torch_dtype) and 5 (rope_parameters, dtype); writes both. Every value is checked for type and
// range, products cannot overflow, and what the model code does not do (other families, sliding windows in
// use, quantised weights, other activations) is refused by key. Defaults of a family are those of
// transformers 5.23.

#include <string>
#include <vector>

#include "src/core/json.h"
#include "src/nn/model_config.h"

namespace temper {

/// `source` is the path shown in errors. `generation_config` may be null. `warnings` (may be null) receives
/// one line per default that was needed and per key that has no effect.
ModelConfig parse_model_config(const Json& config, const Json* generation_config, const std::string& source,
                               std::vector<std::string>* warnings = nullptr);

/// The config.json of an exported model: all keys of `source` with their values and order, and the missing
/// spellings of rope and dtype added. With `set_dtype` both dtype keys become `dtype`, else they are only
/// added if missing.
Json export_config(const Json& source, const ModelConfig& config, DType dtype, bool set_dtype);

}  // namespace temper
