#pragma once
// The run folder `run.dir/run.name`: one owner at a time, the files of a run, and their truncation on resume.
// Rank 0 of a run owns and writes it; the other ranks write only their log and their checkpoint file.

#include <cstdint>
#include <string>

namespace temper {

class RunFolder {
 public:
  /// Makes the folder and takes its lock: Exit::busy with the owner's host and pid when another process has
  /// it. The operating system gives the lock back when the owner dies.
  RunFolder(const std::string& dir, const std::string& name);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  /// True when a run has left metrics or checkpoints here.
  bool has_run() const;
  /// Removes everything that came after `step` (0: all of a former run), so that the run goes on from there.
  void truncate_to(int64_t step);

  /// Exit::storage when the folder was removed, moved or replaced since: what is written there now is lost.
  void require_intact() const;

  std::string path(const std::string& name) const;

 private:
  void truncate_metrics(int64_t step);
  void remove_later(const std::string& folder, int64_t step);

  std::string root_;
  int lock_ = -1;
};

}  // namespace temper
