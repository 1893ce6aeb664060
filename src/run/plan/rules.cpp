#include "src/run/plan/rules.h"

#include <algorithm>

#include "src/comm/rank_set.h"
#include "src/config/methods.h"
#include "src/core/check.h"
#include "src/core/text/short_number.h"
#include "src/models/freeze.h"
#include "src/rl/registry.h"
#include "src/run/plan/run_options.h"

namespace temper {
namespace {

/// Values that no run is meant to have.
void warn_of_training(const Config& config, bool supervised, const ModelConfig& model, Findings& found) {
  constexpr double kLargeRate = 0.01;
  const OptimizerConfig& o = config.optimizer;
  const RecomputeConfig& r = config.train.recompute;
  const DataConfig& data = config.data;
  if (data.train_on != "last" && (!supervised || !data.chat))
    found.warn(fmt::format("data.train_on = \"{}\" has no effect {}", data.train_on,
                           supervised ? "without data.chat" : "on generated responses"));
  if (o.lr == 0) found.warn("optimizer.lr = 0: the weights never change");
  if (o.lr > kLargeRate)
    found.warn(
        fmt::format("optimizer.lr = {:g} is above {}: models diverge at such a rate; 1e-6 to 1e-3 are usual",
                    o.lr, kLargeRate));
  if (r.num_layers > model.num_layers)
    found.warn(fmt::format(
        "train.recompute.num_layers = {}, and the model has {} layers: {}", r.num_layers, model.num_layers,
        r.granularity == "full" ? "all of them are computed again"
                                : "it counts with recompute.granularity = \"full\" alone"));
}

}  // namespace

std::set<std::string> plan_freeze(const Config& config, const ModelConfig& model, Findings& found) {
  std::vector<std::string> names = config.train.freeze;
  if (config.moe.freeze_router)
    for (std::string& name : router_tensors(model)) names.push_back(std::move(name));
  Freeze freeze = frozen_parameters(model, names);
  for (std::string& defect : freeze.defects) found.error("train.freeze", std::move(defect), {Json::array()});
  return std::move(freeze.parameters);
}

void check_digest(const ModelSection& model, Findings& found) {
  if (model.init == "random" && !model.digest.empty())
    found.error("model.digest", "model.init = \"random\" loads no weights that could have it", {""});
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

void check_rewards(const Config& config, const RunPlan& plan, Findings& found) {
  const std::vector<RewardFunctionConfig>& functions = config.reward.functions;
  std::vector<Json> legal;
  for (const std::string_view name : reward_names())
    if (reward_defect({.name = std::string(name), .weight = 1, .numbers = {}, .strings = {}}).empty())
      legal.push_back(Json::array({std::string(name)}));
  for (const RewardFunctionConfig& function : functions)
    if (const std::string why = reward_defect(function); !why.empty())
      return found.error("reward.functions", why, legal);
  if (functions.empty() && plan.generates && !plan.taught() && config.rollout.harness.empty())
    found.error("reward.functions", "no reward function is named", legal);
  require_domain_key(config, functions, found);
}

std::vector<int> plan_profile(const Config& config, Findings& found) {
  constexpr int64_t kMostSteps = 1000000;
  const std::string& text = config.profile.steps;
  std::vector<int> profiled;
  if (text.empty()) return profiled;
  const RankSet set = read_rank_set(text, static_cast<int>(kMostSteps + 1));
  if (!set.defect.empty() || text == "all" || set.ranks.front() == 0) {
    found.error(
        "profile.steps",
        fmt::format("\"{}\" is no set of steps from 1 to {}, like \"3-5\" or \"1,10\"", text, kMostSteps),
        {"", "1"});
    return profiled;
  }
  const int64_t last = config.run.steps;
  for (const int step : set.ranks)
    if (step <= last) profiled.push_back(step);
  if (set.ranks.back() > last)
    found.idle(
        fmt::format("profile.steps = \"{}\": the run ends with step {}, {} of these steps are profiled", text,
                    last, profiled.size()));
  return profiled;
}

void check_warmup(const OptimizerConfig& o, const BatchPlan& batch, Findings& found) {
  const int64_t updates = batch.updates_total;
  if (updates == 0 || o.warmup_steps < updates) return;  // 0: the batch has errors of its own
  found.idle(
      fmt::format("optimizer.warmup_steps = {}: the whole run has {} and ends in warm-up, at {:.3g} of "
                  "optimizer.lr",
                  o.warmup_steps, count_text(updates, "update"),
                  static_cast<double>(updates) / static_cast<double>(o.warmup_steps)));
}

StateFormats plan_optimizer_state(const OptimizerConfig& o, const RunPlan& plan, Findings& found) {
  const DType weights = plan.dtype;
  if (o.state == "bf16" && weights == DType::f64)
    found.error("optimizer.state", "a run in fp64 has its moments in fp64 (which \"fp32\" leaves alone)",
                {"fp32"});
  if (o.master == "remainder" && weights != DType::bf16)
    found.error("optimizer.master",
                fmt::format("{} weights are their own master; only bf16 weights lack bits of it",
                            dtype_name(weights)),
                {"auto", "fp32"});
  return state_formats(o, weights, plan.device);
}

Offload plan_offload(const Config& config, const RunPlan& plan, Findings& found) {
  const auto resolve = [&](const std::string& key, const std::optional<bool>& wanted) {
    if (wanted.value_or(false) && plan.device == Device::cpu)
      found.error(key, "a run on the CPU has its state in host memory already", {"auto", false});
    return wanted.value_or(false) && plan.device == Device::cuda;
  };
  Offload offload{.optimizer = resolve("train.offload.optimizer", config.train.offload_optimizer),
                  .roles = {}};
  for (const RoleTraits& row : plan.rows)
    if (resolve(fmt::format("roles.{}.offload", row.name), config.roles.of(row.name).offload))
      if (const RolePlan* const role = plan.role(row.name); role && !plan.shares_base(*role))
        offload.roles.insert(row.name);
  return offload;
}

void warn_of_idle_keys(const Config& c, const RunPlan& plan, const ModelConfig& model, Findings& found) {
  const BatchPlan& b = plan.batch;
  const auto warn_idle = [&](const RolePlan& with, int64_t items, const char* of, const char* doing) {
    const int64_t teams = with.dp();
    if (items < teams)
      found.warn(fmt::format("{} {} on {} {}: {:.0f} % of the ranks are idle while {}", items, of, teams,
                             with.grid.size(kModel) > 1 ? "groups of ranks" : "ranks",
                             100.0 * static_cast<double>(teams - items) / static_cast<double>(teams), doing));
  };
  if (plan.generates) warn_idle(*plan.generator(), b.prompts_per_step, "prompts per step", "generating");
  warn_idle(plan.trainer(), b.samples_per_update, "samples per update", "training");
  if (!plan.generates && c.run.max_policy_lag > 0) found.warn("run.max_policy_lag has no effect on sft");
  if (b.dropped_samples > 0)
    found.warn(fmt::format("{} of {} samples are left out every step (train.last_partial = \"drop\")",
                           b.dropped_samples, b.samples_per_step));
  if (b.last_update_samples < b.samples_per_update)
    found.warn(fmt::format("the last update of a step has {} instead of {} (train.last_partial = \"keep\")",
                           count_text(b.last_update_samples, "sample"), b.samples_per_update));
  if (plan.generates && c.rollout.temperature == 0 && b.samples_per_prompt > 1)
    found.warn("rollout.temperature = 0: all samples of a prompt are equal, so all advantages are 0");
  const std::string changed = changed_sampling_text(c.rollout);
  if (plan.generates && !changed.empty()) found.warn(changed);
  if (plan.generates && c.rollout.tokens_per_step > 0) {
    if (plan.lengths.steps_of_longest_response == 1)
      found.warn("rollout.tokens_per_step has no effect: no response is longer");
    else
      found.warn(fmt::format(
          "rollout.tokens_per_step = {}: a response takes up to {} steps, so a step trains the "
          "prompts that finish in it (prompts_per_step on average, none at first, the rest in the "
          "last step)",
          c.rollout.tokens_per_step, plan.lengths.steps_of_longest_response));
  }
  if (plan.generates && b.samples_per_prompt == 1 && c.algorithm.single_group == "zero" &&
      advantage_traits(c.algorithm.advantage).lone == LoneSample::by_rule && !plan.taught())
    found.warn("groups of one sample with single_group = \"zero\": all advantages are 0, nothing is learned");
  warn_of_training(c, !plan.generates, model, found);
  for (const RoleTraits& row : plan.rows)
    if (const RoleSection& section = c.roles.of(row.name);
        !plan.role(row.name) && (section.ranks || section.path) && *row.when_needed)
      found.warn(fmt::format("roles.{} has no effect: {}", row.name, row.when_needed));
  if (!plan.generates && c.algorithm.kl_coef > 0)
    found.warn("algorithm.kl_coef has no effect on " + c.algorithm.name);
  if (!plan.generates && (c.rollout.prompts_per_step > 0 || c.rollout.samples_per_prompt > 0))
    found.warn(
        "rollout.prompts_per_step and rollout.samples_per_prompt have no effect on sft: a step has "
        "train.samples_per_update x train.updates_per_step lines");
  const auto never = [&](const char* key, int64_t every) {
    if (every > plan.steps)
      found.idle(fmt::format("{} = {} is beyond the last step, {}: it happens after that one alone", key,
                             every, plan.steps));
  };
  never("checkpoint.every", c.checkpoint.every);
  never("checkpoint.export_hf_every", c.checkpoint.export_hf_every);
  never("validation.every", c.validation.every);
  if (c.checkpoint.every == 0 && plan.steps > 100)
    found.warn(fmt::format("checkpoint.every = 0: a crash loses up to {} steps", plan.steps));
}

}  // namespace temper
