#pragma once
// What roles hand to each other: groups, notes about a step, versions of the weights. A group goes from its
// producer (a rollout rank) to one rank of each stage, a role that adds something to it (the reference its
// log-probs), and from there to every trainer rank, which puts the parts together; without stages straight to
// the trainer. Stages wait for producers alone, never for each other or the trainer. Nobody waits to send. A
// step is complete at a receiver when every sender has closed it; its groups are those of the prompts that
// finished in it, in order of data position. Groups that are not finished go on in the next step: producers
// know all of them (`share`), trainer ranks keep the last ones for a checkpoint. Weights: version v is the
// state after step v. Ranks with the trainer role share its buffers (0 bytes move); the other rollout ranks
// get every version in a message from each trainer rank, by a plan made once, and compare digests.
//
// Bounds: step s is generated with exactly version max(0, s - 1 - max_policy_lag), and a version goes out
// only after the one before was taken, so no receiver ever holds more than max_policy_lag + 1 steps.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/mailbox.h"
#include "src/nn/parameter.h"
#include "src/rl/types.h"
#include "src/run/exchange/weight_transfer.h"

namespace temper {

/// World ranks, ascending. `producers`: the rollout ranks (the trainer's own where nothing is generated).
/// `stages`: none empty.
struct RoleRanks {
  std::vector<int> producers;
  std::vector<std::vector<int>> stages;
  std::vector<int> trainer;
};

/// What a sender says of a step when it closes it; receivers add up.
struct StepNote {
  std::map<std::string, double> sums = {}, maxima = {};  // metrics; sums of integers or of times
  std::map<int64_t, double> replaced = {};  // prompts whose samples all had this raw reward, by data position
  int64_t num_groups = 0;                   // finished in this step; counted by Exchange
  int64_t data_position = 0;                // of the prompts after this step; the largest counts
  bool stop_requested = false;              // any rank's
};

struct StepInput {
  std::vector<Group> groups;  // ascending by data position, which gives the index of a group in the step
  StepNote note;
};

/// Exact: groups and note come back with the same bits. Reading throws on bytes that are no such step.
std::string step_input_to_bytes(const StepInput& input);
StepInput step_input_from_bytes(std::string_view bytes);

class Exchange {
 public:
  Exchange(Mailbox& mailbox, const RoleRanks& ranks, int64_t max_policy_lag);

  /// Steps up to `step` are finished and those up to `produced` generated: a checkpoint held them and what
  /// was left unfinished by the last one (on trainer ranks).
  void start(int64_t step, int64_t produced, std::map<int64_t, StepInput> ahead,
             std::vector<Group> unfinished);

  // Producers.
  void send_sampled(int64_t step, Group group);
  /// For the checkpoint: goes on in the next step.
  void send_unfinished(int64_t step, const Group& group);
  void close_sampled(int64_t step, StepNote note);
  /// Every producer's bytes, in order of rank; all producers call it alike.
  std::vector<std::string> share(std::string bytes);

  // Ranks of a stage: the groups of a step dealt to this rank, as they come; nothing when all have come (or
  // the run ends). Each goes on to the trainer with what the stage adds: log-probs of the reference, parts of
  // the reward.
  std::optional<Group> take(size_t stage, int64_t step);
  /// `take` would return a group at once.
  bool waiting(size_t stage, int64_t step);
  void pass_on(size_t stage, int64_t step, Group group);
  void close(int64_t step, const StepNote& note);

  // Trainer ranks: all groups of the step, the same on each. `peek` leaves them for a later `receive`.
  StepInput receive(int64_t step);
  const StepInput& peek(int64_t step);
  /// The groups that the last generated step left unfinished, by data position.
  const std::vector<Group>& unfinished_after(int64_t step);

  /// Trainer ranks, after each step but the last of the run, and once at the start.
  void publish_weights(const ParameterStore& weights, int64_t version);
  /// Rollout ranks: the weights become exactly this version. False when the run ends instead.
  bool receive_weights(ParameterStore& weights, int64_t version);
  /// This rank was told of the end of the run.
  bool has_ended() const { return ended_; }
  /// Trainer ranks: no version will follow; ranks that wait for one, or for groups, go on to the end.
  void end_run();

  int64_t weight_bytes_moved() const { return weight_bytes_moved_; }
  /// Most steps that this rank has ever held at once.
  int64_t most_steps_held() const { return most_steps_held_; }

 private:
  struct Inbox {
    StepInput input;                                    // of a stage: groups as they came
    std::map<std::pair<int64_t, size_t>, Group> parts;  // of the trainer: by data position and stage
    std::vector<Group> unfinished;
    std::map<int, StepNote> notes;  // by sender: sums of times depend on the order
    size_t closed = 0;
    size_t taken = 0;  // groups given out by `take`
  };
  /// What comes to this rank in one of its roles.
  struct Lane {
    int channel = 0;
    size_t num_senders = 0;
    std::map<int64_t, Inbox> steps = {};
    int64_t finished = 0;  // this role is done with the groups of all steps up to here
  };

  void send_to_trainer(const std::string& message);
  void sort_in(Lane& lane);
  void put_together(Inbox& inbox, int64_t step);
  Inbox& wait_closed(int64_t step);
  bool ended();
  bool trains(int rank) const;

  Mailbox* mailbox_;
  RoleRanks ranks_;
  int64_t max_lag_;
  std::optional<WeightTransfer> transfer_;
  std::vector<Lane> stages_;
  Lane trainer_;
  std::map<int64_t, int64_t> groups_sent_;                     // by step that is open
  std::map<int64_t, std::vector<Group>> unfinished_;           // after a step, on trainer ranks
  int64_t shares_ = 0;                                         // calls of `share`
  std::map<int64_t, std::map<int, std::string>> shared_come_;  // by call, by sender
  /// By sender: one may already have sent the next version before the last one's message is found.
  std::map<int, std::deque<std::string>> weights_come_;
  int64_t version_ = 0;
  bool ended_ = false;
  int64_t weight_bytes_moved_ = 0, most_steps_held_ = 0;
};

}  // namespace temper
