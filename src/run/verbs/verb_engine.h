#pragma once
// The engine of verbs that generate without a config: its cache is as large as the machine leaves room for.

#include "src/config/config.h"
#include "src/rollout/engine.h"

namespace temper {

/// For sequences of at most `longest_sequence` tokens.
EngineOptions engine_of_verb(const Model& model, const RolloutConfig& r, int64_t longest_sequence);
/// Tokens that a dialogue may have: those of the context, as far as the cache has room for them.
int64_t longest_dialogue(const Model& model, const RolloutConfig& r);
/// Exit::usage for ids that the model does not have: they are a mistake, not a bias without effect.
void require_ids_of_model(const RolloutConfig& r, int64_t vocab_size);
/// Warns where ids that should end responses are none of the model's. `tokenizer` may be null.
void warn_of_lost_ends(const Model& model, const Tokenizer* tokenizer);

}  // namespace temper
