#pragma once
// What roles hand to each other of a step: groups, annotations, notes. A group goes from its producer (a
// rollout rank) to every rank that gets whole steps (those of the trainer, and of other roles that learn),
// and to one rank of each stage, a role that adds something to it (the reference its log-probs): the stage
// sends annotations to the ranks with whole steps, which put them together. Stages wait for producers alone,
// never for each other or the trainer; but a role that learns annotates a step when it has learned the one
// before. Nobody waits to send. A step is complete at a receiver when every sender has closed it; its groups
// are those of the prompts that finished in it, in order of data position. Groups that are not finished go on
// in the next step: producers know all of them (`gather`), trainer ranks keep the last ones for a checkpoint.
//
// Bounds: step s is generated with exactly version max(0, s - 1 - max_policy_lag), and a version goes out
// only after the one before was taken, so no receiver ever holds more than max_policy_lag + 1 steps; one that
// learns beside the trainer one more, as the trainer is done with a step before it.

#include <map>
#include <optional>

#include "src/run/exchange/annotation.h"
#include "src/run/exchange/end_of_run.h"
#include "src/run/exchange/step_input.h"

namespace temper {

/// What every producer says to all of them beside its groups.
class ProducerGather {
 public:
  ProducerGather(Mailbox& mailbox, EndOfRun& end, const std::vector<int>& producers)
      : mailbox_(mailbox), end_(end), producers_(producers) {}
  std::vector<std::string> gather(std::string bytes);

 private:
  Mailbox& mailbox_;
  EndOfRun& end_;
  std::vector<int> producers_;
  int64_t calls_ = 0;
  std::map<int64_t, std::map<int, std::string>> come_;  // by call, by sender
};

class GroupExchange {
 public:
  GroupExchange(Mailbox& mailbox, const RoleRanks& ranks, int64_t max_policy_lag, EndOfRun& end);

  /// Steps up to `step` are finished and those up to `produced` generated: a checkpoint held them.
  void start(int64_t step, int64_t produced);

  // Producers.
  void send_sampled(int64_t step, Group group);
  /// The checkpoint gets the group: it goes on in the next step.
  void send_unfinished(int64_t step, const Group& group);
  void close_sampled(int64_t step, StepNote note);
  /// Every producer's bytes, in order of rank; all producers call it alike.
  std::vector<std::string> gather(std::string bytes) { return producers_.gather(std::move(bytes)); }

  // Ranks of a stage: the groups of a step dealt to this rank, as they come; nothing when all have come (or
  // the run ends).
  std::optional<Group> take(size_t stage, int64_t step);
  /// `take` would return a group at once.
  bool waiting(size_t stage, int64_t step);
  /// The last step that `take` came to the end of was cut: none follows.
  bool was_cut(size_t stage) const { return stages_[stage].cut.has_value(); }
  /// `take` ended without the step: the run ends before it, as far as this rank knows.
  bool ends_before(size_t stage, int64_t step) const {
    const std::optional<int64_t>& cut = stages_[stage].cut;
    return end_.ends_before(step) || (cut && step > *cut && end_.last_save());
  }
  void annotate(size_t stage, int64_t step, const std::vector<Annotation>& annotations);
  void close(size_t stage, int64_t step, const StepNote& note);

  // Ranks with whole steps: all groups of the step, the same on each, until it is finished.
  const StepInput& peek(int64_t step);
  /// What a checkpoint holds of the step: it lacks what stages that learn add, for they add it when they
  /// stand at the step.
  const StepInput& peek_made(int64_t step);
  void finish(int64_t step);
  /// A rank asked for a stop in the last step that was finished.
  bool stop_requested() const { return stop_requested_; }
  /// The groups that the last generated step left unfinished, by data position.
  const std::vector<Group>& unfinished_after(int64_t step);
  /// Takes from a checkpoint, after `start`: a step that was generated, what the last one left unfinished.
  /// `awaited`: ranks of stages that still annotate the step and close it, beside those that learn.
  void put_back(int64_t step, StepInput input, size_t awaited = 0);
  /// A step that was cut: producers close it again, with what was missing.
  void put_back_open(int64_t step, StepInput input);
  void put_back_unfinished(int64_t step, std::vector<Group> groups);

  /// Most steps that this rank has ever held at once.
  int64_t most_steps_held() const { return most_steps_held_; }

 private:
  struct Inbox {
    std::vector<Group> groups;  // of a stage, as they came
    size_t taken = 0;           // of them by `take`
    Said said, learning;        // the second by stages that learn
    // For those who get whole steps.
    std::map<int64_t, Group> by_position;
    std::vector<Group> unfinished;
    std::optional<StepInput> made;   // once all of `said` is there
    std::optional<StepInput> whole;  // where stages learn: with what those say
  };
  /// What comes to this rank in one of its roles.
  struct Intake {
    int channel = 0;
    size_t num_senders = 0, num_learning = 0;
    int64_t most_steps = 0;  // under way at once
    std::map<int64_t, Inbox> steps = {};
    std::optional<int64_t> cut = {};  // the step that was
    int64_t finished = 0;             // this role is done with the groups of all steps up to here
  };

  void send_whole(const std::string& message);
  int receiver_of(size_t stage, const Group& group) const;
  void take_back(int64_t step, StepInput input);
  void sort_in(Intake& intake);
  void put_in_stages(int64_t step, const StepInput& input, bool closed);
  void wait_closed(int64_t step, bool learning);

  Mailbox& mailbox_;
  RoleRanks ranks_;
  EndOfRun& end_;
  ProducerGather producers_;
  std::vector<Intake> stages_;
  Intake whole_;
  std::map<int64_t, int64_t> groups_sent_;                         // by step that is open
  std::map<std::pair<size_t, int64_t>, size_t> annotations_sent_;  // by stage and step that is open
  std::map<int64_t, std::vector<Group>> unfinished_;               // after a step
  int64_t put_back_until_ = 0;                                     // the last step that a checkpoint held
  bool stop_requested_ = false;
  int64_t most_steps_held_ = 0;
};

}  // namespace temper
