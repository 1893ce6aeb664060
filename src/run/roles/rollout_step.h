#pragma once
// One step of generation on a rank: rounds of prompts, each scored while others are still generated. Ranks of
// a team do it together: the first one scores, sends, and says when the step is cut.

#include "src/run/roles/prompt_work.h"
#include "src/run/roles/reward_workers.h"
#include "src/run/roles/role.h"
#include "src/run/roles/round_result.h"

namespace temper {

/// What a rank generates with.
struct RolloutParts {
  const Config& config;
  const RunPlan& plan;
  Ctx& ctx;
  Model& model;
  Engine& engine;
  const Tokenizer& tokenizer;
  PromptStream& prompts;
  const RewardSet& rewards;
  GroupExchange& groups;
  WeightSync& weights;
  EndOfRun& end;
  const MemoryLedger& memory;
  Trace& trace;
  const Model* trained;  // null: this rank has no trainer role; `model`: weights come by no message
  Share share;
  Team team;
  Lead lead;
};

/// The step that a stop cut, and that goes on: where it was with prompts that are replaced.
struct OpenStep {
  int64_t step = 0, round = 0, owed = 0;
};

class RolloutStep {
 public:
  /// One that goes on after a stop, as `open` says, has its prompts. `parts` outlive it.
  RolloutStep(const RolloutParts& parts, const OpenStep& open, int64_t step, int64_t version);

  /// Returns what all ranks left unfinished, by data position.
  std::vector<Group> run(std::vector<Group> before);
  bool was_cut() const { return was_cut_; }

 private:
  int64_t replacing_rounds() const { return p_.config.rollout.dynamic_sampling_rounds; }
  bool goes_on() const { return open_.step == step_; }
  /// Ranks must know of each other's prompts.
  bool shares() const { return replacing_rounds() > 0 || p_.config.rollout.tokens_per_step > 0; }

  RoundResult follow(const RoundResult& mine, int64_t owed, RoundResult all);
  void share(const RoundResult& mine, RoundResult& all);
  RoundResult generate(const std::vector<PromptWork>& work);
  void take(Group group, const PromptWork& work, RewardWorkers& workers, RoundResult& result);
  bool is_cut();
  void put_off(Group group, RoundResult& result);
  void send(std::vector<Group> scored, RoundResult& result);
  void close();

  const RolloutParts& p_;
  int64_t step_;
  OpenStep open_;
  bool was_cut_ = false;
  GenerateOptions options_;
  StepNote note_;
};

}  // namespace temper
