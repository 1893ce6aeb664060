#pragma once
// The parameters of adapters (nn/adapter.h) as rows of a model's table: beside those of a matrix `w`, in the
// same unit but trained, `w.lora_a` and `w.lora_b`, with a part for each Hugging Face module.

#include <set>
#include <string>
#include <vector>

#include "src/nn/adapter_config.h"
#include "src/nn/parameter.h"

namespace temper {

/// Adds those of the matrices from number `begin` on, of their modules that are targets and among `modules`.
void add_adapter_specs(std::vector<ParamSpec>& specs, size_t begin, const AdapterConfig& adapters,
                       const std::set<std::string>& modules);

}  // namespace temper
