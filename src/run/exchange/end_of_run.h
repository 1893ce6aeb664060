#pragma once
// The end of a run before its last step. A rank that is asked to stop (a signal, the time limit) says so to
// the first trainer rank, which alone knows where the trainer is: it decides after which step the run ends,
// and tells all. What is generated with the weights of that step is cut, and with older ones where ranks do
// nothing else: the trainer keeps those (WeightSync). Else they are gone, and the work is finished. When all
// is saved it tells ranks without the trainer role; those that wait for groups or
// for weights look for it and leave.
//
// Ranks beside the trainer's that have state of their own (keepers) save with it: after each step it tells
// them that the step is trained, and whether it saves then; before the save of a run that is stopped in
// between it tells them of that one. A role that learns does so when its step is trained, and not before: an
// update may be dropped until it is complete. So all stand at the same step in a checkpoint.

#include <functional>
#include <map>
#include <optional>

#include "src/comm/comm.h"
#include "src/comm/mailbox.h"
#include "src/run/exchange/role_ranks.h"

namespace temper {

/// A checkpoint after a step: due, or one that may fail.
enum class Saving { none, due, optional };

class EndOfRun {
 public:
  /// Why this rank was asked to stop; empty: it was not.
  using Asked = std::function<std::string()>;

  EndOfRun(Mailbox& mailbox, const RoleRanks& ranks) : mailbox_(mailbox), ranks_(ranks) {}
  /// `world`: all ranks of the run, those without roles too.
  EndOfRun(Mailbox& mailbox, const RoleRanks& ranks, std::vector<int> world, Asked asked)
      : mailbox_(mailbox), ranks_(ranks), world_(std::move(world)), asked_(std::move(asked)) {}

  /// Trainer ranks: no version of the weights will follow.
  void tell();
  /// The same, for a run that has come to its last step: ranks without roles wait for it.
  void tell_idle();
  /// This rank was told, as far as messages have come. Passes on that it was asked, and decides where it is
  /// the one to do so: not within an update that will be finished.
  bool look();
  /// The end had come at the last look.
  bool has_come() const { return has_come_; }
  /// No groups of this step will come: the end has come, or this rank knows of a save that ends the run and
  /// has less.
  bool ends_before(int64_t step) const { return has_come_ || (last_save_ && step > last_save_->produced); }
  /// The same of a version of the weights.
  bool ends_before_version(int64_t version) const {
    return has_come_ || (last_save_ && version > last_save_->version);
  }

  /// The save of a run that ends before its last step: the state after `step`, steps up to `produced` are
  /// generated as far as no stop cut them, weights up to `version` went out.
  struct LastSave {
    int64_t step = 0, produced = 0, version = 0;
  };
  /// Trainer ranks: `step` is trained; the state after it is saved or not.
  void tell_trained(int64_t step, Saving saving);
  /// Trainer ranks: the run ends with this save.
  void tell_last_save(const LastSave& save);
  /// Keepers beside the trainer: waits until the step is trained, and says what is saved after it. Nothing
  /// when the run ends before.
  std::optional<Saving> wait_trained(int64_t step);
  const std::optional<LastSave>& last_save() const { return last_save_; }

  /// Trainer ranks: weights and optimizer are those after this step.
  void set_trained(int64_t step) { trained_ = step; }
  int64_t trained() const { return trained_; }
  /// A stop is known on this rank, as of now.
  bool asked();
  /// Trainer ranks together: any of them knows of a stop, which is decided then. `also`: this one does.
  bool agree(Comm& trainer, bool also = false);
  /// The step after which the run ends, once it is decided and known here.
  std::optional<int64_t> after() const { return after_; }
  /// Generation with the weights of this version is cut: it goes on after the end.
  bool cuts(int64_t version) const { return after_ && (*after_ == version || ranks_.generate_apart()); }
  /// Why the run ends; the rank that decides knows it.
  const std::string& reason() const { return reason_; }

 private:
  void decide();
  bool decides() const { return mailbox_.rank() == ranks_.trainer.front(); }

  Mailbox& mailbox_;
  RoleRanks ranks_;
  std::vector<int> world_;
  Asked asked_;
  bool has_come_ = false, passed_on_ = false;
  std::map<int64_t, Saving> told_trained_;  // steps not yet waited for
  std::optional<LastSave> last_save_;
  int64_t trained_ = 0;
  std::string reason_;
  std::optional<int64_t> after_;
};

}  // namespace temper
