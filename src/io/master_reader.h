#pragma once
// The weights of a checkpoint, for an export.

#include "src/io/hf_export.h"
#include "src/io/manifest.h"

namespace temper {

/// Reads the master weights as the run's weights had them: a bf16 run rounds its masters. The manifest must
/// outlive the reader.
ElementReader master_reader(const Manifest& manifest);

}  // namespace temper
