#pragma once
// Experts that a file holds as one tensor of all: gate_up_proj [E, 2 Fm, H], in each expert Fm rows of gate
// before Fm of up, and down_proj [E, H, Fm]. They are seen as the tensors of single experts that models are
// published with: each is a range of the fused one's bytes.

#include <map>
#include <set>
#include <string>

#include "src/io/hf/safetensors.h"
#include "src/nn/model_config.h"

namespace temper {

/// Puts tensors of single experts in the place of fused ones (for Mixtral also its router under its published
/// name). Returns the files that held some. Exit::data for a fused tensor of another shape or type than the
/// config's, for one without the other, and where an expert is there both ways.
std::set<std::string> split_fused_experts(std::map<std::string, TensorInfo>& tensors,
                                          const ModelConfig& config, const std::string& folder);

}  // namespace temper
