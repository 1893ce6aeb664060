#include "src/run/verbs/report_command.h"

#include <map>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/log.h"
#include "src/core/process/results.h"
#include "src/run/report/chart.h"
#include "src/run/report/page.h"

namespace temper {
namespace {

std::vector<RunHistory> read_runs(const std::vector<std::string>& folders) {
  if (folders.size() > kMaxRuns)
    fail(Exit::usage, {.what = "too many runs for one page",
                       .where = "temper report",
                       .why = fmt::format("{} are given, more than {} colours cannot be told apart",
                                          folders.size(), kMaxRuns),
                       .fix = "make several pages"});
  std::vector<RunHistory> runs;
  for (const std::string& folder : folders) runs.push_back(read_run_history(folder));
  std::map<std::string, int> with_name;
  for (const RunHistory& run : runs) ++with_name[run.name];
  for (RunHistory& run : runs)
    if (with_name[run.name] > 1) run.name = run.folder;
  return runs;
}

void write_result(const std::string& path, const std::string& text) {
  if (is_directory(path))
    fail(Exit::usage, {.what = "the page or table cannot be written",
                       .where = path,
                       .why = "it is a folder",
                       .fix = "name a file"});
  write_file_atomic(path, text);
  write_results(path + "\n");
}

/// What a table leaves out, for whoever takes it alone.
void warn_of_columns(const RunHistory& run) {
  if (run.metrics.values_left_out > 0)
    log::warn("{}: {} values of further keys than the first {} are left out", run.name,
              run.metrics.values_left_out, run.metrics.columns.size());
}

}  // namespace

int run_report(const CommandLine& line) {
  const std::vector<std::string> folders = line.words();
  const std::vector<RunHistory> runs = read_runs(folders);
  if (line.has("--csv")) {
    std::vector<NamedTable> tables;
    for (const RunHistory& run : runs) {
      warn_of_columns(run);
      tables.push_back({run.name, &run.metrics});
    }
    write_result(line.text("--csv"), metrics_csv(tables));
  }
  write_result(line.text("--out", join_path(folders.front(), "report.html")), report_page(runs));
  return 0;
}

void write_page_of_run(const std::string& folder) try {
  const std::string page = join_path(folder, "report.html");
  write_file_atomic(page, report_page({read_run_history(folder)}));
  log::info("page {}", page);
} catch (const std::exception& e) {
  log::warn("no page about the run: {}", e.what());
}

}  // namespace temper
