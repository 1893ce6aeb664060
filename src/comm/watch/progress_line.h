#pragma once
// What a job is at, in a line for people: "step 17: generating, 212/512 prompts, 8.1k tok/s".

#include <span>
#include <string>

#include "src/core/process/progress.h"

namespace temper {

/// Follows the ranks, at times of a clock: rates count from when a phase of a step was first seen.
class ProgressLine {
 public:
  /// `interval`: seconds that a step lasts before its first line, and between two.
  explicit ProgressLine(double interval) : interval_(interval) {}
  /// Whether it is time to look at the ranks again.
  bool looks(double now) const { return now >= next_look_; }
  /// The line about the states of all ranks; where they are at several steps it speaks of the first. Empty:
  /// not yet.
  std::string due(std::span<const ProgressState> ranks, double now);

 private:
  std::string text(std::span<const ProgressState> ranks, double now);

  double interval_, next_look_ = 0;
  double begun_ = 0;  // the wait for the next line
  int64_t step_ = -1;
  Phase phase_ = Phase::start;
  double since_ = 0;
  int64_t tokens_before_ = 0;
  WorkState known_;  // of all ranks, in this phase of this step
};

}  // namespace temper
