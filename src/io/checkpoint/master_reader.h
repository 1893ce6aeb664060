#pragma once
// The weights of a checkpoint, for an export or for a model.

#include "src/io/checkpoint/manifest.h"
#include "src/io/hf/hf_export.h"

namespace temper {

/// Reads the master weights as the run's weights had them: a bf16 run rounds its masters. The manifest must
/// outlive the reader.
ElementReader master_reader(const Manifest& manifest);

/// They become what this rank has of a model, in the type of `store`, or of its adapters, where a folder has
/// their base; a tensor that the checkpoint lacks or
/// has in another shape, or a number that is not finite in this type, is Exit::data.
void load_weights(const Manifest& manifest, ParameterStore& store);

}  // namespace temper
