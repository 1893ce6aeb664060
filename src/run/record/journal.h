#pragma once
// What a run tells the outside: metrics.jsonl and event files, the rollout dumps, the step lines. Rank 0
// writes; the others keep the same numbers and write nothing. Values under timing_s/ and perf/ may differ
// between two runs of one config; no other may.

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "src/config/config.h"
#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/stopwatch.h"
#include "src/data/prompt_frame.h"
#include "src/rl/types.h"
#include "src/run/record/metrics/left_out.h"
#include "src/run/record/metrics/no_signal.h"
#include "src/run/record/metrics/part_names.h"
#include "src/run/record/run_folder.h"
#include "src/run/record/tensorboard.h"
#include "src/run/record/tracker/tracker.h"

namespace temper {

class Journal {
 public:
  /// `said`: the last step that has its line.
  Journal(int64_t total_steps, int64_t said) : total_steps_(total_steps), said_(said) {}
  /// From here on this rank writes, into `folder`. `frame`: of the prompts, for samples.
  void open(const RunFolder& folder, PromptFrame frame);

  void set(const std::string& name, double value) { values_[name] = value; }
  void add(const std::map<std::string, double>& values);
  /// The values set in this step whose names start so.
  std::vector<std::string> names(const std::string& prefix) const;
  /// A value set in this step, or 0.
  double value(const std::string& name) const;
  /// All of them.
  const std::map<std::string, double>& values() const { return values_; }
  /// Records what is trained in this step: its metrics, its file, and samples of it for people.
  void record_rollouts(std::span<const Group> groups, int64_t step, const Config& config);
  /// Writes SUBFOLDER/step-XXXXXX.jsonl: lines, each with its end, or those of groups.
  void write_lines(const std::string& subfolder, const std::string& lines, int64_t step);
  void write_groups(const std::string& subfolder, std::span<const Group> groups, int64_t step);
  /// Writes the step's line and forgets its values. Returns the short form for people; on a terminal it fits
  /// into a line.
  std::string finish_step(int64_t step);
  /// The last step that has its line, and, as JSON, the values of the next one so far.
  int64_t said() const { return said_; }
  std::string unsaid() const { return dump_json_line(values_); }
  /// From here on the program hears of all steps.
  void track(std::unique_ptr<Tracker> tracker) { tracker_ = std::move(tracker); }
  /// Null: nobody tracks the run.
  Tracker* tracker() const { return tracker_.get(); }
  /// What was written is on the disk, as a checkpoint of the same step will be.
  void sync();

 private:
  const RunFolder* folder_ = nullptr;  // null: this rank writes nothing
  int64_t total_steps_, said_;
  Stopwatch age_;  // since it is open
  int64_t steps_ = 0;
  NoSignal no_signal_;
  LeftOut no_reward_{EndReason::no_reward}, no_request_{EndReason::no_request};
  std::map<std::string, double> values_;
  std::unique_ptr<OutputFile> metrics_;
  std::unique_ptr<EventFile> events_;
  std::unique_ptr<Tracker> tracker_;
  PromptFrame frame_;
  PartNames part_names_;
};

/// Adds the seconds of its life to timing_s/<name>.
class PhaseTimer {
 public:
  PhaseTimer(Journal& journal, std::string name) : journal_(journal), name_("timing_s/" + std::move(name)) {}
  ~PhaseTimer() { journal_.set(name_, watch_.seconds()); }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  Journal& journal_;
  std::string name_;
  Stopwatch watch_;
};

}  // namespace temper
