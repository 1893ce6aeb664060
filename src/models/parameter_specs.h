#pragma once
// The parameter table of the decoder families (nn/families.h): one row per parameter,
// with the Hugging Face tensors that it is made of. Order: embedding, layers ascending, final norm, head (if
// not tied).

#include <set>
#include <string>
#include <vector>

#include "src/nn/model_config.h"
#include "src/nn/parameter.h"

namespace temper {

/// Names of the units.
inline constexpr const char *kEmbeddingUnit = "embedding", *kHeadUnit = "head";
std::string layer_unit_name(int64_t layer);

std::vector<ParamSpec> parameter_specs(const ModelConfig& config);

/// The modules that adapters can be of, as Hugging Face calls them: those of attention, and of dense layers
/// where no layer has experts.
std::set<std::string> adapter_modules(const ModelConfig& config);

/// Parameters of `spec` that a token meets: of those of experts, its own experts' alone.
int64_t active_size(const ModelConfig& config, const ParamSpec& spec);

}  // namespace temper
