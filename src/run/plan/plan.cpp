#include "src/run/plan/plan.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "src/config/methods.h"
#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/split.h"
#include "src/core/text/download.h"
#include "src/core/text/short_number.h"
#include "src/io/checkpoint/checkpoint.h"
#include "src/models/model.h"
#include "src/run/plan/batch.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/rules.h"
#include "src/run/plan/weight_traffic.h"

namespace temper {
namespace {

void require_path(const std::string& key, const std::string& path, std::vector<PlanError>& errors) {
  if (path_exists(path)) return;
  const bool of_model = key == "model.path" || key.starts_with("roles.");
  const std::string download = of_model ? model_download(path) : data_download(path);
  errors.push_back({key,
                    "",
                    fmt::format("{} does not exist (relative paths start at the working folder){}{}", path,
                                download.empty() ? "" : "; ", download),
                    {}});
}

/// A name is looked up in PATH, as the start of a program does.
void require_program(const std::string& key, const std::string& name, std::vector<PlanError>& errors) {
  const auto runs = [](const std::string& path) { return ::access(path.c_str(), X_OK) == 0; };
  const char* const path = std::getenv("PATH");
  bool found = name.find('/') != std::string::npos && runs(name);
  if (name.find('/') == std::string::npos)
    for (const std::string& folder : split(path ? path : "", ':'))
      found = found || runs(join_path(folder, name));
  if (found) return;
  errors.push_back(
      {key,
       "",
       fmt::format("there is no program {} (looked for in PATH, or from the working folder where "
                   "the name has a '/')",
                   name),
       {Json::array()}});
}

/// A step folder has a manifest; a run folder has checkpoints; a folder of them has steps.
void require_checkpoint(const std::string& path, std::vector<PlanError>& errors) {
  const bool found = path_exists(join_path(path, "manifest.json")) ||
                     is_directory(join_path(path, "checkpoints")) || !list_checkpoints(path).empty();
  if (!found)
    errors.push_back(
        {"checkpoint.resume",
         "",
         fmt::format("{} is neither \"auto\" nor \"none\" nor a checkpoint (a folder with manifest.json) nor "
                     "a run folder (with checkpoints/)",
                     path),
         {"auto", "none"}});
}

/// What a plan says of device, type and model before any rule.
RunPlan plan_of_model(const Config& config, int num_ranks, const ModelConfig& model, Findings& found) {
  RunPlan plan;
  plan.algorithm = config.algorithm.name;
  plan.generates = algorithm_traits(plan.algorithm).generates;
  plan.rows = config.roles.rows();
  plan.num_ranks = num_ranks;
  plan.device = config.run.device == "cuda" ? Device::cuda : Device::cpu;
  plan.dtype = resolve_dtype(config.run.dtype, plan.device);
  if (const std::string defect = dtype_defect(config.run.dtype, plan.device); !defect.empty())
    found.error("run.dtype", defect, {"auto", "bf16", "fp32"});
  if (const std::string defect = shape_defect(model, plan.device); !defect.empty())
    found.error("run.device", defect, {"cpu"});
  plan.num_parameters = num_parameters(model);
  plan.vocab_size = model.vocab_size;
  plan.media_token_ids = model.media_token_ids;
  plan.steps = config.run.steps;
  plan.max_policy_lag = plan.generates ? config.run.max_policy_lag : 0;
  plan.follows_routes = config.moe.replay != "none";
  return plan;
}

}  // namespace

std::string_view device_name(Device device) { return device == Device::cuda ? "cuda" : "cpu"; }

DType resolve_dtype(std::string_view dtype, Device device) {
  if (dtype == "fp64") return DType::f64;
  if (dtype == "bf16") return DType::bf16;
  return dtype == "auto" && device == Device::cuda ? DType::bf16 : DType::f32;
}

std::string dtype_defect(std::string_view dtype, Device device) {
  return dtype == "fp64" && device == Device::cuda
             ? "fp64 runs on the CPU only: the GPU kernels take fp32 and bf16"
             : "";
}

MemoryParts MemoryRow::all_parts() const {
  MemoryParts all = device;
  for (const auto& [name, bytes] : host) all.emplace_back(device.empty() ? name : "host_" + name, bytes);
  return all;
}

int64_t MemoryRow::bytes_of(const MemoryParts& parts, std::string_view name) {
  for (const auto& [part, bytes] : parts)
    if (part == name) return bytes;
  return 0;
}

const RolePlan& RunPlan::trainer() const {
  return *std::find_if(roles.begin(), roles.end(), [](const RolePlan& role) { return role.traits->leads(); });
}

const RolePlan* RunPlan::generator() const {
  for (const RolePlan& role : roles)
    if (role.traits->of_policy && role.traits->generates()) return &role;
  return nullptr;
}

bool RunPlan::taught() const { return role("teacher") != nullptr; }

const RolePlan* RunPlan::role(std::string_view name) const {
  for (const RolePlan& role : roles)
    if (role.name() == name) return &role;
  return nullptr;
}

int64_t RunPlan::num_scorers() const {
  return std::count_if(roles.begin(), roles.end(),
                       [](const RolePlan& role) { return role.traits->scores(); });
}

int64_t RunPlan::least_budget() const {
  const int64_t cp = trainer().cp();
  return (lengths.longest + cp - 1) / cp;
}

bool RunPlan::shares_buffers(int rank) const {
  if (!generates_on(rank) || !trains(rank)) return false;
  return generator()->stages == trainer().stages && generator()->team(rank) == trainer().team(rank) &&
         generator()->ep() == trainer().ep();
}

bool RunPlan::in_trainer_mesh(const RolePlan& of, int rank) const {
  const RolePlan& lead = trainer();
  const bool fits = of.works_together() ? of.ranks == lead.ranks && of.cp() == lead.cp()
                                        : of.cp() == 1 || of.cp() == lead.cp();
  return lead.has(rank) && of.tp() == lead.tp() && of.ep() == lead.ep() && fits && of.stages == lead.stages &&
         of.team(rank) == lead.group(rank, of.grid.wide(of.team_axes()));
}

bool RunPlan::has_own_mesh(const RolePlan& of) const {
  if (of.traits->leads()) return false;
  return of.traits->trains() ||
         (of.team_size() > 1 && !std::all_of(of.ranks.begin(), of.ranks.end(),
                                             [&](int rank) { return in_trainer_mesh(of, rank); }));
}

std::vector<int> RunPlan::weight_receivers() const {
  std::vector<int> receivers;
  for (int rank = 0; rank < num_ranks; ++rank)
    if (generates_on(rank) && !shares_buffers(rank)) receivers.push_back(rank);
  return receivers;
}

PlanResult try_plan(const Config& config, int num_ranks, const RunModels& models,
                    const MemoryLimits& limits) {
  CHECK(num_ranks >= 1, "a plan for {} ranks", num_ranks);
  CHECK(models.policy.vocab_size > 0 && models.policy.num_layers > 0 && models.policy.num_kv_heads > 0,
        "a plan for a model without a shape");
  Findings found;
  RunPlan plan = plan_of_model(config, num_ranks, models.policy, found);
  plan.adapters = plan_adapters(config, models, found);
  RunModels trained = with_adapters(models, plan.adapters, config.lora);
  plan.frozen = trained.policy.frozen = plan_freeze(config, trained.policy, found);
  plan.aux_losses = plan_aux_losses(config, trained.policy, found);
  plan.roles = plan_roles(config, trained, num_ranks, found);
  plan.routes = plan_routes(config, plan, trained.policy.moe, found);
  check_digest(config.model, found);
  plan.advantages_by_token = plan_advantages(config, plan, trained, found);
  check_rewards(config, plan, found);
  check_agents(config, plan, found);
  check_dynamic_sampling(config, plan, found);
  plan.batch = plan_batch(config, found.errors);
  plan.lengths = plan_lengths(config, trained.policy, found);
  plan.least_tokens_of_stages = config.train.max_tokens_per_microbatch ? 0 : kLeastBudget;
  plan.max_tokens_per_microbatch = plan_microbatch(config, plan, found);
  plan.validation = plan_validation(config, plan, found);
  check_goals(config, plan, found);
  plan.cache = plan_cache(config, plan, trained.policy, found);
  check_warmup(config.optimizer, plan.batch, found);
  const StateFormats formats = plan_optimizer_state(config.optimizer, plan, found);
  plan.master = formats.master, plan.moments = formats.moments;
  const Offload offload = plan_offload(config, plan, found);
  plan.optimizer_in_host = offload.optimizer;
  for (RolePlan& role : plan.roles) role.in_host = offload.roles.contains(role.name());
  plan.profiled_steps = plan_profile(config, found);
  const bool sound = found.errors.empty();
  if (sound) {
    plan.weights = weight_traffic(plan, trained.policy);
    if (plan.device == Device::cuda && limits.device.bytes > 0)
      plan = sized_for_gpu(std::move(plan), trained, config, limits.device.bytes);
    plan.memory = plan_memory(plan, trained, config);
    warn_of_idle_keys(config, plan, trained.policy, found);
    check_memory(config, plan, trained, limits, found);
  }
  plan.idle_keys = std::move(found.idle_keys);
  return {std::move(plan), sound && found.errors.empty(), std::move(found.errors), std::move(found.warnings)};
}

std::vector<PlanError> validate(const Config& config, int num_ranks, const RunModels& models) {
  return try_plan(config, num_ranks, models).errors;
}

RunPlan make_plan(const LoadedConfig& loaded, int num_ranks, const RunModels& models,
                  const MemoryLimits& limits) {
  PlanResult result = try_plan(loaded.config, num_ranks, models, limits);
  add_origins(result.errors, loaded);
  if (!result.errors.empty()) fail_config("plan for " + count_text(num_ranks, "rank"), result.errors);
  return std::move(result.plan);
}

std::vector<PlanError> validate_paths(const Config& c) {
  std::vector<PlanError> errors;
  require_path("model.path", c.model.path, errors);
  for (const RoleTraits& role : c.roles.rows())
    if (const auto& path = c.roles.of(role.name).path)
      require_path(fmt::format("roles.{}.path", role.name), *path, errors);
  if (!c.lora.path.empty()) require_path("lora.path", c.lora.path, errors);
  if (c.tokenizer.path) require_path("tokenizer.path", *c.tokenizer.path, errors);
  if (c.tokenizer.chat_template) require_path("tokenizer.chat_template", *c.tokenizer.chat_template, errors);
  for (const DataSource& source : c.data.train) require_path("data.train", source.path, errors);
  for (const ValidationSet& set : c.validation.data) require_path("validation.data", set.path, errors);
  if (!c.log.command.empty()) require_program("log.command", c.log.command.front(), errors);
  const bool has_own = !list_checkpoints(join_path(join_path(c.run.dir, c.run.name), "checkpoints")).empty();
  if (c.checkpoint.resume != "auto" && c.checkpoint.resume != "none" && !has_own)
    require_checkpoint(c.checkpoint.resume, errors);
  return errors;
}

void require_paths(const LoadedConfig& loaded, const std::vector<std::string>& unused) {
  std::vector<PlanError> errors = validate_paths(loaded.config);
  std::erase_if(errors, [&](const PlanError& error) {
    return std::find(unused.begin(), unused.end(), error.key) != unused.end();
  });
  add_origins(errors, loaded);
  if (!errors.empty()) fail_config("paths in the config", errors);
}

void add_origins(std::vector<PlanError>& errors, const LoadedConfig& loaded) {
  for (PlanError& error : errors) {
    const auto origin = loaded.origins.find(error.key);
    if (error.where.empty() && origin != loaded.origins.end()) error.where = origin->second;
  }
}

}  // namespace temper
