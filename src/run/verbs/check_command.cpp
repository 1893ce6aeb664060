#include "src/run/verbs/check_command.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>

#include "src/config/load.h"
#include "src/core/check.h"
#include "src/core/process/results.h"
#include "src/core/text/printable.h"
#include "src/rl/registry.h"
#include "src/run/plan/axis_traffic.h"
#include "src/run/plan/host_memory.h"
#include "src/run/plan/memory.h"
#include "src/run/plan/memory_choices.h"
#include "src/run/plan/model_facts.h"
#include "src/run/plan/report.h"
#include "src/run/session/epochs.h"
#include "src/run/verbs/data_check.h"
#include "src/run/verbs/reward_trial.h"

namespace temper {
namespace {

/// Asks the programs of a config that is otherwise sound; null: there are none.
Json try_programs(const Config& config, const DataCheck& data, PlanResult& result) {
  if (!result.errors.empty() || !needs_helpers(config.reward)) return nullptr;
  Json trial = try_rewards(config, *data.first, data.first_record);
  if (trial.at("reward").is_null())
    result.errors.push_back(
        {"reward.functions",
         "",
         "the program gave no reward for the first prompt, with its answer as the response "
         "(its stderr and the warning above say why)",
         {}});
  return trial;
}

/// "auto" is a GPU where its memory was given, or one is here. Bytes of it that a rank has; 0: not known.
int64_t settle_device(Config& config, int64_t given_bytes) {
  const std::vector<int> here = config.run.device == "cpu" ? std::vector<int>{} : device::find_gpus().gpus;
  if (config.run.device == "auto") config.run.device = given_bytes > 0 || !here.empty() ? "cuda" : "cpu";
  return given_bytes > 0 || here.empty() ? given_bytes : device::gpu_total_bytes(here.front());
}

struct CheckedConfig {
  PlanResult plan;
  Exit code = Exit::ok;
  Json trial = nullptr;                // of reward programs; null: there are none
  Json data = nullptr;                 // DataCheck::data
  std::vector<PlanError> absent = {};  // inputs that a plan for another machine does without
};

/// Opens what a config names whose plan is sound.
void open_inputs(const Config& config, const ModelConfig& facts, CheckedConfig& checked) {
  DataCheck data = check_data(config, checked.plan.plan, facts);
  checked.plan.warnings.insert(checked.plan.warnings.end(), data.warnings.begin(), data.warnings.end());
  checked.plan.errors = std::move(data.errors);
  if (!checked.plan.errors.empty()) checked.code = Exit::data;
  checked.trial = try_programs(config, data, checked.plan);
  checked.data = std::move(data.data);
}

/// Without these options the plan is for this machine; with one of them for another one.
bool is_for_this_machine(const CommandLine& line) {
  return !line.has("--ranks") && !line.has("--gpus-per-node") && !line.has("--device-memory");
}

MemoryLimits memory_limits(const CommandLine& line, int64_t device_bytes) {
  MemoryLimits limits{
      .device = {device_bytes, line.has("--device-memory") ? "--device-memory" : "this machine's GPU"},
      .host = {}};
  if (is_for_this_machine(line)) limits.host = share_of_host(1);
  return limits;
}

/// That this machine could not do what another one may.
void warn_of_host(const CommandLine& line, PlanResult& result) {
  if (is_for_this_machine(line) || !result.errors.empty()) return;
  const int ranks = static_cast<int>(line.integer("--gpus-per-node", result.plan.num_ranks));
  const MemoryLimit host = share_of_host(std::min(ranks, result.plan.num_ranks));
  const int64_t peak = host_peak_bytes(result.plan);
  if (host.bytes > 0 && peak > host.bytes)
    result.warnings.push_back(
        fmt::format("a rank needs {} of the host: more than here ({})", gib_text(peak), host.of));
}

/// What `check` alone asks of a plan.
void add_costs(const CommandLine& line, const RunModels& models, const Config& config, PlanResult& result) {
  result.choices = memory_choices(result.plan, models, config);
  result.traffic = axis_traffic(result.plan, models, config);
  const int per_node = static_cast<int>(line.integer("--gpus-per-node", 0));
  if (per_node == 0) return;
  for (std::string& warning : node_warnings(result.plan, result.traffic, per_node))
    result.warnings.push_back(std::move(warning));
}

/// Moves to `absent` what a run reads, and another machine may have.
void leave_inputs(std::vector<PlanError>& missing, std::vector<PlanError>& absent) {
  const auto is_input = [](const PlanError& e) { return e.key != "checkpoint.resume"; };
  std::copy_if(missing.begin(), missing.end(), std::back_inserter(absent), is_input);
  std::erase_if(missing, is_input);
}

/// What the plan knows of the model that a key names; nothing where it is not here, and for another machine
/// not published.
std::optional<ModelConfig> facts_of(const CommandLine& line, const std::string& key, const std::string& path,
                                    std::vector<PlanError>& missing) {
  const auto absent =
      std::find_if(missing.begin(), missing.end(), [&](const PlanError& e) { return e.key == key; });
  if (absent == missing.end()) return read_model_facts(path);
  if (is_for_this_machine(line)) return std::nullopt;
  const std::string published = find_published_config(path, line.positional);
  if (published.empty()) return std::nullopt;
  absent->message += fmt::format("; planned from {}", published);
  return read_config_facts(published);
}

std::optional<RunModels> models_of(const CommandLine& line, const Config& config,
                                   std::vector<PlanError>& missing) {
  const std::optional<ModelConfig> policy = facts_of(line, "model.path", config.model.path, missing);
  if (!policy) return std::nullopt;
  RunModels models(*policy);
  for (const RoleTraits& role : config.roles.rows())
    if (const auto& path = config.roles.of(role.name).path) {
      const auto own = facts_of(line, fmt::format("roles.{}.path", role.name), *path, missing);
      if (!own) return std::nullopt;
      models.own.emplace(role.name, *own);
    }
  return models;
}

/// The plan with the errors of every stage; later stages need the earlier ones to be clean.
CheckedConfig check_config(const CommandLine& line, int64_t& memory_limit) {
  ConfigReading reading = read_config(line.positional, line.overrides);
  CheckedConfig checked;
  PlanResult& result = checked.plan;
  result.errors = reading.errors;
  if (!result.errors.empty()) return checked;
  Config& config = reading.loaded.config;
  memory_limit = settle_device(config, memory_limit);
  std::vector<PlanError> missing = validate_paths(config);
  const bool has_data =
      std::none_of(missing.begin(), missing.end(), [](const PlanError& e) { return e.key == "data.train"; });
  const std::string about_epochs = estimate_epochs(reading.loaded, has_data);
  if (std::optional<RunModels> models = models_of(line, config, missing)) {
    const int num_ranks = static_cast<int>(line.integer("--ranks", 1));
    result = try_plan(config, num_ranks, *models, memory_limits(line, memory_limit));
    models->policy.frozen = result.plan.frozen;
    if (result.errors.empty()) add_costs(line, *models, config, result);
    if (!about_epochs.empty()) result.warnings.push_back(about_epochs);
    warn_of_host(line, result);
    if (result.errors.empty() && missing.empty()) open_inputs(config, models->policy, checked);
    if (!is_for_this_machine(line)) leave_inputs(missing, checked.absent);
  }
  result.errors.insert(result.errors.end(), missing.begin(), missing.end());
  add_origins(result.errors, reading.loaded);
  add_origins(checked.absent, reading.loaded);
  return checked;
}

/// Behind the verdict on the plan: what it does not speak of.
std::string absent_text(const std::vector<PlanError>& absent) {
  if (absent.empty()) return "";
  std::string text = "not here, so not looked at:\n";
  for (const PlanError& input : absent)
    text += fmt::format("  {}{}: {}\n", input.key, input.where.empty() ? "" : " (" + input.where + ")",
                        input.message);
  return text;
}

}  // namespace

CheckOutcome check_outcome(const CommandLine& line) {
  ReportOptions options;
  options.ranks_per_node = static_cast<int>(line.integer("--gpus-per-node", 0));
  options.memory_limit = line.memory("--device-memory", 0);
  options.explain_batch = line.has("--explain-batch");
  const auto [result, wrong_data, trial, data, absent] = check_config(line, options.memory_limit);
  const Exit wrong = wrong_data == Exit::ok ? Exit::usage : wrong_data;
  const int code = static_cast<int>(result.errors.empty() ? Exit::ok : wrong);
  if (!line.has("--json"))
    return {printable(data_text(data) + (trial.is_null() ? "" : trial_text(trial)) +
                      plan_text(result, options) + absent_text(absent)),
            code};
  Json json = plan_json(result, options);
  if (!data.is_null()) json["data"] = data;
  if (!trial.is_null()) json["reward_trial"] = trial;
  for (const PlanError& input : absent)
    json["absent"].push_back({{"key", input.key}, {"message", input.message}, {"where", input.where}});
  return {dump_json_line(json) + "\n", code};
}

int run_check(const CommandLine& line) {
  const CheckOutcome outcome = check_outcome(line);
  write_results(outcome.output);
  return outcome.exit_code;
}

}  // namespace temper
