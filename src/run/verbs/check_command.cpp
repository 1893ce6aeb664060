#include "src/run/verbs/check_command.h"

#include <algorithm>
#include <cstdio>

#include "src/config/load.h"
#include "src/core/check.h"
#include "src/run/plan/model_facts.h"
#include "src/run/plan/report.h"

namespace temper {
namespace {

/// The plan with the errors of every stage; later stages need the earlier ones to be clean.
PlanResult check_config(const CommandLine& line, int64_t memory_limit) {
  const ConfigReading reading = read_config(line.positional, line.overrides);
  PlanResult result;
  result.errors = reading.errors;
  if (!result.errors.empty()) return result;
  const Config& config = reading.loaded.config;
  const std::vector<PlanError> missing = validate_paths(config);
  const bool has_model =
      std::none_of(missing.begin(), missing.end(), [](const PlanError& e) { return e.key == "model.path"; });
  if (has_model) {
    const int num_ranks = static_cast<int>(line.integer("--ranks", 1));
    result = try_plan(config, num_ranks, read_model_facts(config.model.path), memory_limit);
  }
  result.errors.insert(result.errors.end(), missing.begin(), missing.end());
  add_origins(result.errors, reading.loaded);
  return result;
}

}  // namespace

CheckOutcome check_outcome(const CommandLine& line) {
  ReportOptions options;
  options.ranks_per_node = static_cast<int>(line.integer("--gpus-per-node", 0));
  options.memory_limit = static_cast<int64_t>(line.number("--device-memory", 0) * 1073741824.0);
  options.explain_batch = line.has("--explain-batch");
  const PlanResult result = check_config(line, options.memory_limit);
  const std::string output =
      line.has("--json") ? dump_json_line(plan_json(result, options)) + "\n" : plan_text(result, options);
  return {output, static_cast<int>(result.errors.empty() ? Exit::ok : Exit::usage)};
}

int run_check(const CommandLine& line) {
  const CheckOutcome outcome = check_outcome(line);
  std::fputs(outcome.output.c_str(), stdout);
  return outcome.exit_code;
}

}  // namespace temper
