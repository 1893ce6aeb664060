#include <algorithm>

#include "src/comm/rank_set.h"
#include "src/core/check.h"
#include "src/core/text/short_number.h"
#include "src/models/freeze.h"
#include "src/rl/registry.h"
#include "src/run/plan/draft.h"
#include "src/run/plan/run_options.h"

namespace temper {
namespace {

/// Values that no run is meant to have.
void warn_of_training(PlanDraft& d) {
  constexpr double kLargeRate = 0.01;
  const OptimizerConfig& o = d.config.optimizer;
  const RecomputeConfig& r = d.config.train.recompute;
  const DataConfig& data = d.config.data;
  if (data.train_on != "last" && (!d.supervised() || !data.chat))
    d.warn(fmt::format("data.train_on = \"{}\" has no effect {}", data.train_on,
                       d.supervised() ? "without data.chat" : "on generated responses"));
  if (o.lr == 0) d.warn("optimizer.lr = 0: the weights never change");
  if (o.lr > kLargeRate)
    d.warn(
        fmt::format("optimizer.lr = {:g} is above {}: models diverge at such a rate; 1e-6 to 1e-3 are usual",
                    o.lr, kLargeRate));
  if (r.num_layers > d.facts.num_layers)
    d.warn(fmt::format("train.recompute.num_layers = {}, and the model has {} layers: {}", r.num_layers,
                       d.facts.num_layers,
                       r.granularity == "full" ? "all of them are computed again"
                                               : "it counts with recompute.granularity = \"full\" alone"));
}

}  // namespace

void plan_freeze(PlanDraft& d) {
  std::vector<std::string> names = d.config.train.freeze;
  if (d.config.moe.freeze_router)
    for (std::string& name : router_tensors(d.facts)) names.push_back(std::move(name));
  Freeze freeze = frozen_parameters(d.facts, names);
  for (std::string& defect : freeze.defects) d.error("train.freeze", std::move(defect), {Json::array()});
  d.models.policy.frozen = d.result.plan.frozen = std::move(freeze.parameters);
}

void plan_model(PlanDraft& d) {
  const ModelSection& m = d.config.model;
  if (m.init == "random" && !m.digest.empty())
    d.error("model.digest", "model.init = \"random\" loads no weights that could have it", {""});
}

std::string reward_defect(const RewardFunctionConfig& function) {
  // The registry throws on bad options; a check of the config has to show this error together with all
  // others.
  try {
    make_reward(function);
  } catch (const Error& error) {
    const Problem& p = error.problem();
    return fmt::format("{}: {}{}{}", p.what, p.why, p.fix.empty() ? "" : "; ", p.fix);
  }
  return "";
}

void plan_rewards(PlanDraft& d) {
  const std::vector<RewardFunctionConfig>& functions = d.config.reward.functions;
  std::vector<Json> legal;
  for (const std::string_view name : reward_names())
    if (reward_defect({.name = std::string(name), .weight = 1, .numbers = {}, .strings = {}}).empty())
      legal.push_back(Json::array({std::string(name)}));
  for (const RewardFunctionConfig& function : functions)
    if (const std::string why = reward_defect(function); !why.empty())
      return d.error("reward.functions", why, legal);
  if (functions.empty() && !d.supervised() && !d.taught() && d.config.rollout.harness.empty())
    d.error("reward.functions", "no reward function is named", legal);
  require_domain_key(d, functions);
}

void plan_profile(PlanDraft& d) {
  constexpr int64_t kMostSteps = 1000000;
  const std::string& text = d.config.profile.steps;
  if (text.empty()) return;
  const RankSet set = read_rank_set(text, static_cast<int>(kMostSteps + 1));
  if (!set.defect.empty() || text == "all" || set.ranks.front() == 0)
    return d.error(
        "profile.steps",
        fmt::format("\"{}\" is no set of steps from 1 to {}, like \"3-5\" or \"1,10\"", text, kMostSteps),
        {"", "1"});
  const int64_t last = d.result.plan.steps;
  for (const int step : set.ranks)
    if (step <= last) d.result.plan.profiled_steps.push_back(step);
  if (set.ranks.back() > last)
    d.idle(fmt::format("profile.steps = \"{}\": the run ends with step {}, {} of these steps are profiled",
                       text, last, d.result.plan.profiled_steps.size()));
}

void plan_schedule(PlanDraft& d) {
  const OptimizerConfig& o = d.config.optimizer;
  const int64_t updates = d.result.plan.batch.updates_total;
  if (updates == 0 || o.warmup_steps < updates) return;  // 0: the batch has errors of its own
  d.idle(
      fmt::format("optimizer.warmup_steps = {}: the whole run has {} and ends in warm-up, at {:.3g} of "
                  "optimizer.lr",
                  o.warmup_steps, count_text(updates, "update"),
                  static_cast<double>(updates) / static_cast<double>(o.warmup_steps)));
}

void plan_optimizer_state(PlanDraft& d) {
  const OptimizerConfig& o = d.config.optimizer;
  const DType weights = d.result.plan.dtype;
  if (o.state == "bf16" && weights == DType::f64)
    d.error("optimizer.state", "a run in fp64 has its moments in fp64 (which \"fp32\" leaves alone)",
            {"fp32"});
  if (o.master == "remainder" && weights != DType::bf16)
    d.error("optimizer.master",
            fmt::format("{} weights are their own master; only bf16 weights lack bits of it",
                        dtype_name(weights)),
            {"auto", "fp32"});
  const StateFormats formats = state_formats(o, weights, d.result.plan.device);
  d.result.plan.master = formats.master;
  d.result.plan.moments = formats.moments;
}

/// "auto" stays false until the memory of the GPU is known: plan_gpu_sizes.
void plan_offload(PlanDraft& d) {
  RunPlan& plan = d.result.plan;
  const auto resolve = [&](const std::string& key, const std::optional<bool>& wanted) {
    if (wanted.value_or(false) && plan.device == Device::cpu)
      d.error(key, "a run on the CPU has its state in host memory already", {"auto", false});
    return wanted.value_or(false) && plan.device == Device::cuda;
  };
  plan.optimizer_in_host = resolve("train.offload.optimizer", d.config.train.offload_optimizer);
  for (const RoleTraits& row : plan.rows) {
    const bool in_host =
        resolve(fmt::format("roles.{}.offload", row.name), d.config.roles.of(row.name).offload);
    for (RolePlan& role : plan.roles)
      if (role.traits == &row) role.in_host = in_host && !plan.shares_base(role);
  }
}

void plan_warnings(PlanDraft& d) {
  const Config& c = d.config;
  const RunPlan& plan = d.result.plan;
  const BatchPlan& b = plan.batch;
  const auto warn_idle = [&](const RolePlan& with, int64_t items, const char* of, const char* doing) {
    const int64_t teams = with.dp();
    if (items < teams)
      d.warn(fmt::format("{} {} on {} {}: {:.0f} % of the ranks are idle while {}", items, of, teams,
                         with.grid.size(kModel) > 1 ? "groups of ranks" : "ranks",
                         100.0 * static_cast<double>(teams - items) / static_cast<double>(teams), doing));
  };
  if (plan.generates) warn_idle(*plan.generator(), b.prompts_per_step, "prompts per step", "generating");
  warn_idle(plan.trainer(), b.samples_per_update, "samples per update", "training");
  if (!plan.generates && c.run.max_policy_lag > 0) d.warn("run.max_policy_lag has no effect on sft");
  if (b.dropped_samples > 0)
    d.warn(fmt::format("{} of {} samples are left out every step (train.last_partial = \"drop\")",
                       b.dropped_samples, b.samples_per_step));
  if (b.last_update_samples < b.samples_per_update)
    d.warn(fmt::format("the last update of a step has {} instead of {} (train.last_partial = \"keep\")",
                       count_text(b.last_update_samples, "sample"), b.samples_per_update));
  if (plan.generates && c.rollout.temperature == 0 && b.samples_per_prompt > 1)
    d.warn("rollout.temperature = 0: all samples of a prompt are equal, so all advantages are 0");
  const std::string changed = changed_sampling_text(c.rollout);
  if (plan.generates && !changed.empty()) d.warn(changed);
  if (plan.generates && c.rollout.tokens_per_step > 0) {
    if (plan.steps_of_longest_response == 1)
      d.warn("rollout.tokens_per_step has no effect: no response is longer");
    else
      d.warn(fmt::format(
          "rollout.tokens_per_step = {}: a response takes up to {} steps, so a step trains the "
          "prompts that finish in it (prompts_per_step on average, none at first, the rest in the "
          "last step)",
          c.rollout.tokens_per_step, plan.steps_of_longest_response));
  }
  if (plan.generates && b.samples_per_prompt == 1 && c.algorithm.single_group == "zero" &&
      advantage_traits(c.algorithm.advantage).lone == LoneSample::by_rule && !d.taught())
    d.warn("groups of one sample with single_group = \"zero\": all advantages are 0, nothing is learned");
  warn_of_training(d);
  for (const RoleTraits& row : plan.rows)
    if (const RoleSection& section = c.roles.of(row.name);
        !plan.role(row.name) && (section.ranks || section.path) && *row.when_needed)
      d.warn(fmt::format("roles.{} has no effect: {}", row.name, row.when_needed));
  if (d.supervised() && c.algorithm.kl_coef > 0)
    d.warn("algorithm.kl_coef has no effect on " + c.algorithm.name);
  if (d.supervised() && (c.rollout.prompts_per_step > 0 || c.rollout.samples_per_prompt > 0))
    d.warn(
        "rollout.prompts_per_step and rollout.samples_per_prompt have no effect on sft: a step has "
        "train.samples_per_update x train.updates_per_step lines");
  const auto never = [&](const char* key, int64_t every) {
    if (every > plan.steps)
      d.idle(fmt::format("{} = {} is beyond the last step, {}: it happens after that one alone", key, every,
                         plan.steps));
  };
  never("checkpoint.every", c.checkpoint.every);
  never("checkpoint.export_hf_every", c.checkpoint.export_hf_every);
  never("validation.every", c.validation.every);
  if (c.checkpoint.every == 0 && plan.steps > 100)
    d.warn(fmt::format("checkpoint.every = 0: a crash loses up to {} steps", plan.steps));
}

}  // namespace temper
