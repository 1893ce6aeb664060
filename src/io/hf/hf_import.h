#pragma once
// Weights of a model folder -> ParameterStore. Names and shapes are matched with the parameter specs before
// any data is read: missing, misshaped and unknown tensors are refused by name. Fused parameters take their
// rows from several tensors. Data moves in pieces of 8 MiB, straight into the store when the types agree
// (to a GPU eight at a time, pinned); values must be finite.

#include <cstdint>
#include <string>
#include <vector>

#include "src/comm/comm.h"
#include "src/io/hf/model_folder.h"
#include "src/nn/model_config.h"
#include "src/nn/parameter.h"

namespace temper {

/// Headers against specs, but for those of adapters; reads no data. Call it before memory is allocated for a
/// model of unknown size. Returns the tensors that are left over, as the folder allows.
std::vector<std::string> check_weights(const ModelFolder& folder, const ModelConfig& config,
                                       const std::vector<ParamSpec>& specs);

/// check_weights, then everything but adapters into `store` (already allocated; fp32, bf16 or fp64; on a GPU
/// through pinned windows). A tied head's copy in the file must equal the embedding. Returns the folder with
/// size and digest of the tensors that the model is made of, as stored: they do not depend on their files,
/// the type of the store, or ranks. `ranks`: those that import the model together, each what its store has; a
/// rank reads that, and of the rest, for the digest, what none of them has read, in turn. Null: this rank
/// reads all.
FileDigest import_weights(const ModelFolder& folder, const ModelConfig& config, ParameterStore& store,
                          Comm* ranks = nullptr);

/// The digest that import_weights gives, of weights that are read for it alone.
std::string digest_of_weights(const ModelFolder& folder, const ModelConfig& config,
                              const std::vector<ParamSpec>& specs);

/// Tensors that no parameter holds and that an export writes back as they are: rotary tables of old files,
/// layers from num_layers on (multi-token-prediction modules), ModelConfig::kept_tensors.
bool is_kept_tensor(const std::string& name, const ModelConfig& config);
/// The copy of the embedding that some tied models carry; never written.
bool is_tied_head(const std::string& name, const ModelConfig& config);

/// Shape of one Hugging Face tensor of a parameter (tensors_of).
std::vector<int64_t> part_shape(const ParamSpec& spec, const HfPart& part);

}  // namespace temper
