#include "src/run/session/start/epochs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/config/methods.h"
#include "src/core/check.h"
#include "src/data/lines.h"
#include "src/run/groups/prompt_stream.h"
#include "src/run/host/model_host.h"
#include "src/run/plan/batch.h"
#include "src/run/plan/model_facts.h"

namespace temper {
namespace {

constexpr double kMostSteps = 1e12;
constexpr int64_t kCountAll = std::numeric_limits<int64_t>::max();
constexpr int64_t kLook = int64_t{256} << 20;  // bytes of a file that a look counts

/// What a run walks through in an epoch, and how exactly it is known.
struct EpochLines {
  double lines = 0;     // times their weights
  bool counted = true;  // false: of a large file, estimated
};

void set_steps(LoadedConfig& loaded, int64_t steps, const std::string& origin) {
  loaded.config.run.steps = steps;
  loaded.config.run.epochs.reset();
  loaded.origins["run.steps"] = origin;
  loaded.origins["run.epochs"] = "default";
}

std::string origin_text(const LoadedConfig& loaded, const std::string& more) {
  const auto origin = loaded.origins.find("run.epochs");
  return fmt::format("run.epochs = {} ({}){}", *loaded.config.run.epochs,
                     origin == loaded.origins.end() ? "default" : origin->second, more);
}

/// Lines of data.train that fit; how long they may be is the plan's to say. A plan with errors says it
/// itself, and these lines are not looked at.
EpochLines fitting_lines(const Config& config) {
  Config one_step = config;
  one_step.run.steps = 1;
  one_step.run.epochs.reset();
  const PlanResult result = try_plan(one_step, 1, read_run_models(one_step));
  const RunPlan& plan = result.plan;
  const TextTools text = load_text_tools(config);
  EpochLines all;
  for (const DataSource& source : config.data.train) {
    const PromptStream stream({{source.path}}, config.data, config.run.seed, *text.tokenizer,
                              text.chat_template(),
                              {plan.lengths.max_prompt, plan.lengths.longest, !plan.generates});
    all.lines += source.weight * static_cast<double>(stream.count_fitting());
  }
  return all;
}

bool by_turn(const Config& config) {
  return !algorithm_traits(config.algorithm.name).generates && config.data.train_on == "each";
}

/// Turns of a line, where each is a sample: the mean of some lines.
double turns_of_lines(const Config& config, const DataSource& source, int64_t looks) {
  constexpr int64_t kLookedAt = 256;
  const InputFile file(source.path);
  const LineSample sample = sample_lines(file, kLookedAt, looks);
  int64_t turns = 0;
  for (const Line& line : sample.lines)
    turns += count_turns(parse_data_line(read_line(file, line), source.path), prompt_options(config.data),
                         source.path);
  return static_cast<double>(turns) / static_cast<double>(sample.lines.size());
}

/// All lines of data.train, whatever their length; files of more bytes than `looks` are estimated, and turns.
EpochLines count_lines(const Config& config, int64_t looks) {
  EpochLines all;
  for (const DataSource& source : config.data.train) {
    const LineSample sample = sample_lines(InputFile(source.path), 1, looks);
    const double each = by_turn(config) ? turns_of_lines(config, source, looks) : 1;
    all.lines += source.weight * each * static_cast<double>(sample.rows);
    all.counted = all.counted && sample.counted && !by_turn(config);
  }
  return all;
}

void resolve(LoadedConfig& loaded, const EpochLines& of_epoch) {
  const std::optional<double> epochs = loaded.config.run.epochs;
  std::vector<PlanError> said_by_the_plan;
  const int64_t per_step = std::max<int64_t>(1, plan_batch(loaded.config, said_by_the_plan).prompts_per_step);
  const double prompts = std::max(1.0, std::round(*epochs * of_epoch.lines));
  const double steps = std::ceil(prompts / static_cast<double>(per_step));
  if (!(steps <= kMostSteps))
    fail(Exit::usage, {.what = "run.epochs makes a run too long",
                       .where = origin_text(loaded, ""),
                       .why = fmt::format("{} lines in an epoch, {} a step: {} steps, run.steps can be {}",
                                          of_epoch.lines, per_step, steps, kMostSteps),
                       .fix = "lower run.epochs"});
  const std::string lines =
      of_epoch.counted ? fmt::format("{}", of_epoch.lines) : fmt::format("about {:.0f}", of_epoch.lines);
  set_steps(loaded, static_cast<int64_t>(steps),
            origin_text(loaded, fmt::format(" of {} lines, {} a step", lines, per_step)));
}

}  // namespace

void resolve_epochs(LoadedConfig& loaded, int64_t replayed, Comm& comm) {
  if (!loaded.config.run.epochs) return;
  if (replayed > 0) return set_steps(loaded, replayed, origin_text(loaded, ", a replay"));
  const bool drops = loaded.config.data.overlong == "drop" || by_turn(loaded.config);
  EpochLines mine;
  if (comm.rank() == 0) mine = drops ? fitting_lines(loaded.config) : count_lines(loaded.config, kCountAll);
  // The digits give the same bits back.
  mine.lines = std::stod(comm.broadcast(fmt::format("{}", mine.lines), 0, "lines of an epoch"));
  resolve(loaded, mine);
}

std::string estimate_epochs(LoadedConfig& loaded, bool has_data) {
  if (!loaded.config.run.epochs) return "";
  if (!has_data) {
    set_steps(loaded, 1, origin_text(loaded, ""));
    return "run.epochs: without the files of data.train its steps are not known; planned is one";
  }
  const EpochLines lines = count_lines(loaded.config, kLook);
  resolve(loaded, lines);
  if (!lines.counted) return "run.epochs: its steps are estimated, a run counts the lines";
  return loaded.config.data.overlong == "drop"
             ? "run.epochs: all lines are counted here, a run leaves out those that data.overlong drops"
             : "";
}

void leave_epochs(LoadedConfig& loaded) {
  if (loaded.config.run.epochs) set_steps(loaded, 1, origin_text(loaded, ", nothing is trained"));
}

}  // namespace temper
