#pragma once
// Generates the groups of a step and scores them; prompts are dealt to ranks by the rows that they may cost,
// and sent when all samples are scored. With rollout.tokens_per_step a sample gets so many tokens in a step
// and goes on in the next one (the last step finishes all); with rollout.dynamic_sampling_rounds a prompt
// whose samples earn all the same is replaced by the next one.

#include "src/run/roles/rollout_step.h"

namespace temper {

class RolloutRole : public Role {
 public:
  static constexpr Phase kPhase{20, "rollout", "generating", "prompts", "generate"};
  explicit RolloutRole(const RoleParts& parts);
  bool phase(int64_t step) override;
  void restore(const CheckpointReader& checkpoint) override;

 private:
  bool trains() const { return p_.models.trained() != nullptr; }
  bool receive_weights(int64_t version);

  RoleParts p_;
  std::unique_ptr<SessionHost> sessions_;  // on the first rank of a team, where programs play the samples
  GroupMaker::Parts maker_;
  LeftOver left_;  // of all rollout ranks, by data position
  OpenStep open_;
  bool was_cut_ = false;  // by a stop
};

std::unique_ptr<Role> make_rollout_role(const RoleParts& parts);

}  // namespace temper
