#include "src/run/verbs/check_command.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>

#include "src/config/load.h"
#include "src/core/check.h"
#include "src/core/process/results.h"
#include "src/core/text/printable.h"
#include "src/io/hf/peft_folder.h"
#include "src/models/parameter_specs.h"
#include "src/rl/registry.h"
#include "src/run/plan/axis_traffic.h"
#include "src/run/plan/memory/host_memory.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/memory/memory_choices.h"
#include "src/run/plan/model_facts.h"
#include "src/run/plan/report/plan_json.h"
#include "src/run/plan/report/screen.h"
#include "src/run/session/start/epochs.h"
#include "src/run/verbs/check/layout_legal.h"
#include "src/run/verbs/check/run_pace.h"
#include "src/run/verbs/check/session_trial.h"
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
int64_t resolve_device(Config& config, int64_t given_bytes) {
  const std::vector<int> here = config.run.device == "cpu" ? std::vector<int>{} : device::find_gpus().gpus;
  if (config.run.device == "auto") config.run.device = given_bytes > 0 || !here.empty() ? "cuda" : "cpu";
  return given_bytes > 0 || here.empty() ? given_bytes : device::gpu_total_bytes(here.front());
}

struct CheckedConfig {
  PlanResult plan;
  Exit code = Exit::ok;
  CheckFacts facts = {};
  Json session = nullptr;  // of the programs that play them (check/session_trial.h); null: there are none
};

/// A session by the program of a config that is otherwise sound.
void try_session_of(CheckedConfig& checked, const DataCheck& data) {
  const Config& config = checked.facts.config;
  PlanResult& result = checked.plan;
  if (!result.errors.empty() || config.rollout.harness.empty() || !data.first) return;
  try {
    checked.session = try_session(config, result.plan, *checked.facts.model, *data.first, data.first_record);
  } catch (const Error& e) {
    if (e.code() != Exit::usage && e.code() != Exit::data) throw;
    const Problem& p = e.problem();
    result.errors.push_back({"rollout.harness", p.where, p.what + ": " + p.why + "; " + p.fix, {}});
    return;
  }
  if (const std::string warning = session_warning(checked.session); !warning.empty())
    result.warnings.push_back(warning);
}

/// Opens what a config names whose plan is sound.
void open_inputs(CheckedConfig& checked) {
  const Config& config = checked.facts.config;
  DataCheck data = check_data(config, checked.plan.plan, *checked.facts.model);
  checked.plan.warnings.insert(checked.plan.warnings.end(), data.warnings.begin(), data.warnings.end());
  checked.plan.errors = std::move(data.errors);
  if (!checked.plan.errors.empty()) checked.code = Exit::data;
  checked.facts.trial = try_programs(config, data, checked.plan);
  try_session_of(checked, data);
  checked.facts.data = std::move(data.data);
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

/// That this machine could not do what another one may. Returns what it has for each rank.
int64_t warn_of_host(const CommandLine& line, PlanResult& result) {
  if (is_for_this_machine(line) || !result.errors.empty()) return 0;
  const int ranks = static_cast<int>(line.integer("--gpus-per-node", result.plan.num_ranks));
  const MemoryLimit host = share_of_host(std::min(ranks, result.plan.num_ranks));
  const int64_t peak = host_peak_bytes(result.plan);
  if (host.bytes > 0 && peak > host.bytes)
    result.warnings.push_back(
        fmt::format("a rank needs {} of the host: more than here ({})", gib_text(peak), host.of));
  return host.bytes;
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
struct FoundModel {
  std::optional<ModelConfig> shape = {};
  std::string published = {};
};
FoundModel find_model(const CommandLine& line, const std::string& key, const std::string& path,
                      std::vector<PlanError>& missing) {
  const auto absent =
      std::find_if(missing.begin(), missing.end(), [&](const PlanError& e) { return e.key == key; });
  if (absent == missing.end()) return {read_model_facts(path)};
  if (is_for_this_machine(line)) return {};
  const std::string published = find_published_config(path, line.positional);
  if (published.empty()) return {};
  absent->message += fmt::format("; planned from {}", published);
  return {read_config_facts(published), published};
}

std::optional<RunModels> find_models(const CommandLine& line, CheckFacts& facts,
                                     std::vector<PlanError>& missing) {
  const Config& config = facts.config;
  const FoundModel policy = find_model(line, "model.path", config.model.path, missing);
  facts.model = policy.shape;
  facts.published = policy.published;
  if (!policy.shape) return std::nullopt;
  RunModels models(*policy.shape);
  const auto is_lora = [](const PlanError& e) { return e.key == "lora.path"; };
  if (!config.lora.path.empty() && std::none_of(missing.begin(), missing.end(), is_lora))
    models.adapters = read_adapter_config(config.lora.path, adapter_modules(models.policy));
  for (const RoleTraits& role : config.roles.rows())
    if (const auto& path = config.roles.of(role.name).path) {
      const FoundModel own = find_model(line, fmt::format("roles.{}.path", role.name), *path, missing);
      if (!own.shape) return std::nullopt;
      models.own.emplace(role.name, *own.shape);
    }
  return models;
}

int ranks_of(const CommandLine& line) { return static_cast<int>(line.integer("--ranks", 1)); }

/// The errors of values that no plan can be made with; the plan knows best which others are legal.
void refuse_values(const CommandLine& line, ConfigReading& reading, PlanResult& result) {
  result.errors = reading.errors;
  add_legal_layouts(line.positional, line.overrides, result.errors, [&](const Config& config) {
    std::vector<PlanError> missing = validate_paths(config);
    CheckFacts facts{.config = config};
    const std::optional<RunModels> models = find_models(line, facts, missing);
    return models ? validate(config, ranks_of(line), *models) : std::vector<PlanError>{};
  });
}

/// The plan with the errors of every stage; later stages need the earlier ones to be clean.
CheckedConfig check_config(const CommandLine& line) {
  ConfigReading reading = read_config(line.positional, line.overrides);
  CheckedConfig checked;
  PlanResult& result = checked.plan;
  CheckFacts& facts = checked.facts;
  facts.ranks_per_node = static_cast<int>(line.integer("--gpus-per-node", 0));
  if (!reading.errors.empty()) {
    refuse_values(line, reading, result);
    return checked;
  }
  Config& config = reading.loaded.config;
  facts.limits = memory_limits(line, resolve_device(config, line.memory("--device-memory", 0)));
  std::vector<PlanError> missing = validate_paths(config);
  const bool has_data =
      std::none_of(missing.begin(), missing.end(), [](const PlanError& e) { return e.key == "data.train"; });
  const std::string about_epochs = estimate_epochs(reading.loaded, has_data);
  facts.config = config;
  if (std::optional<RunModels> models = find_models(line, facts, missing)) {
    result = try_plan(facts.config, ranks_of(line), *models, facts.limits);
    facts.model->frozen = models->policy.frozen = result.plan.frozen;
    facts.model->adapters = models->policy.adapters = result.plan.adapters;
    if (result.errors.empty()) add_costs(line, *models, facts.config, result);
    if (!about_epochs.empty()) result.warnings.push_back(about_epochs);
    facts.host_here = warn_of_host(line, result);
    if (result.errors.empty() && missing.empty()) open_inputs(checked);
    if (!is_for_this_machine(line)) leave_inputs(missing, facts.absent);
    facts.time = run_pace(facts.config);
    if (!facts.time && !result.plan.memory.empty())
      facts.time = gpu_step_time(result.plan, *facts.model, facts.config, facts.limits.device.bytes);
  }
  result.errors.insert(result.errors.end(), missing.begin(), missing.end());
  add_origins(result.errors, reading.loaded);
  add_origins(facts.absent, reading.loaded);
  return checked;
}

/// How what is not here can be had.
std::string absent_text(const std::vector<PlanError>& absent) {
  if (absent.empty()) return "";
  std::string text = "not here, so not looked at\n";
  for (const PlanError& input : absent)
    text += fmt::format("  {}{}: {}\n", input.key, input.where.empty() ? "" : " (" + input.where + ")",
                        input.message);
  return text;
}

std::string text_of(const CheckedConfig& checked, const ReportOptions& options) {
  const CheckFacts& facts = checked.facts;
  const bool tables = options.all || options.memory || options.explain_batch;
  std::string text = screen_text(checked.plan, facts, /*hints=*/!tables);
  if (!checked.session.is_null()) text += "\n" + session_text(checked.session);
  if (!tables) return text;
  if (options.all)
    text += "\n" + data_text(facts.data) + (facts.trial.is_null() ? "" : trial_text(facts.trial)) +
            absent_text(facts.absent);
  if (!checked.plan.plan.memory.empty()) text += "\n" + plan_tables(checked.plan, options);
  return text;
}

std::string json_of(const CheckedConfig& checked, const ReportOptions& options) {
  const CheckFacts& facts = checked.facts;
  Json json = plan_json(checked.plan, options);
  if (!facts.config.rollout.harness.empty() && checked.plan.complete)
    json["batch"]["samples_are"] = "sessions";
  if (!facts.data.is_null()) {
    json["data"] = facts.data;
    json["data"]["epochs"] = epochs_of(checked.plan.plan, facts.data);
  }
  if (facts.time) json["step_time"] = {{"seconds", facts.time->seconds}, {"from", facts.time->from}};
  if (!facts.trial.is_null()) json["reward_trial"] = facts.trial;
  if (!checked.session.is_null()) json["session_trial"] = checked.session;
  for (const PlanError& input : facts.absent)
    json["absent"].push_back({{"key", input.key}, {"message", input.message}, {"where", input.where}});
  return dump_json_line(json) + "\n";
}

/// A block for each error.
std::string error_blocks(const std::vector<PlanError>& errors, Exit code) {
  std::string text;
  for (const PlanError& error : errors) {
    const std::string legal =
        error.legal.empty() ? "" : fmt::format("write {} = {}", error.key, legal_text(error.legal));
    const Error block(
        code, {.what = error.key + " is refused", .where = error.where, .why = error.message, .fix = legal});
    text += fmt::format("temper: {}\n", block.what());
  }
  return text;
}

}  // namespace

CheckOutcome check_outcome(const CommandLine& line) {
  const CheckedConfig checked = check_config(line);
  const ReportOptions options{.ranks_per_node = checked.facts.ranks_per_node,
                              .memory_limit = checked.facts.limits.device.bytes,
                              .explain_batch = line.has("--explain-batch"),
                              .memory = line.has("--memory"),
                              .all = line.has("--all")};
  const std::vector<PlanError>& errors = checked.plan.errors;
  const Exit wrong = checked.code == Exit::ok ? Exit::usage : checked.code;
  const Exit code = errors.empty() ? Exit::ok : wrong;
  return {line.has("--json") ? json_of(checked, options) : printable(text_of(checked, options)),
          error_blocks(errors, code), static_cast<int>(code)};
}

int run_check(const CommandLine& line) {
  const CheckOutcome outcome = check_outcome(line);
  write_results(outcome.output);
  std::fputs(outcome.errors.c_str(), stderr);
  return outcome.exit_code;
}

}  // namespace temper
