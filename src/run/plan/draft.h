#pragma once
// A plan while it is made: each rule below fills its part of the plan and adds errors and warnings. Rules run
// in the order of this list; a rule may read what earlier ones filled, also when they added errors.

#include "src/config/methods.h"
#include "src/run/plan/plan.h"

namespace temper {

struct PlanDraft {
  const Config& config;
  RunModels models;
  const ModelConfig& facts = models.policy;
  PlanResult result = {};

  bool supervised() const { return !algorithm_traits(config.algorithm.name).generates; }
  /// A model says what is right, and rewards are not needed.
  bool taught() const { return result.plan.role("teacher") != nullptr; }
  bool taught_alone() const {
    return taught() && config.reward.functions.empty() && config.rollout.harness.empty();
  }
  void error(const std::string& key, std::string message, std::vector<Json> legal) {
    result.errors.push_back({key, "", std::move(message), std::move(legal)});
  }
  void warn(std::string message) { result.warnings.push_back(std::move(message)); }
  /// A key that a longer run would heed.
  void idle(std::string message) {
    result.plan.idle_keys.push_back(message);
    warn(std::move(message));
  }
};

/// Errors of one reward function that are not its name; empty: none.
std::string reward_defect(const RewardFunctionConfig& function);
/// Functions that name domains need data.domain_key.
void require_domain_key(PlanDraft& draft, const std::vector<RewardFunctionConfig>& functions);

void plan_adapters(PlanDraft& draft);
void plan_freeze(PlanDraft& draft);
void plan_moe(PlanDraft& draft);
void plan_roles(PlanDraft& draft);
void plan_routes(PlanDraft& draft);
void plan_model(PlanDraft& draft);
void plan_algorithm(PlanDraft& draft);
void plan_rewards(PlanDraft& draft);
/// What programs that play sessions, and the limits of sessions, may be.
void plan_agents(PlanDraft& draft);
void plan_dynamic_sampling(PlanDraft& draft);
void plan_lengths(PlanDraft& draft);
void plan_microbatch(PlanDraft& draft);
void plan_cache(PlanDraft& draft);
/// Makes token budget and cache as large as a GPU whose memory is known allows, and offloads where nothing
/// fits without it, as far as the config leaves them "auto". A function of the card, not of what is free.
void plan_gpu_sizes(PlanDraft& draft, int64_t device_bytes);
void plan_schedule(PlanDraft& draft);
void plan_optimizer_state(PlanDraft& draft);
void plan_offload(PlanDraft& draft);
void plan_profile(PlanDraft& draft);
void plan_validation(PlanDraft& draft);
/// checkpoint.best and run.stop_when name metrics that validation has.
void plan_goals(PlanDraft& draft);
void plan_warnings(PlanDraft& draft);

/// A peak above a limit is an error whose legal values are shown to fit by planning again with them.
void plan_memory_limits(PlanDraft& draft, const MemoryLimits& limits);

}  // namespace temper
