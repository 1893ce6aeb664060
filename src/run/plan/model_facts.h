#pragma once
// The model that a plan is for, from its config.json and generation_config.json alone.

#include <string>

#include "src/nn/model_config.h"

namespace temper {

int64_t num_parameters(const ModelConfig& config);

/// Of a model folder; Exit::data where it has no config.json, and where no kernel can run the shape: not even
/// those of the CPU, for those of a GPU the plan says it.
ModelConfig read_model_facts(const std::string& model_path);

/// The same of a config.json alone.
ModelConfig read_config_facts(const std::string& config_json);

/// The config.json of a model that is not here, as models/NAME.json beside `config_file` or in conf/: NAME is
/// the last part of the model's path that has one ("Qwen3-0.6B", "demo" of runs/demo/model). Empty: none has.
std::string find_published_config(const std::string& model_path, const std::string& config_file);

}  // namespace temper
