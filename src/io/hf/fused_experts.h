#pragma once
// Experts that a file holds as one tensor of all: gate_up_proj [E, 2 Fm, H], in each expert Fm rows of gate
// before Fm of up, and down_proj [E, H, Fm]. They are seen as the tensors of single experts that models are
// published with: each is a range of the fused one's bytes.

#include <map>
#include <set>
#include <string>

#include "src/io/hf/joined_tensors.h"
#include "src/nn/model_config.h"

namespace temper {

struct FusedExperts {
  std::set<std::string> files = {};       // that held some which go out a tensor each
  std::vector<JoinedTensor> joined = {};  // hybrid models' alone: they are published so, and go out so
};

/// Puts tensors of single experts in the place of fused ones (for Mixtral also its router under its published
/// name). Exit::data for a fused tensor of another shape or type than the config's, for one without the
/// other, and where an expert is there both ways.
FusedExperts split_fused_experts(std::map<std::string, TensorInfo>& tensors, const ModelConfig& config,
                                 const std::string& folder);

}  // namespace temper
