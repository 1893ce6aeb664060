#pragma once
// How many ranks can share the heads of a model's mixers: whole ones each, where neighbours may have the same
// head of keys (and values of attention).

#include <string>

#include "src/nn/model_config.h"

namespace temper {

/// Why its heads do not go to so many ranks of tp, and those of such a rank to so many of cp; empty: they do.
std::string tp_heads_defect(const ModelConfig& model, int64_t tp);
std::string cp_heads_defect(const ModelConfig& model, int tp, int64_t cp);

}  // namespace temper
