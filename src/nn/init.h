#pragma once
// Random weights of a new model: normal(0, initializer_range) for matrices, ones for norms, zeros for biases
// and for the embedding row of the padding token. Each value is a pure function of seed, parameter index and
// element (Philox stream weight_init), made without libm: the same on every machine, layout and type.

#include <cstdint>

#include "src/core/parallel.h"
#include "src/nn/model_config.h"
#include "src/nn/parameter.h"

namespace temper {

/// Elements of parameter number `index`.
void random_values(const ParamSpec& spec, int64_t index, const ModelConfig& config, uint64_t seed,
                   FlatRange elements, float* out);

/// All values of an allocated store (fp32, bf16, fp64) but those of adapters, rounded from fp32.
void random_init(ParameterStore& store, const ModelConfig& config, uint64_t seed,
                 const Threads& threads = {});
/// The same of its adapters alone: A uniform, B zeros, so that nothing is added yet.
void adapter_init(ParameterStore& store, const ModelConfig& config, uint64_t seed,
                  const Threads& threads = {});

}  // namespace temper
