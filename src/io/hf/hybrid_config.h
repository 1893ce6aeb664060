#pragma once
// Keys of hybrid models (Family::is_hybrid): which layers have a gated delta net, its heads, and what of
// their folders belongs to a vision tower. What transformers ignores but means another model is refused by
// key.

#include "src/io/hf/config_reader.h"
#include "src/nn/families.h"
#include "src/nn/model_config.h"

namespace temper {

/// The object with the keys of the text model: that of `top` itself, or its "text_config".
const Json& text_config(const ConfigReader& top, const Json& config, const Family& family);

/// Fills what a hybrid model has beside others. `r`: of text_config; head_dim and num_layers are read
/// already. `rope_fraction`: of a head, from the rope object, where it has one.
void read_hybrid(const ConfigReader& top, const ConfigReader& r, const Family& family,
                 std::optional<double> rope_fraction, ModelConfig& c);

}  // namespace temper
