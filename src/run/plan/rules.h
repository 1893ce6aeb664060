#pragma once
// The rules of a plan. Each looks at its part of a config, says what is wrong with it and, as plan_*, gives
// the numbers that follow. A plan that they get has what the rules before them gave (try_plan has their
// order), also where these found errors.

#include <set>
#include <string_view>

#include "src/run/plan/findings.h"
#include "src/run/plan/plan.h"
#include "src/train/optimizer.h"

namespace temper {

/// Those of [lora], or of the folder that it names.
AdapterConfig plan_adapters(const Config& config, const RunModels& models, Findings& found);
/// The models with them; what the policy began with is the base.
RunModels with_adapters(const RunModels& models, const AdapterConfig& adapters, const LoraConfig& config);
/// The parameters of the model that are not trained.
std::set<std::string> plan_freeze(const Config& config, const ModelConfig& model, Findings& found);
/// The losses of its routers, in words.
std::string plan_aux_losses(const Config& config, const ModelConfig& model, Findings& found);
/// The roles that the run needs, in the order of their phases.
std::vector<RolePlan> plan_roles(const Config& config, const RunModels& models, int num_ranks,
                                 Findings& found);
/// The routes that are recorded.
RouteShape plan_routes(const Config& config, const RunPlan& plan, const MoeConfig& model, Findings& found);
void check_digest(const ModelSection& model, Findings& found);
/// What [algorithm] asks for; whether advantages of a response may differ.
bool plan_advantages(const Config& config, const RunPlan& plan, const RunModels& models, Findings& found);
void check_rewards(const Config& config, const RunPlan& plan, Findings& found);
/// Errors of one reward function that are not its name; empty: none.
std::string reward_defect(const RewardFunctionConfig& function);
/// Functions that name domains need data.domain_key.
void require_domain_key(const Config& config, const std::vector<RewardFunctionConfig>& functions,
                        Findings& found);
/// What programs that play sessions, and the limits of sessions, may be.
void check_agents(const Config& config, const RunPlan& plan, Findings& found);
void check_dynamic_sampling(const Config& config, const RunPlan& plan, Findings& found);
SequenceLengths plan_lengths(const Config& config, const ModelConfig& model, Findings& found);
/// Tokens of an automatic micro-batch.
inline constexpr int64_t kLeastBudget = 4096;
/// The most tokens of a micro-batch of a rank.
int64_t plan_microbatch(const Config& config, const RunPlan& plan, Findings& found);
ValidationPlan plan_validation(const Config& config, const RunPlan& plan, Findings& found);
/// checkpoint.best and run.stop_when name metrics that validation has.
void check_goals(const Config& config, const RunPlan& plan, Findings& found);
CachePlan plan_cache(const Config& config, const RunPlan& plan, const ModelConfig& model, Findings& found);
void check_warmup(const OptimizerConfig& config, const BatchPlan& batch, Findings& found);
StateFormats plan_optimizer_state(const OptimizerConfig& config, const RunPlan& plan, Findings& found);
/// What lies in host memory because the config says so: "auto" waits for the memory of the GPU.
struct Offload {
  bool optimizer = false;
  std::set<std::string_view> roles;
};
Offload plan_offload(const Config& config, const RunPlan& plan, Findings& found);
/// The steps of the run that are profiled.
std::vector<int> plan_profile(const Config& config, Findings& found);

/// The plan with a token budget and a cache as large as a GPU whose memory is known allows, and with offloads
/// where nothing fits without, as far as the config leaves them "auto". A function of the card, not of what
/// is free.
RunPlan sized_for_gpu(RunPlan plan, const RunModels& models, const Config& config, int64_t device_bytes);
/// Warns of what has no effect, or hardly the one that was meant.
void warn_of_idle_keys(const Config& config, const RunPlan& plan, const ModelConfig& model, Findings& found);
/// A peak above a limit is an error whose legal values are shown to fit by planning again with them.
void check_memory(const Config& config, const RunPlan& plan, const RunModels& models,
                  const MemoryLimits& limits, Findings& found);

}  // namespace temper
