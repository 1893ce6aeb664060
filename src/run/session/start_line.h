#pragma once
// What a start says of its run: to people, and in events.jsonl.

#include "src/core/json.h"
#include "src/data/prompt_frame.h"
#include "src/run/session/run_rank.h"

namespace temper {

/// "grpo of MODEL (N parameters) on DATA (N lines): steps 1 to 100 of 16 prompts x 8 samples; 2 ranks, 4
/// threads each (why), cpu, fp32".
std::string start_text(const RunRank& rank);

/// The same as keys of the event "start", with the frame of its prompts.
Json start_event(const RunRank& rank);

/// What the chat template puts around a question of this run; no frame where its prompts are plain text.
PromptFrame run_prompt_frame(const RunRank& rank);

}  // namespace temper
