#pragma once
// The run folder `run.dir/run.name`: one owner at a time, the files of a run, and what of them stays when it
// goes on.
// Rank 0 of a run owns and writes it; the other ranks write only their log and their checkpoint file.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "src/core/json.h"
#include "src/core/process/lease.h"

namespace temper {

/// events.jsonl: the history of a run folder, a JSON object per line with "time" (local, with its offset),
/// "event", and more:
///   changed      key, before, after of a value of the config since the checkpoint
///   resume       step, path of the checkpoint that the run goes on from
///   start        ranks, device, dtype, parameters, updates, lines of the data (where the first trainer rank
///                reads them), prompt_frame: what the chat template puts before and after a question
///   checkpoint   step, path; export the same
///   stop         step, reason; end only the step
/// Unlike metrics it is never cut: steps that are made again have their events again.
class EventLines {
 public:
  explicit EventLines(std::string file) : file_(std::move(file)) {}

  /// Adds a line that is on the disk when this returns. A line before it that a crash cut stays one of its
  /// own.
  void write(const char* event, const Json& more) const;

 private:
  std::string file_;
};

class RunFolder {
 public:
  /// Makes the folder and takes its lock: Exit::busy with the owner's host and pid when another process has
  /// it, or a file in it is a symbolic link. The operating system gives the lock back when the owner dies. On
  /// a file system without locks a lease takes its place (core/process/lease.h).
  /// What killed owners left unfinished is removed, what cannot be a file or folder of a run is set aside.
  RunFolder(const std::string& dir, const std::string& name);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  /// True when a run has left metrics or checkpoints here.
  bool has_run() const;
  /// The run goes on from `step`, a checkpoint of its own: removes what came after it and comes again.
  /// Checkpoints and exports beyond it are set aside.
  void truncate_to(int64_t step, int64_t said);
  /// The step of the first line of metrics.
  std::optional<int64_t> first_line() const;
  /// Says which of the steps first..last have no line of metrics, or no rollouts.
  void tell_what_is_missing(int64_t first, int64_t last, bool with_rollouts) const;
  /// The run begins anew: what there is of another one goes to `set-aside-N`.
  void set_aside();
  /// The run begins anew, and the user permitted to remove what there is of another one.
  void clear();
  /// config.toml of this start; another one that stood there stays as config-N.toml.
  void keep_config(const std::string& text) const;

  /// Exit::storage when the folder was removed, moved or replaced since: what is written there now is lost.
  void require_intact() const;

  /// The history of the folder. It stays, as logs and configs do, when a run goes on or begins anew.
  EventLines events() const {
    require_intact();
    return EventLines(path("events.jsonl"));
  }

  std::string path(const std::string& name) const;

 private:
  void take_lock(const std::string& lock);
  void refuse_links() const;
  void remove_leftovers();
  void truncate_metrics(int64_t step);
  void remove_later(const std::string& folder, int64_t step);
  void set_aside_later(int64_t step);

  std::string root_;
  int lock_ = -1;
  std::optional<Lease> lease_;
};

}  // namespace temper
