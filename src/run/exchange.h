#pragma once
// What roles hand to each other: groups, notes about a step, versions of the weights. Producers (rollout ranks)
// send each group to one reference rank or, without a reference, to every trainer rank; reference ranks send
// it on to every trainer rank. Nobody waits to send. A step is complete at a receiver when every sender has
// closed it. Weights: version v is the state after step v. Ranks with the trainer role share its buffers (0
// bytes move); the other rollout ranks get every version in a message from each trainer rank, by a plan made
// once, and compare digests.
//
// Bounds: step s is generated with exactly version max(0, s - 1 - max_policy_lag), and a version goes out only
// after the one before was taken, so no receiver ever holds more than max_policy_lag + 1 steps.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/mailbox.h"
#include "src/nn/parameter.h"
#include "src/rl/types.h"
#include "src/run/weight_transfer.h"

namespace temper {

/// World ranks, ascending. `producers`: the rollout ranks (the trainer's own where nothing is generated).
struct RoleRanks {
  std::vector<int> producers, reference, trainer;
};

/// What a sender says of a step when it closes it; receivers add up.
struct StepNote {
  std::map<std::string, double> sums, maxima;  // metrics
  int64_t data_position = 0;                   // of the prompts after this step; the largest counts
  bool stop_requested = false;                 // any rank's
};

struct StepInput {
  std::vector<Group> groups;  // ascending by group index
  StepNote note;
};

/// Exact: everything comes back with the same bits. Reading throws on bytes that are no such step.
std::string step_input_to_bytes(const StepInput& input);
StepInput step_input_from_bytes(std::string_view bytes);

class Exchange {
 public:
  Exchange(Mailbox& mailbox, const RoleRanks& ranks, int64_t max_policy_lag);

  /// Steps up to `step` are finished and those up to `produced` generated: a checkpoint held them (`ahead`, on
  /// trainer ranks).
  void start(int64_t step, int64_t produced, std::map<int64_t, StepInput> ahead);

  // Producers.
  void send_sampled(int64_t step, Group group);
  void close_sampled(int64_t step, const StepNote& note);

  // Reference ranks: the groups of a step dealt to this rank, as they come; nothing when all have come (or the
  // run ends).
  std::optional<Group> take_sampled(int64_t step);
  /// take_sampled would return a group at once.
  bool sampled_waiting(int64_t step);
  void send_referenced(int64_t step, Group group);
  void close_referenced(int64_t step, const StepNote& note);

  // Trainer ranks: all groups of the step, the same on each. `peek` leaves them for a later `receive`.
  StepInput receive(int64_t step);
  const StepInput& peek(int64_t step);

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
    StepInput input;
    size_t closed = 0;
    size_t taken = 0;  // groups given out by take_sampled
  };
  using Inboxes = std::map<int64_t, Inbox>;

  void send(int channel, int to, int64_t step, const Group* group, const StepNote& note);
  void sort_in(int channel, Inboxes& inboxes);
  Inbox& wait_closed(int64_t step);
  bool ended();
  bool trains(int rank) const;

  Mailbox* mailbox_;
  RoleRanks ranks_;
  int64_t max_lag_;
  std::optional<WeightTransfer> transfer_;
  Inboxes sampled_, complete_;  // by step
  /// By sender: one may already have sent the next version before the last one's message is found.
  std::map<int, std::deque<std::string>> weights_come_;
  int64_t finished_ = 0;        // this rank is done with the groups of all steps up to here
  int64_t version_ = 0;
  bool ended_ = false;
  int64_t weight_bytes_moved_ = 0, most_steps_held_ = 0;
};

}  // namespace temper
