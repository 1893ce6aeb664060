#pragma once
// From the section [rollout] to what the engine is asked for.

#include "src/config/config.h"
#include "src/data/tokenizer/tokenizer.h"
#include "src/models/model.h"
#include "src/rollout/request.h"

namespace temper {

/// Stop ids are those of the section and, without ignore_eos, those of model and tokenizer.
GenerateOptions sampling_options(const RolloutConfig& section, const ModelConfig& model,
                                 const Tokenizer& tokenizer, uint64_t seed, int64_t max_new_tokens);

/// Which keys make the drawn distribution another one than the policy whose log-probs are reported, and what
/// that means; "" when none does.
std::string changed_sampling_text(const RolloutConfig& section);

}  // namespace temper
