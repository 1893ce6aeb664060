#pragma once
// Generates the groups of a step and scores them; prompts are dealt to ranks by the rows that they may cost,
// and sent when all samples are scored. With rollout.tokens_per_step a sample gets so many tokens in a step
// and goes on in the next one (the last step finishes all); with rollout.dynamic_sampling_rounds a prompt
// whose samples earn all the same is replaced by the next one.

#include "src/run/roles/role.h"

namespace temper {

class RolloutRole : public Role {
 public:
  struct Parts {
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
    Journal& journal;
    const MemoryLedger& memory;
    Trace& trace;
    const Model* trained;  // null: this rank has no trainer role; `model`: weights come by no message
    Share share;
    Team team;
    Lead lead;
  };
  explicit RolloutRole(const Parts& parts) : p_(parts) {}
  bool phase(int64_t step) override;
  void restore(const CheckpointReader& checkpoint) override;

 private:
  class Step;
  bool trains() const { return p_.trained != nullptr; }
  bool receive_weights(int64_t version);
  /// The step that a stop cut, and that goes on: where it was with prompts that are replaced.
  struct Open {
    int64_t step = 0, round = 0, owed = 0;
  };

  Parts p_;
  std::vector<Group> unfinished_;  // of all rollout ranks, by data position
  Open open_;
  bool was_cut_ = false;  // by a stop
};

std::unique_ptr<Role> make_rollout_role(const RoleParts& parts);

}  // namespace temper
