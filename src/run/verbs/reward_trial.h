#pragma once
// What `temper check` asks of reward programs: one start, one answer.

#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/core/json.h"
#include "src/data/prompt_builder.h"

namespace temper {

/// What a policy that knows the answer of a line would say: in trials.
std::string trial_response(const Prompt& first);

/// Scores the answer of `first`, a prompt made of the data line `record`, as if a policy had said it:
/// {"prompt", "response", "reward" or null, "parts", "seconds"}. The program's start is in `seconds`. Why
/// there is no reward is logged.
Json try_rewards(const Config& config, const Prompt& first, const Json& record);

/// The trial in words, for people.
std::string trial_text(const Json& trial);

}  // namespace temper
