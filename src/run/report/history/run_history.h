#pragma once
// What a run folder tells about its run, read while the run may go on: nothing is locked and nothing is
// written.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/config/changes.h"
#include "src/data/prompt_frame.h"
#include "src/rl/types.h"
#include "src/run/report/history/metric_table.h"

namespace temper {

/// A start, a stop, or what went wrong.
struct RunEvent {
  std::string kind;  // "start", "resume", "changed", "stop", "end", "warning", "error"
  std::string time;  // of the clock of the run's host
  std::string text;
  int64_t step = 0;  // of "resume": the step that it goes on from
};

struct StepSamples {
  int64_t step = 0;
  int64_t groups = 0;  // that were read
  bool whole = true;   // false: the file goes on
  std::vector<Trajectory> samples;
  std::string defect;  // what of the file cannot be read, and why
};

/// What the newest start said of itself; 0 and empty: an older version, which did not say it.
struct StartFacts {
  std::string time, dtype, device;
  int64_t ranks = 0, parameters = 0, lines = 0;
};

/// lost: its process is gone, without a word. silent: that cannot be known, and nothing was written for long.
enum class RunState { fresh, running, ended, stopped, lost, silent };

struct RunHistory {
  std::string name, folder;
  MetricTable metrics;
  std::optional<Config> config;  // of the newest start
  std::string config_text;
  std::vector<std::vector<ConfigChange>> changes;  // an element for each time that the config changed
  std::vector<RunEvent> events;
  std::optional<StartFacts> start;
  PromptFrame frame;  // of the newest start
  RunState state = RunState::fresh;
  int64_t events_left_out = 0;
  std::vector<StepSamples> samples;
  std::vector<std::string> notes;  // what could not be read, and why

  int64_t last_step() const { return metrics.steps.empty() ? 0 : metrics.steps.back(); }
};

/// Exit::usage where there is no such folder, Exit::data where it is that of no run.
RunHistory read_run_history(const std::string& folder);

}  // namespace temper
