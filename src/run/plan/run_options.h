#pragma once
// From config and plan to what the engine, the trainer and passes over tokens are asked for.

#include "src/rollout/engine.h"
#include "src/run/plan/plan.h"
#include "src/train/trainer.h"

namespace temper {

/// How a section draws from the logits.
SampleOptions sample_options(const RolloutConfig& section);

/// Stop ids are those of the section and, without ignore_eos, those of model and
/// tokenizer. Null: the ids of the model are all that there is.
GenerateOptions sampling_options(const RolloutConfig& section, const ModelConfig& model,
                                 const Tokenizer* tokenizer, uint64_t seed, int64_t max_new_tokens);

/// How the rollouts of a run are generated.
GenerateOptions rollout_options(const Config& config, const RunPlan& plan, const ModelConfig& model,
                                const Tokenizer& tokenizer);
EngineOptions engine_options(const Config& config, const RunPlan& plan);
/// How the trainer or a reference passes tokens through its model.
PassOptions pass_options(const Config& config, const RunPlan& plan, const RolePlan& role);
RecomputePlan recompute_plan(const RecomputeConfig& section);
TrainerOptions trainer_options(const Config& config, const RunPlan& plan, const RolePlan& role);

/// That no response can end with these ids of a model's folder and its tokenizer; "" when there are none.
std::string lost_end_tokens_text(const ModelConfig& model, std::optional<int32_t> tokenizer_eos = {});

/// Which keys make the drawn distribution another one than the policy whose log-probs are reported, and what
/// that means; "" when none does.
std::string changed_sampling_text(const RolloutConfig& section);

/// A reward of the run or of a validation set asks a program.
bool rewards_need_helpers(const Config& config);
/// Programs play the samples.
inline bool plays(const Config& config) { return !config.rollout.harness.empty(); }
/// Rewards, sessions or a tracker are programs.
bool starts_programs(const Config& config);

}  // namespace temper
