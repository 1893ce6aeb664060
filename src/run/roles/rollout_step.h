#pragma once
// One step of generation on a rank: rounds of prompts, each scored while others are still generated. Ranks of
// a team do it together: the first one scores, sends, and says when the step is cut.

#include "src/run/groups/group_maker.h"
#include "src/run/roles/role.h"
#include "src/run/roles/round_result.h"

namespace temper {

/// The step that a stop cut, and that goes on: where it was with prompts that are replaced.
struct OpenStep {
  int64_t step = 0, round = 0, owed = 0;
};

/// The sessions of a rank that generates; null where no program plays the samples, and on ranks that follow
/// the first one of their team.
std::unique_ptr<SessionHost> open_sessions(const RoleParts& parts);

class RolloutStep {
 public:
  /// One that goes on after a stop, as `open` says, has its prompts. Both parts outlive it.
  RolloutStep(const RoleParts& parts, const GroupMaker::Parts& maker, const OpenStep& open, int64_t step,
              int64_t version);

  /// Returns what all ranks left unfinished, by data position.
  LeftOver run(LeftOver before);
  bool was_cut() const { return was_cut_; }

 private:
  int64_t replacing_rounds() const { return p_.task.config().rollout.dynamic_sampling_rounds; }
  bool goes_on() const { return open_.step == step_; }
  /// Ranks must know of each other's prompts.
  bool shares() const { return replacing_rounds() > 0 || p_.task.config().rollout.tokens_per_step > 0; }

  std::vector<PromptWork> work_left(LeftOver before) const;
  RoundResult follow(const RoundResult& mine, int64_t owed, RoundResult all);
  void share(const RoundResult& mine, RoundResult& all);
  RoundResult generate(std::vector<PromptWork> work);
  void trace_rewards(const std::vector<RewardWorkers::Scored>& times) const;
  void put_off(Group group, RoundResult& result);
  void count_sessions(const Group& scored);
  void send(Group scored, RoundResult& result);
  void close();

  const RoleParts& p_;
  const GroupMaker::Parts& maker_;
  int64_t step_;
  OpenStep open_;
  bool was_cut_ = false;
  GenerateOptions options_;
  StepNote note_;
};

}  // namespace temper
