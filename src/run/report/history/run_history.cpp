#include "src/run/report/history/run_history.h"

#include <algorithm>
#include <filesystem>

#include "src/config/load.h"
#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/text/short_number.h"
#include "src/run/report/history/run_events.h"
#include "src/run/report/history/run_files.h"
#include "src/run/report/history/run_samples.h"
#include "src/run/report/history/run_state.h"

namespace temper {
namespace {

constexpr int64_t kMaxConfig = int64_t{16} << 20;
constexpr size_t kMaxConfigs = 50;

void require_run(const std::string& folder) {
  if (!is_directory(folder))
    fail(Exit::usage, {.what = "no run here",
                       .where = folder,
                       .why = path_exists(folder) ? "it is a file" : "the path does not exist",
                       .fix = "name the folder of a run (run.dir/run.name)"});
  if (!path_exists(join_path(folder, "config.toml")) && !path_exists(join_path(folder, "metrics.jsonl")))
    fail(Exit::data, {.what = "the folder is that of no run",
                      .where = folder,
                      .why = "it holds neither a config.toml nor a metrics.jsonl",
                      .fix = "name the folder of a run (run.dir/run.name)"});
}

/// "runs/first/" and "." have names, too.
std::string name_of(const std::string& folder) {
  const std::filesystem::path whole = std::filesystem::absolute(folder).lexically_normal();
  const std::string name = whole.filename().string();
  return name.empty() ? whole.parent_path().filename().string() : name;
}

/// The configs of the newest starts, oldest first.
std::vector<std::string> config_files(RunHistory& run) {
  std::vector<std::string> names, files;
  for (int n = 1; path_exists(join_path(run.folder, fmt::format("config-{}.toml", n))); ++n)
    names.push_back(fmt::format("config-{}.toml", n));
  names.push_back("config.toml");
  if (names.size() > kMaxConfigs) {
    run.notes.push_back(
        fmt::format("the configs of {} starts are left out, the oldest ones", names.size() - kMaxConfigs));
    names.erase(names.begin(), names.end() - kMaxConfigs);
  }
  for (const std::string& name : names)
    if (may_be_read(run.folder, name, run.notes)) files.push_back(join_path(run.folder, name));
  return files;
}

void read_configs(RunHistory& run) {
  std::optional<Config> before;
  for (const std::string& file : config_files(run)) {
    try {
      run.config_text = read_file(file, kMaxConfig);
      const Config config = read_dumped_config(run.config_text, file);
      if (before)
        if (std::vector<ConfigChange> changes = config_changes(*before, config); !changes.empty())
          run.changes.push_back(std::move(changes));
      before = config;
    } catch (const Error& e) {
      run.notes.push_back(fmt::format("{} cannot be read: {}", file, e.problem().why));
    }
  }
  run.config = before;
}

void read_metrics(RunHistory& run) {
  if (may_be_read(run.folder, "metrics.jsonl", run.notes)) try {
      run.metrics = read_metric_table(join_path(run.folder, "metrics.jsonl"));
    } catch (const Error& e) {
      run.notes.push_back("metrics.jsonl cannot be read: " + e.problem().why);
    }
}

void note_metrics(RunHistory& run) {
  const MetricTable& table = run.metrics;
  if (table.steps.empty())
    run.notes.push_back("no step is done yet: metrics.jsonl has no line that can be read");
  if (!table.unreadable.empty())
    run.notes.push_back(fmt::format("metrics.jsonl has {} that cannot be read, the first is line {}",
                                    count_text(std::ssize(table.unreadable), "line"),
                                    table.unreadable.front()));
  if (table.values_left_out > 0)
    run.notes.push_back(
        fmt::format("metrics.jsonl has too many keys: {} values of others than the first {} are left out",
                    table.values_left_out, table.columns.size()));
  if (table.steps.empty()) return;
  const int64_t absent =
      table.steps.back() - table.steps.front() + 1 - static_cast<int64_t>(table.steps.size());
  if (absent > 0)
    run.notes.push_back(fmt::format("metrics.jsonl lacks {} of the steps {} to {}", absent,
                                    table.steps.front(), table.steps.back()));
}

}  // namespace

RunHistory read_run_history(const std::string& folder) {
  require_run(folder);
  RunHistory run;
  run.name = name_of(folder);
  run.folder = folder;
  read_metrics(run);
  note_metrics(run);
  read_configs(run);
  read_events(run);
  run.samples = read_samples(folder, run.notes);
  run.state = run_state(run);
  return run;
}

}  // namespace temper
