#pragma once
// Where nothing is generated, the trainer ranks produce the groups themselves: from the data, or from files
// of an earlier run.

#include "src/run/roles/role.h"

namespace temper {

/// Takes prompts and responses from the data (algorithm "sft").
class SftProducer : public Role {
 public:
  SftProducer(GroupExchange& groups, PromptStream& prompts, int64_t lines_per_step, Portion portion)
      : groups_(groups), prompts_(prompts), lines_per_step_(lines_per_step), portion_(portion) {}
  bool phase(int64_t step) override;
  void restore(const CheckpointReader& checkpoint) override;

 private:
  GroupExchange& groups_;
  PromptStream& prompts_;
  int64_t lines_per_step_;
  int64_t produced_ = 0;  // by the run before
  Portion portion_;
};

/// Takes the groups of a step from a rollout file.
class ReplayProducer : public Role {
 public:
  explicit ReplayProducer(const RoleParts& parts)
      : groups_(parts.groups),
        plan_(parts.task.plan),
        files_(parts.task.replay_files),
        inputs_(parts.inputs),
        portion_(parts.portion) {}
  bool phase(int64_t step) override;

 private:
  GroupExchange& groups_;
  const RunPlan& plan_;  // says which ids and lengths a file may have
  std::vector<std::string> files_;
  const InputDigests& inputs_;
  Portion portion_;
};

std::unique_ptr<Role> make_sft_producer(const RoleParts& parts);
std::unique_ptr<Role> make_replay_producer(const RoleParts& parts);

}  // namespace temper
