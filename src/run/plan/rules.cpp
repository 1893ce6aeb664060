#include <algorithm>

#include "src/comm/rank_set.h"
#include "src/core/check.h"
#include "src/rl/registry.h"
#include "src/run/plan/draft.h"
#include "src/run/plan/run_options.h"

namespace temper {
namespace {

/// The ranks of a role; an illegal set is an error and gives nothing.
std::vector<int> role_ranks(PlanDraft& d, const char* key, const std::string& text, const Json& legal) {
  RankSet set = read_rank_set(text, d.result.plan.num_ranks);
  if (!set.defect.empty()) d.error(key, set.defect, {legal});
  return std::move(set.ranks);
}

void require_cover(PlanDraft& d, const std::vector<int>& used) {
  const int world = d.result.plan.num_ranks;
  std::vector<int> idle;
  for (int rank = 0; rank < world; ++rank)
    if (!std::binary_search(used.begin(), used.end(), rank)) idle.push_back(rank);
  if (idle.empty()) return;
  const std::string text =
      fmt::format("{} of {} ranks have no role: {}", idle.size(), world, rank_set_text(idle));
  if (d.config.cluster.idle_ranks == "allow") return d.warn(text + " (cluster.idle_ranks = \"allow\")");
  d.error("roles.trainer.ranks", text + "; or set cluster.idle_ranks = \"allow\"",
          {"all", fmt::format("0-{}", world - 1)});
}

/// Errors of one reward function that are not its name.
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

/// Legal numbers of tensor parallel ranks, and why others are not.
std::string tensor_parallel_defect(const ModelConfig& m, const RolePlan& role, int64_t tp) {
  if (const auto ranks = std::ssize(role.ranks); ranks % tp != 0)
    return fmt::format("{} {} ranks do not divide into groups of {}", ranks, role_name(role.kind), tp);
  const auto cut = [&](const char* what, int64_t n) {
    return n % tp == 0 ? "" : fmt::format("{} {} do not divide by {}", n, what, tp);
  };
  for (const std::string& why : {cut("attention heads", m.num_heads), cut("hidden units", m.hidden_size),
                                 cut("units of the feed-forward layer", m.intermediate_size)})
    if (!why.empty()) return why;
  const int64_t kv = m.num_kv_heads;
  if (kv % tp == 0 || tp % kv == 0) return "";
  return fmt::format("{} heads of keys and values neither divide by {}, nor it by them", kv, tp);
}

/// `own`: of the role itself; absent: the trainer's.
void plan_tensor_parallel(PlanDraft& d, RolePlan& role, std::optional<int64_t> own) {
  if (role.ranks.empty()) return;
  const int64_t tp = own.value_or(d.config.roles.trainer.tp);
  std::string why = tensor_parallel_defect(d.facts, role, tp);
  if (why.empty()) {
    role.tp = static_cast<int>(tp);
    return;
  }
  if (!own) why += " (as roles.trainer.tp)";
  std::vector<Json> legal;
  for (int64_t n = 1; n <= std::ssize(role.ranks); ++n)
    if (tensor_parallel_defect(d.facts, role, n).empty()) legal.push_back(n);
  d.error(fmt::format("roles.{}.tp", role_name(role.kind)), why, legal);
}

std::string context_parallel_defect(const ModelConfig& m, const RolePlan& role, int64_t cp) {
  const int64_t groups = std::ssize(role.ranks) / role.tp;
  if (groups % cp != 0)
    return fmt::format("{} {} ranks with tp = {} do not divide into groups of {}", role.ranks.size(),
                       role_name(role.kind), role.tp, cp);
  const AttentionShape heads = attention_shape(m, role.tp);
  if (heads.q_heads % cp != 0)
    return fmt::format("{} attention heads{} do not divide by {}", heads.q_heads,
                       role.tp > 1 ? fmt::format(" of a tp rank ({} / {})", m.num_heads, role.tp) : "", cp);
  if (heads.kv_heads % cp == 0 || cp % heads.kv_heads == 0) return "";
  return fmt::format("{} heads of keys and values of a tp rank neither divide by {}, nor it by them",
                     heads.kv_heads, cp);
}

/// `own`: of the role itself; absent: the trainer's.
void plan_context_parallel(PlanDraft& d, RolePlan& role, std::optional<int64_t> own) {
  if (role.ranks.empty()) return;
  const int64_t cp = own.value_or(d.config.roles.trainer.cp);
  std::string why = context_parallel_defect(d.facts, role, cp);
  if (why.empty()) {
    role.cp = static_cast<int>(cp);
    return;
  }
  std::vector<Json> legal;
  for (int64_t n = 1; n <= std::ssize(role.ranks) / role.tp; ++n)
    if (context_parallel_defect(d.facts, role, n).empty()) legal.push_back(n);
  if (!own) why += " (as roles.trainer.cp)";
  d.error(fmt::format("roles.{}.cp", role_name(role.kind)), why, legal);
}

/// Those of roles.trainer.stage_layers, if there are some.
void choose_stages(PlanDraft& d, RolePlan& role) {
  const std::vector<int64_t>& chosen = d.config.roles.trainer.stage_layers;
  if (chosen.empty()) return;
  std::vector<LayerRange> stages;
  Json balanced = Json::array();
  for (const LayerRange& s : role.stages) balanced.push_back(s.end - s.begin);
  for (int64_t begin = 0; const int64_t layers : chosen) {
    if (layers < 1 || layers > d.facts.num_layers - begin) break;
    stages.push_back({begin, begin + layers});
    begin += layers;
  }
  if (stages.size() == chosen.size() && std::ssize(chosen) == role.pp() &&
      stages.back().end == d.facts.num_layers) {
    role.stages = stages;
    return;
  }
  d.error("roles.trainer.stage_layers",
          fmt::format("{} numbers, each at least 1, have to add up to the {} layers of the model (as many "
                      "numbers as roles.trainer.pp)",
                      role.pp(), d.facts.num_layers),
          {balanced, Json::array()});
}

void plan_pipeline_parallel(PlanDraft& d, RolePlan& role) {
  const int64_t pp = d.config.roles.trainer.pp, layers = d.facts.num_layers;
  const int64_t groups = std::ssize(role.ranks) / role.tp / role.cp;
  const auto is_legal = [&](int64_t n) { return n <= layers && groups % n == 0; };
  std::vector<Json> legal;
  for (int64_t n = 1; n <= std::min(groups, layers); ++n)
    if (is_legal(n)) legal.push_back(n);
  if (!is_legal(pp))
    return d.error("roles.trainer.pp",
                   pp > layers
                       ? fmt::format("{} stages for {} layers", pp, layers)
                       : fmt::format("{} trainer ranks with tp = {} and cp = {} do not divide into {} stages",
                                     role.ranks.size(), role.tp, role.cp, pp),
                   legal);
  role.stages = balanced_stages(d.facts, static_cast<int>(pp));
  choose_stages(d, role);
  if (pp > 1 && d.config.validation.every > 0 && !d.config.validation.data.empty())
    d.error(
        "validation.every",
        "not in this version: a validation during training with roles.trainer.pp > 1, whose ranks have no "
        "model to generate with (`temper eval` takes the exports)",
        {0});
}

}  // namespace

void plan_roles(PlanDraft& d) {
  const RolesConfig& roles = d.config.roles;
  RunPlan& plan = d.result.plan;
  const std::vector<int> trainer = role_ranks(d, "roles.trainer.ranks", roles.trainer.ranks, "all");
  const Json same = trainer.empty() ? Json("all") : Json(roles.trainer.ranks);
  std::vector<int> used = trainer;
  const auto add = [&](RoleKind kind, const char* key, const std::optional<RoleConfig>& role) {
    const std::vector<int> ranks = role ? role_ranks(d, key, role->ranks, same) : trainer;
    used.insert(used.end(), ranks.begin(), ranks.end());
    plan.roles.push_back({kind, ranks});
  };
  if (plan.generates) add(RoleKind::rollout, "roles.rollout.ranks", roles.rollout);
  if (plan.needs_reference) add(RoleKind::reference, "roles.reference.ranks", roles.reference);
  plan.roles.push_back({RoleKind::trainer, trainer});
  plan_tensor_parallel(d, plan.roles.back(), roles.trainer.tp);
  plan_context_parallel(d, plan.roles.back(), roles.trainer.cp);
  if (!trainer.empty()) plan_pipeline_parallel(d, plan.roles.back());
  plan.roles.back().zero = static_cast<int>(roles.trainer.zero);
  // What is illegal is said once.
  const bool same_tp = plan.roles.back().tp == roles.trainer.tp,
             same_cp = plan.roles.back().cp == roles.trainer.cp;
  for (RolePlan& role : plan.roles) {
    if (role.kind == RoleKind::trainer) continue;
    const bool reference = role.kind == RoleKind::reference;
    const std::optional<int64_t> tp = reference ? roles.reference_tp : roles.rollout_tp;
    if (tp || same_tp) plan_tensor_parallel(d, role, tp);
    if (reference && (roles.reference_cp || same_cp)) plan_context_parallel(d, role, roles.reference_cp);
  }
  plan.max_policy_lag = plan.generates ? d.config.run.max_policy_lag : 0;
  std::sort(used.begin(), used.end());
  if (!trainer.empty()) require_cover(d, used);
}

void plan_model(PlanDraft& d) {
  const ModelSection& m = d.config.model;
  if (m.init == "random" && !m.digest.empty())
    d.error("model.digest", "model.init = \"random\" loads no weights that could have it", {""});
}

void plan_algorithm(PlanDraft& d) {
  const AlgorithmConfig& a = d.config.algorithm;
  if (d.supervised()) {
    if (a.aggregation == "seq-mean-token-sum-norm")
      d.error("algorithm.aggregation",
              "\"seq-mean-token-sum-norm\" divides by rollout.max_new_tokens; sft has no rollout",
              {"token-mean", "seq-mean-token-mean", "seq-mean-token-sum"});
    return;
  }
  if (a.single_group == "drop" && d.config.rollout.samples_per_prompt == 1)
    d.error("algorithm.single_group",
            "with rollout.samples_per_prompt = 1 every group has one sample, and \"drop\" leaves all of them "
            "out; "
            "better: 2 or more samples per prompt",
            {"verl", "zero"});
}

void plan_dynamic_sampling(PlanDraft& d) {
  const RolloutConfig& r = d.config.rollout;
  if (r.dynamic_sampling_rounds == 0 || d.supervised()) return;
  const char* why = r.samples_per_prompt == 1 ? "rollout.samples_per_prompt = 1"
                    : r.temperature == 0      ? "rollout.temperature = 0"
                                              : nullptr;
  if (why)
    d.error(
        "rollout.dynamic_sampling_rounds",
        fmt::format(
            "with {} all samples of a prompt earn the same reward, and every prompt would be replaced", why),
        {0});
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
  if (functions.empty() && !d.supervised()) d.error("reward.functions", "no reward function is named", legal);
}

void plan_profile(PlanDraft& d) {
  constexpr int64_t kMostSteps = 1000000;
  const std::string& text = d.config.profile.steps;
  if (text.empty()) return;
  const int64_t end = std::min(d.result.plan.steps, kMostSteps) + 1;
  RankSet set = read_rank_set(text, static_cast<int>(end));
  if (!set.defect.empty() || text == "all" || set.ranks.front() == 0)
    return d.error(
        "profile.steps",
        fmt::format("\"{}\" is no set of steps from 1 to {}, like \"3-5\" or \"1,10\"", text, end - 1),
        {"", "1"});
  d.result.plan.profiled_steps = std::move(set.ranks);
}

void plan_schedule(PlanDraft& d) {
  const OptimizerConfig& o = d.config.optimizer;
  const int64_t updates = d.result.plan.batch.updates_total;
  if (updates == 0 || o.warmup_steps < updates) return;  // 0: the batch has errors of its own
  std::vector<Json> legal{0};
  if (updates > 1) legal.push_back(updates - 1);
  d.error(
      "optimizer.warmup_steps",
      fmt::format("warm-up takes {} updates, the whole run has {}: full learning rate would never be reached",
                  o.warmup_steps, updates),
      legal);
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
  const auto resolve = [&](const char* key, const std::optional<bool>& wanted) {
    if (wanted.value_or(false) && plan.device == Device::cpu)
      d.error(key, "a run on the CPU has its state in host memory already", {"auto", false});
    return wanted.value_or(false) && plan.device == Device::cuda;
  };
  plan.optimizer_in_host = resolve("train.offload.optimizer", d.config.train.offload_optimizer);
  plan.reference_in_host =
      resolve("roles.reference.offload", d.config.roles.reference_offload) && plan.needs_reference;
}

void plan_warnings(PlanDraft& d) {
  const Config& c = d.config;
  const RunPlan& plan = d.result.plan;
  const BatchPlan& b = plan.batch;
  const auto warn_idle = [&](RoleKind role, int64_t items, const char* of, const char* doing) {
    const int64_t teams = plan.role(role)->dp();
    if (items < teams)
      d.warn(fmt::format("{} {} on {} {}: {:.0f} % of the ranks are idle while {}", items, of, teams,
                         plan.role(role)->tp > 1 ? "groups of ranks" : "ranks",
                         100.0 * static_cast<double>(teams - items) / static_cast<double>(teams), doing));
  };
  if (plan.generates) warn_idle(RoleKind::rollout, b.prompts_per_step, "prompts per step", "generating");
  warn_idle(RoleKind::trainer, b.samples_per_update, "samples per update", "training");
  if (!plan.generates && c.run.max_policy_lag > 0) d.warn("run.max_policy_lag has no effect on sft");
  if (b.dropped_samples > 0)
    d.warn(fmt::format("{} of {} samples are left out every step (train.last_partial = \"drop\")",
                       b.dropped_samples, b.samples_per_step));
  if (b.last_update_samples < b.samples_per_update)
    d.warn(
        fmt::format("the last update of a step has {} samples instead of {} (train.last_partial = \"keep\")",
                    b.last_update_samples, b.samples_per_update));
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
  if (plan.generates && b.samples_per_prompt == 1 && c.algorithm.single_group == "zero")
    d.warn("groups of one sample with single_group = \"zero\": all advantages are 0, nothing is learned");
  if (c.optimizer.lr == 0) d.warn("optimizer.lr = 0: the weights never change");
  if (!plan.needs_reference && c.roles.reference)
    d.warn("roles.reference has no effect: algorithm.kl_coef is not above 0");
  if (d.supervised() && c.algorithm.kl_coef > 0)
    d.warn("algorithm.kl_coef has no effect on " + c.algorithm.name);
  if (d.supervised() && (c.rollout.prompts_per_step > 0 || c.rollout.samples_per_prompt > 0))
    d.warn(
        "rollout.prompts_per_step and rollout.samples_per_prompt have no effect on sft: a step has "
        "train.samples_per_update x train.updates_per_step lines");
  const auto never = [&](const char* key, int64_t every) {
    if (every > plan.steps)
      d.warn(fmt::format("{} = {} is beyond the last step, {}", key, every, plan.steps));
  };
  never("checkpoint.every", c.checkpoint.every);
  never("checkpoint.export_hf_every", c.checkpoint.export_hf_every);
  never("validation.every", c.validation.every);
  if (c.checkpoint.every == 0 && plan.steps > 100)
    d.warn(fmt::format("checkpoint.every = 0: a crash loses up to {} steps", plan.steps));
}

}  // namespace temper
