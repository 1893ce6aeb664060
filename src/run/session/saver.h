#pragma once
// What the steps of a run leave: checkpoints, and exports after them.

#include "src/run/session/run_rank.h"

namespace temper {

struct Saves {
  Saving checkpoint = Saving::none;
  bool exported = false;
  bool for_best = false;  // the checkpoint is due to checkpoint.best alone
};

/// On ranks that have state.
class Saver {
 public:
  explicit Saver(RunRank& rank) : rank_(rank) {}

  /// Trainer ranks, when the step is trained and validated, or a stop cut that: says what it leaves, and
  /// tells others that have state. Saves by the clock (checkpoint.every_minutes) are optional: the first
  /// trainer rank decides, before the step's line.
  void decide(int64_t step);
  /// Trainer ranks, when a validation is made that a stop had cut: the step has its checkpoint.
  void decide_late(int64_t step);
  /// What was decided and is not done yet.
  const Saves& due() const { return due_; }
  /// Trainer ranks, after each step: does what is due.
  void save_step(int64_t step);
  /// Trainer ranks: a checkpoint of the state after `step`, which is the last one that was trained.
  void save_stopped(int64_t step);
  /// Ranks with state beside the trainer's: their part of a checkpoint; `produced`: the last step that is
  /// generated.
  void save_beside(int64_t step, int64_t produced, Saving saving);

 private:
  int64_t last_produced(int64_t ahead) const;
  void settle(int64_t produced);
  void add_state_of_roles(CheckpointWriter& checkpoint) const;
  void add_origin(CheckpointWriter& checkpoint, int64_t step) const;
  void save_checkpoint(int64_t step, int64_t produced, const Saves& saves);
  void look_at_validation(int64_t step);
  void tell_saved_step(int64_t step) const;

  RunRank& rank_;
  Saves due_;
  Stopwatch since_save_;     // or the start
  double save_seconds_ = 0;  // that the last one took
};

/// Which checkpoints of a run stay.
KeepRules keep_rules(const Config& config, const Standings& standings);

}  // namespace temper
