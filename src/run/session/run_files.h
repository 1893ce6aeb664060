#pragma once
// What a training run has on disk, and where it goes on from.

#include "src/run/session/run_inputs.h"
#include "src/run/session/run_links.h"
#include "src/run/session/start/run_start.h"

namespace temper {

/// Where a run goes on: trained up to `step`, generated up to `produced`.
struct ResumePoint {
  std::string checkpoint;  // empty: a new run
  int64_t step = 0, produced = 0;
  int64_t weights = 0;  // the version that is generated with first
  std::optional<std::string> unsaid =
      {};                      // metrics of the step, which has no line yet: its validation is to be made
  std::string standings = {};  // text of the checkpoint; empty: it is of another run, or has none
};

struct RunFiles {
  /// Every rank of the run calls it: the first trainer rank opens the folder and looks for a checkpoint, all
  /// ranks get to know it; the log begins.
  RunFiles(const RunTask& task, const Placement& placement, const RunInputs& inputs, RunLinks& links);

  /// An event of the run, on the rank that writes.
  void write_event(const char* name, Json values) const {
    if (folder) folder->events().write(name, std::move(values));
  }
  std::string checkpoint(int64_t step) const { return join_path(checkpoints, step_name(step)); }

  std::unique_ptr<RunFolder> folder;                 // on the rank that writes
  std::string root, checkpoints;                     // folders of the run's own
  RunStart::Finds found = RunStart::Finds::nothing;  // in the folder, on the rank that writes
  ResumePoint resume = {};

 private:
  std::string find_checkpoint(const RunTask& task, const RunInputs& inputs);
  void take_up(const std::string& path, bool replay);
  void remember_verdicts(const RunInputs& inputs) const;
};

}  // namespace temper
