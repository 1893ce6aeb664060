#pragma once
// What a start says of its run: to people, and in events.jsonl.

#include "src/core/json.h"
#include "src/run/session/run_inputs.h"
#include "src/run/session/run_links.h"

namespace temper {

/// What is known of a run when its models are loaded.
struct StartFacts {
  int64_t first_step, parameters;
  std::string threads, digest;  // for people; of the frozen weights, empty: random ones
};

/// "grpo of MODEL (N parameters) on DATA (N lines): steps 1 to 100 of 16 prompts x 8 samples; 2 ranks, 4
/// threads each (why), cpu, fp32; Ctrl-C saves and stops", and in a second line the updates, the algorithm
/// and the digest of the weights.
std::string start_text(const RunTask& task, const RunInputs& inputs, const StartFacts& facts);
/// "; tensors over tp, dp by NCCL", where GPUs exchange any.
std::string carriers_text(RunLinks& links);

/// The same as keys of the event "start", with the frame of its prompts.
Json start_event(const RunTask& task, const RunInputs& inputs, const StartFacts& facts);

/// Warns of keys that this run makes idle, and of sampling that other engines do otherwise.
void tell_idle_keys(const RunTask& task);

}  // namespace temper
