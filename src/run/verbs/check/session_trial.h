#pragma once
// What `temper check` asks of programs that play sessions: one session of the first line, whose turns are not
// sampled (no weights are read): in each the policy says the line's answer.

#include <string>

#include "src/config/config.h"
#include "src/core/json.h"
#include "src/data/prompt_builder.h"
#include "src/nn/model_config.h"
#include "src/run/plan/plan.h"

namespace temper {

/// The most that a session in `check` may have, whatever the config allows.
inline constexpr double kTrialSeconds = 60;
inline constexpr int64_t kTrialTurns = 64;

/// Plays `first`, a prompt made of the data line `record`, by the program that the line chooses, with the
/// limits of the config and those above:
/// {"environment", "end_reason", "reward" or null, "parts", "seconds", "samples", "trained_tokens",
/// "turns": [{"prompt_tokens", "goes_on_from" (a turn, or null: the prompt is rendered whole), "new_text",
/// "said", "said_tokens"}]}. Texts are as the template renders them, and cut. Why a program failed is logged.
/// Nothing of the program stays. Error(Exit::usage) where it cannot be started.
Json try_session(const Config& config, const RunPlan& plan, const ModelConfig& model, const Prompt& first,
                 const Json& record);

/// The trial in words, for people.
std::string session_text(const Json& trial);
/// What a person should look at before the run; empty: nothing.
std::string session_warning(const Json& trial);

}  // namespace temper
