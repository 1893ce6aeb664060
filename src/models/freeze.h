#pragma once
// What of a model is not trained (train.freeze), said by the names of its Hugging Face tensors.

#include <set>
#include <string>
#include <vector>

#include "src/nn/model_config.h"

namespace temper {

struct Freeze {
  std::set<std::string> parameters = {};  // ParamSpec::name of each that is not trained
  std::vector<std::string> defects = {};  // what is wrong with the names; empty: nothing
};
/// `names`: tensors, or patterns in which * stands for any text. Wrong are those that no tensor has, a part
/// of what is stored as one parameter, and all tensors.
Freeze frozen_parameters(const ModelConfig& config, const std::vector<std::string>& names);

/// ParamSpec::name of each router of layers of experts.
std::vector<std::string> router_parameters(const ModelConfig& config);
/// The names of their tensors, for frozen_parameters; a shared expert's gate is stored with its router.
std::vector<std::string> router_tensors(const ModelConfig& config);

}  // namespace temper
