#pragma once
// Weights with their adapters merged in, W + scale B A, for an export: the sums in fp64, rounded once.

#include "src/io/hf/hf_export.h"

namespace temper {

/// Reads the parameters of `config` without its adapters: a matrix of `folder` with what its adapters add to
/// it, everything else as the folder has it. `adapters` reads A and B. All of them outlive the reader.
ElementReader merged_reader(const ModelFolder& folder, const std::vector<ParamSpec>& specs, double scale,
                            const ElementReader& adapters);

}  // namespace temper
